import numpy as np
import pytest

from metastable.papers.concentration.run_out import departure_time, sphere_curves
from metastable.papers.reading import slope
from metastable.theory import spectrum


def test_a_departure_is_ten_percent_of_the_mean_field():
    t = np.linspace(0, 1, 11)
    assert departure_time(t, 1 + 0.5 * t, np.ones(11)) == pytest.approx(0.2)
    assert departure_time(t, 1 - 0.5 * t, np.ones(11)) == pytest.approx(0.2)


@pytest.mark.parametrize("counts", [(150, 300, 600), (220, 700, 2100)])
def test_tokens_on_the_sphere_run_out_at_log_n_over_k_g_out(counts):
    times = np.linspace(0, 11, 177)
    w, exact, found = sphere_curves(np.array(counts), times, 1)
    s = spectrum(w)
    assert (s.dimension, s.g_in, s.g_out) == pytest.approx((2, 1.0, 0.5))
    out = [departure_time(times, one[0], exact) for one in found]
    # The time step, 1/16, at either end of the range of log n.
    assert slope(np.log(counts), out) * 2 * s.g_out == pytest.approx(1.0, abs=0.125 / np.ptp(np.log(counts)))

"""Causal attention by matrix products against extended precision and against the compiled loop."""

import pytest
import torch

from attention.direct.test_causal import errors, problem
from metastable.attention.direct.causal import _blocks, _fused
from metastable.attention.direct.causal_products import attend_causal_products
from metastable.threads import over_rows


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("spread", [0.0, 1.0, 100.0, 1e4])
@pytest.mark.parametrize("beta", [0.0, 3.0, 3000.0])
@pytest.mark.parametrize(("n", "d", "d_v"), [(1, 9, 9), (31, 12, 9), (130, 20, 12)])
def test_rows_against_extended_precision(n, d, d_v, beta, spread, include_self):
    case = problem(n, n, d, d_v, spread)
    assert max(errors(case, beta, include_self, attend_causal_products)) < 50


def test_it_is_the_loop_and_the_blocks_of_other_devices():
    case = [torch.from_numpy(part) for part in problem(3, 400, 8, 8, 1.0)]
    found = attend_causal_products(*case, 5.0, True)
    for other in (_fused, _blocks):
        for a, b in zip(found, other(*case, 5.0, True), strict=True):
            assert torch.allclose(a, b, rtol=1e-12, atol=1e-13)


def test_no_mass_at_all_and_no_mass_before():
    x = torch.randn(70, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    none = torch.full((70,), -torch.inf, dtype=torch.float64)
    mean, log_z = attend_causal_products(x, x, x, none, 1.0, True)
    assert not mean.any() and bool((log_z == -torch.inf).all())
    for beta in (1.0, 1e3):
        late = none.clone()
        late[66] = 2.0
        mean, log_z = attend_causal_products(x, x, x, late, beta, True)
        assert not mean[:66].any() and bool((log_z[:66] == -torch.inf).all())
        assert torch.allclose(mean[66:], x[66]) and bool(torch.isfinite(log_z[66:]).all())


def test_digits_do_not_depend_on_the_threads(monkeypatch):
    case = [torch.from_numpy(part) for part in problem(5, 700, 10, 10, 1.0)]
    one = attend_causal_products(*case, 4.0, True)

    def in_turn(work, n, **options):
        for start in reversed(range(n)):
            over_rows(lambda a, b, s=start: work(s + a, s + b), 1, cost=0.0)

    monkeypatch.setattr("metastable.attention.direct.causal_products.over_rows", in_turn)
    again = attend_causal_products(*case, 4.0, True)
    assert all(bool((a == b).all()) for a, b in zip(one, again, strict=True))

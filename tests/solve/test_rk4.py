"""One step of RK4, written out."""

import torch

import metastable as ms
from metastable.sphere import normalize
from small_runs import smooth_case


def test_one_step_by_hand():
    flow, rho = smooth_case()
    x, h = rho.points, 0.2

    def v(y):
        return flow.velocity(0.0, y, rho.mass)

    k1 = v(x)
    k2 = v(x + h / 2 * k1)
    k3 = v(x + h / 2 * k2)
    k4 = v(x + h * k3)
    expected = normalize(x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4))
    end = ms.solve(flow, rho, h, method="rk4", step=h).end.points
    torch.testing.assert_close(end, expected, rtol=0, atol=1e-14)

"""The shapes that the signatures promise, checked at run time through a broad use of the engine.

The check runs in a process of its own: under it a wrong type never reaches our own sentence, so the tests of bad
input must not see it.
"""

import subprocess
import sys
import textwrap

CHECKED = [f"metastable.{room}" for room in ("sphere", "measure", "weights", "flows", "solve", "observe")]

USE = """
import sys
from jaxtyping import install_import_hook

with install_import_hook(sys.argv[1].split(","), "beartype.beartype"):
    import torch
    import metastable as ms
    from metastable import observe

for d, nodes in ((2, ms.sphere.equispaced(9)), (3, ms.sphere.fibonacci(9)), (5, ms.sphere.uniform(9, 5))):
    g = torch.Generator().manual_seed(1)
    low = [torch.randn(2, d, generator=g, dtype=torch.float64) for _ in range(4)]
    w = ms.AttentionWeights(V=torch.eye(d), B=torch.eye(d) + 0.1 * torch.ones(d, d))
    factored = ms.AttentionWeights.from_qkv(*low[:3], low[3].T)
    rho = ms.Measure(nodes, mass=torch.arange(1.0, 10.0))
    layered = ms.Schedule.layers([w, w], 0.2)
    flows = [
        ms.SelfAttention(w, 2.0), ms.SelfAttention(factored, 2.0), ms.SelfAttention(w, 2.0, field=torch.ones(d)),
        ms.UnnormalizedAttention(w, 1.0), ms.ZeroTemperature(w), ms.Hardmax(w), ms.SelfAttention(layered, 1.0),
        ms.MultiHead([ms.SelfAttention(w, 1.0), ms.SelfAttention(factored, 2.0)], combine="mean"),
    ]
    for flow in flows:
        for method in ("auto", "rk4", "euler"):
            path = ms.solve(flow, rho, 0.2, times=3, method=method, events=[ms.Event(lambda x, m: x[0, 0], 0.5)])
            assert path.points.shape == (3, 9, d)
    ms.solve(ms.EuclideanAttention(w, 1.0), 2 * nodes, 0.2)
    for observed in (
        observe.order_parameter, observe.effective_rank, observe.cluster_count, observe.overlap_histogram,
    ):
        observed(path.end)
    observe.attention_entropy(rho, factored, 2.0)
    observe.interaction_energy(rho, w, 2.0)
    observe.distance_to_subspace(rho, torch.eye(d)[:, :1])
    ms.sphere.exp(nodes, ms.sphere.log(nodes, nodes.roll(1, 0)))
    ms.sphere.von_mises_fisher(5, torch.ones(d), 3.0)
try:
    ms.sphere.angles(torch.ones(3, 3, dtype=torch.float64))
except Exception as error:
    assert "TypeCheckError" in type(error).__name__, error
    print("checked")
"""


def test_shapes_at_run_time():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(USE), ",".join(CHECKED)], capture_output=True, text=True
    )
    assert done.stdout == "checked\n", done.stderr[-2000:]

"""A broad use of every room, run by `test_shapes.py` in a process where signatures are checked.

python broad_use.py ROOM prints "checked N functions" when all shapes were as promised and a wrong one was noticed.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "metastable"


def checkable(room: str) -> list[str]:
    """The modules of a room whose functions can be wrapped: compiled ones (numba, Triton) are what they are, and
    the sources of a paper have none."""
    found = []
    for path in [*PACKAGE.glob(f"{room}.py"), *(PACKAGE / room).rglob("*.py")]:
        text = path.read_text()
        compiled = re.search(r"^(from|import) numba|import jit", text, re.MULTILINE)
        if path.name not in ("__init__.py", "sources.py") and compiled is None:
            found.append(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    return sorted(found)


def engine() -> None:
    """Weights, flows, every method of `solve`, observables."""
    import torch

    import metastable as ms
    from metastable import observe
    from metastable.flows import CommonNoise, HeadDescent
    from metastable.flows.apart import Apart
    from metastable.flows.individual import IndividualAttention
    from metastable.solve import gradient
    from metastable.weights import OrnsteinUhlenbeck, Target

    for d, nodes in ((2, ms.sphere.equispaced(9)), (3, ms.sphere.fibonacci(9)), (5, ms.sphere.uniform(9, 5))):
        g = torch.Generator().manual_seed(1)
        low = [torch.randn(2, d, generator=g, dtype=torch.float64) for _ in range(4)]
        w = ms.AttentionWeights(V=torch.eye(d), B=torch.eye(d) + 0.1 * torch.ones(d, d))
        factored = ms.AttentionWeights.from_qkv(*low[:3], low[3].T)
        rho = ms.Measure(nodes, mass=torch.arange(1.0, 10.0))
        layered = ms.Schedule.layers([w, w], 0.2)
        flows = [
            ms.SelfAttention(w, 2.0), ms.SelfAttention(factored, 2.0),
            ms.SelfAttention(w, 2.0, field=torch.ones(d)),
            ms.UnnormalizedAttention(w, 1.0), ms.ZeroTemperature(w), ms.Hardmax(w), ms.SelfAttention(layered, 1.0),
            ms.MultiHead([ms.SelfAttention(w, 1.0), ms.SelfAttention(factored, 2.0)], combine="mean"),
            ms.MultiHead([ms.SelfAttention(factored, 1.0), ms.SelfAttention(factored, 2.0)], residual=True),
        ]  # fmt: skip
        for flow in flows:
            for method in ("auto", "rk4", "euler"):
                event = ms.Event(lambda x, m: x[0, 0], 0.5)
                path = ms.solve(flow, rho, 0.2, times=3, method=method, events=[event])
                assert path.points.shape == (3, 9, d)
            if flow.smooth:
                assert gradient(flow, rho, 0.1, lambda x: x.sum()).points.shape == (9, d)
        gradient(ms.Causal(flows[0], alibi=1.0), rho, 0.1, lambda x: x.sum(), method="euler")
        ms.solve(ms.EuclideanAttention(w, 1.0), 2 * nodes, 0.2)
        for kappa in ("linear", "relu", "tanh"):
            for method in ("auto", "heun", "euler-maruyama", "layers"):
                noisy = CommonNoise(ms.SelfAttention(w, 1.0), kappa)
                ms.solve(noisy, rho, 0.2, times=[0.0, 0.13, 0.2], method=method, step=0.1)
            ms.solve(CommonNoise(None, kappa, width=3), ms.Ensemble(nodes.expand(2, 9, d)), 0.2, step=0.1)
        ms.solve(CommonNoise(covariance=lambda g: g, independent=True), rho, 0.2, step=0.1)
        several = nodes.expand(2, 9, d).contiguous()
        ms.solve(IndividualAttention(torch.stack([w.V, 2 * w.V]), w.B, 1.0), ms.Ensemble(several), 0.2)
        layer = ms.MultiHead([ms.SelfAttention(w, 1.0)], residual=True)
        ms.solve(Apart(layer, 2), several.view(18, d), t=2.0, step=1.0, method="euler")
        for target in (Target.resting(d, 2), Target.oscillating(d, 2)):
            moving = OrnsteinUhlenbeck(target, 0.2, 4)
            for mobility in ("head", "harmonic"):
                down = HeadDescent(moving.refined(2), mobility)
                path = ms.solve(down, rho, 0.2, times=9, method="euler", step=0.025)
                observe.energy_balance(path, down, "stratonovich")
                observe.weight_gradient(rho, down, observe.head_dissipation(rho, down))
            target.response(moving.times)
        ms.solve(ms.SelfAttention(ms.Schedule.oscillating(d, 0.2, steps=2)[0], 1.0), rho, 0.2)
        for observed in (
            observe.order_parameter, observe.effective_rank, observe.cluster_count, observe.overlap_histogram,
        ):  # fmt: skip
            observed(path.end)
        observe.attention_entropy(rho, factored, 2.0)
        observe.interaction_energy(rho, w, 2.0)
        observe.distance_to_subspace(rho, torch.eye(d)[:, :1])
        ms.sphere.exp(nodes, ms.sphere.log(nodes, nodes.roll(1, 0)))
        ms.sphere.von_mises_fisher(5, torch.ones(d), 3.0)
        ms.spectral.dominant(w.M)
    ms.Simulation(tokens={"n": 5}).build()


def attention() -> None:
    """Every kernel of the CPU that can, and the choices of `attend`."""
    import torch

    import metastable as ms
    from metastable.attention import KERNELS, Operands, attend_batch, hardmax
    from metastable.attention.adjoint import attention_adjoint
    from metastable.attention.backwards import Backwards

    for d in (2, 3, 12):
        x = ms.sphere.uniform(40, d, seed=1)
        for values in (x, ms.sphere.uniform(40, 5, seed=2)):
            operands = Operands(x, x, values, torch.full((40,), 1 / 40, dtype=torch.float64), 3.0)
            for kernel in KERNELS.values():
                if kernel.can(operands, 1e-6):
                    kernel(operands, 1e-6)
        ms.attend(x.float(), x.float(), beta=3.0, rtol=1e-9)
        hardmax(x, x, x, torch.ones(40, dtype=torch.float64))
        attend_batch(x[None], x[None])
    for d, rtol in ((2, 1e-9), (3, 1e-5)):
        x = ms.sphere.uniform(21_000 if d == 3 else 4000, d, seed=3)
        ms.attend(x[:400], x, beta=5.0, rtol=rtol)
        found = ms.attend(x, x, beta=5.0, rtol=rtol)
        log_mass, shift = torch.full((2, len(x)), -math.log(len(x)), dtype=torch.float64)
        given = Backwards(5.0 * x, x, log_mass, found.log_partition, x.flip(0), shift, found.mean)
        attention_adjoint(given, rtol=1e-7)


def transport() -> None:
    """Every method and both metrics."""
    import numpy as np

    import metastable as ms
    from metastable.transport import bounds, distance_to_subsphere

    for d in (2, 3):
        a, b = (
            ms.sphere.uniform(30, d, seed=1),
            ms.Measure(ms.sphere.uniform(40, d, seed=2), np.arange(1.0, 41.0) / 820),
        )
        for metric in ("chordal", "geodesic"):
            for method in ("auto", "exact", "sinkhorn", "sliced", *(["circle"] if d == 2 else [])):
                ms.wasserstein(a, b, metric=metric, method=method)
            ms.wasserstein(a, np.eye(d), metric=metric)
            bounds(a, b, metric=metric)
            distance_to_subsphere(a, np.eye(d)[:, :1], metric)
    line = [ms.Measure(np.arange(float(n))[:, None], sphere=False) for n in (3, 20)]
    ms.wasserstein(*line)


def meanfield() -> None:
    """Nodes on the circle and on S^2, the density, and distances to the limit."""
    import numpy as np
    import torch

    import metastable as ms
    from metastable.meanfield.density import evolve_density

    w = ms.AttentionWeights(V=np.diag([2.0, 1.0]), B=np.eye(2))
    path = ms.meanfield.solve(w, 4.0, lambda x: 1 + 0.5 * x[:, 0], 0.5, tol=1e-4)
    ms.meanfield.distance_to_limit(path)
    evolve_density(ms.SelfAttention(w, 4.0), lambda x: torch.ones(len(x), dtype=torch.float64), [0.2])
    w = ms.AttentionWeights(V=np.diag([2.0, 1.0, 1.0]), B=np.eye(3))
    ms.meanfield.solve(w, 4.0, lambda x: 1 + 0.5 * x[:, 0], 0.2, tol=1e-2)


def theory() -> None:
    """Spectrum, limit, exact solutions, bounds and the forecast."""
    import numpy as np

    import metastable as ms
    from metastable import theory

    for V, B in (
        (np.diag([2.0, 1.0]), np.array([[1.0, 0.5], [0.0, 1.0]])),
        (np.diag([2.0, 2.0, 1.0]), np.eye(3)),
        (np.array([[1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.5]]), np.eye(3)),
    ):
        w = ms.AttentionWeights(V=V, B=B)
        rho = ms.Measure(ms.sphere.uniform(40, len(V), seed=0))
        spectrum = theory.spectrum(w)
        theory.zero_temperature(w, rho.points, [0.5, 1.0])
        forecast = theory.forecast(w, 20.0, rho)
        forecast.table()
        if spectrum.kind in ("point pair", "subsphere"):
            theory.limit(w, rho)
            theory.distance_to_limit(w, rho, [0.5, 1.0])
            forecast.to_dict(np.linspace(0.0, 1.0, 4))
            forecast.bound(ms.solve(ms.SelfAttention(w, 20.0), rho, 0.5, times=3))
        theory.growth_constant(w)
    motion = theory.TwoPointMotion("gelu", 4, attention=1.0)
    assert motion.drift(0.3) > 0 and motion.variance([0.1, 0.2]).shape == (2,) and motion.coercivity
    assert theory.largest_dimension("erf") == 11


def drawing() -> None:
    """Every figure in every renderer, and the tokens of a path."""
    import tempfile

    import numpy as np

    import metastable as ms
    from metastable.drawing import draw, interactive, snapshots
    from sample_figures import figures

    with tempfile.TemporaryDirectory() as folder:
        for name, figure in figures().items():
            draw(figure, Path(folder) / f"{name}.png")
            interactive(figure)
        for d in (2, 3):
            w = ms.AttentionWeights(V=np.eye(d), B=np.eye(d))
            path = ms.solve(ms.SelfAttention(w, 1.0), ms.sphere.uniform(8, d, seed=0), 0.2, times=3)
            snapshots(path, Path(folder) / f"tokens-{d}.png", title="tokens")


def papers() -> None:
    """A cheap claim or two of every paper, their verdicts and their pages."""
    import tempfile

    import metastable as ms
    from metastable.papers import write_report

    with tempfile.TemporaryDirectory() as folder:
        claims = ["zero-temperature-closed-forms", "oblique-projector", "long-context", "antipodal-tilting"]
        claims += ["mixed-equilibria", "super-additive-rates", "weights-law", "double-well", "attention-exponent"]
        verdicts = ms.verify("all", quick=True, out=folder, claims=claims, jobs=1)
        write_report(verdicts, folder, paper="all", quick=True, seed=0)


def encoders() -> None:
    """Small random encoders, their layers as flows, the audit and its page."""
    import torch

    import metastable as ms
    from tiny_encoders import configs, items_for, random_model

    for family in ("bert", "mpnet", "modernbert", "vit"):
        encoder = ms.encoders.load(random_model(configs()[family]), name=family)
        layer = encoder.layers[0]
        start = torch.randn(6, layer.d, dtype=torch.float64)
        ms.solve(layer.flow(), start, t=3.0, step=1.0, method="euler")
        report = ms.audit(encoder, 3 * items_for(encoder), loop_steps=20)
        report.to_dict()
        report.to_html()


def monitor() -> None:
    """A small monitor: calibrated, asked in every way, attached, stored, served."""
    import tempfile
    from pathlib import Path

    import metastable as ms
    from metastable.monitor.service import Service, application
    from metastable.monitor.service.journal import Journal
    from metastable.monitor.service.schemas import openapi
    from tiny_encoders import configs, random_model
    from walks import walks

    for family in ("bert", "esm"):
        encoder = ms.encoders.load(random_model(configs()[family]), name=family)
        made = ms.Monitor.calibrate(encoder, walks(100, 0), documents=[i // 2 for i in range(100)], tokens=16)
        texts = [*walks(4, 1), [7] * 20]
        made.measure(texts)
        made.drift(made.score(texts))
        ms.monitor.report(made, texts).to_html()
        with made.attach(encoder.model) as attached:
            encoder.hidden_states(texts)
        assert attached.texts == 5 and not attached.failed, attached.problem
    folder = Path(tempfile.mkdtemp())
    read = ms.Monitor.load(made.save(folder / "calibration.npz"), encoder)
    service = Service(read, journal=Journal(folder / "log.jsonl"))
    service.embed(texts)
    application(service)
    openapi()


USES = {
    engine: ("sphere", "measure", "weights", "readers", "spectral", "flows", "solve", "observe"),
    attention: ("attention",),
    transport: ("transport",),
    meanfield: ("meanfield",),
    theory: ("theory",),
    drawing: ("drawing",),
    papers: ("papers",),
    encoders: ("encoders", "audit"),
    monitor: ("monitor",),
}
"""A use, and the rooms that are checked through it."""


def main(name: str) -> None:
    """Run one use under the check."""
    from jaxtyping import TypeCheckError, install_import_hook

    use, rooms = next((use, rooms) for use, rooms in USES.items() if use.__name__ == name)
    modules = [module for room in rooms for module in checkable(room)]
    with install_import_hook(modules, "shape_checker.checked"):
        use()
        import metastable as ms

    if "sphere" in rooms:
        try:
            ms.sphere.angles(ms.sphere.uniform(3, 3))
        except TypeCheckError:
            pass
        else:
            raise AssertionError("a wrong shape was not noticed")
    import shape_checker

    print(f"checked {len(shape_checker.seen & set(modules))} of {len(modules)} modules")


if __name__ == "__main__":
    main(sys.argv[1])

"""`MeanFieldPath`: a `Path` of weighted nodes that knows its error."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from metastable.meanfield.law import Law
from metastable.measure import Measure
from metastable.solve import Path
from metastable.weights import AttentionWeights, Schedule


@dataclass(frozen=True, eq=False, repr=False)
class MeanFieldPath(Path):
    """Weighted nodes of rho_t, a quadrature of it: sum_j m_j g(x_j(t)) = E_{rho_t} g.

    errors (m,): the change of the flow map Phi_t under the last refinement, root mean square over rho_0, at the
    saved times; the coupling by common starting points makes it an estimate of W2(computed Phi_t # rho_0, rho_t).
    It is the error of what is integrated over the nodes. It is NOT the distance of the nodes, taken as atoms, from
    rho_t: that one cannot fall below their spacing. error: its maximum. Both, and `converged`, also stand in
    `provenance["meanfield"]`, so a stored path keeps them.
    """

    error: float = math.nan
    converged: bool = False
    errors: Float[Tensor, "m"] | None = None
    start: Measure | None = None
    """The nodes at time 0."""
    law: Law | None = field(default=None)
    weights: AttentionWeights | Schedule | None = field(default=None)

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        return f"MeanField{super().__repr__()[:-1]}, flow map to {self.error:.2g}, {state})"

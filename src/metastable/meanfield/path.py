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

    errors (m,): estimate of W2(computed rho_t, rho_t) at the saved times, the change of the flow map under the last
    refinement (root mean square over rho_0: the coupling by common starting points bounds W2). error: its maximum.
    Both, and `converged`, also stand in `provenance["meanfield"]`, so a stored path keeps them.
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
        return f"MeanField{super().__repr__()[:-1]}, W2 error {self.error:.2g}, {state})"

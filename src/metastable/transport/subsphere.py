"""Distance of a measure to a subsphere E ∩ S: the nearest-point formula."""

from __future__ import annotations

from typing import Any

import numpy as np

from metastable.errors import InvalidInput
from metastable.measure import as_measure, as_tensor
from metastable.transport.distance import Distance
from metastable.transport.ground import check_metric


def distance_to_subsphere(rho: Any, basis: Any, metric: str = "chordal", p: float = 2) -> Distance:
    """W_p(rho, Pi#rho) for the nearest-point map Pi(x) = P_E x/|P_E x| onto E ∩ S; chordal, p = 2:

        W_2^2 = E[ 2 (1 - |P_E x|) ]     (Z5),     geodesic:  W_2^2 = E[ angle(x, E)^2 ].

    basis: (d, k), columns that span E (they need not be orthonormal), or one vector (d,). Every coupling of rho
    with a law on E ∩ S moves x at least to its nearest point, so this is exact for Pi#rho and a lower bound of
    W_p(rho, nu) for EVERY nu on E ∩ S (E3). Tokens in the orthogonal complement of E are equally far from all
    of E ∩ S.

    >>> import numpy as np
    >>> distance_to_subsphere([[0.6, 0.8], [1.0, 0.0]], [1.0, 0.0])
    0.6325 (exact, subsphere, chordal W2)
    """
    p = check_metric(metric, p)
    measure = as_measure(rho)
    if not measure.sphere:
        raise InvalidInput("the distance to a subsphere needs tokens on the sphere, got Euclidean tokens")
    points, mass = (np.asarray(array, dtype=np.float64) for array in measure.numpy())
    span = orthonormal(basis, measure.d)
    inside = points @ span
    along = np.linalg.norm(inside, axis=1)
    off = np.linalg.norm(points - inside @ span.T, axis=1)
    # 1 - z = r^2/(1 + z) with r = |x - P_E x| keeps the digits of tokens that are nearly on E.
    away = off * np.sqrt(2 / (1 + along)) if metric == "chordal" else np.arctan2(off, along)
    value = float(mass @ away**p) ** (1 / p)
    return Distance(value, method="subsphere", exact=True, metric=metric, p=p)


def orthonormal(basis: Any, d: int) -> np.ndarray:
    """Orthonormal columns (d, k) with the span of the columns of `basis`."""
    columns = as_tensor(basis, "basis").cpu().numpy()
    columns = columns[:, None] if columns.ndim == 1 else columns
    if columns.ndim != 2 or columns.shape[0] != d or not 1 <= columns.shape[1] <= d:
        raise InvalidInput(f"basis must have shape ({d}, k) with 1 <= k <= {d}, got shape {tuple(columns.shape)}")
    if not np.isfinite(columns).all():
        raise InvalidInput("basis must be finite, got a NaN or infinity")
    left, singular, _ = np.linalg.svd(columns, full_matrices=False)
    if singular[-1] <= 1e-12 * singular[0] or singular[0] == 0:
        raise InvalidInput(
            f"basis must have independent columns, got singular values from {singular[0]:.3g} to {singular[-1]:.3g}"
        )
    return left

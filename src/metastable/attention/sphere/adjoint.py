"""The transpose of the derivative of attention on S^2 by the grid of `sphere.grid`, there and back: O(n).

In the letters of `direct.adjoint`, for masses that sum up to one and a_i = e^{h_i}/Z_i,

    by_query_i = a_i sum_j m_j e^{<q_i, y_j> - h_i} y_j y_j^T g_i - s_i E_i[y],
    by_key_j = m_j grad H(y_j),   H(y) = sum_i a_i (<g_i, y> - s_i) e^{<q_i, y> - h_i}.

The second moments are interpolated as the means are, from sums at the nodes of the queries over those of the keys.
H goes the other way, by the transpose of every map: queries send (a g, a s) to their grid, the nodes of the queries
to those of the keys, which differentiate H along the sphere (`transforms.slopes`), and keys interpolate its
gradient: of by_key there is the part along the sphere, which is all that tokens on it can feel. Nodes that are no
rings of one sphere meet once for both. The kernel e^{<q, y> - h} errs by at most eps either way, known before any
token is seen; a row errs by a_i eps. Rows for which that is too much are taken over all keys, and where many are,
all pairs are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy import fft
from torch import Tensor

from metastable.attention.backwards import Backwards
from metastable.attention.direct import adjoint_cost, adjoint_over_pairs
from metastable.attention.operands import Operands, TokensOfStep
from metastable.attention.sphere.gridding import columns_of, interpolator, rows_of
from metastable.attention.sphere.layout import lines_of, meet, sum_of_sizes, targets_of
from metastable.attention.sphere.nodes import ring_nodes
from metastable.attention.sphere.plan import Plan, Surface, plan, planned, surface
from metastable.attention.sphere.transforms import Placed, fine_field, node_weights, placed, slopes, spectra
from metastable.threads import over_rows


class Laid(NamedTuple):
    """Grids for the way there and back, and the rows that they hold."""

    where: Surface
    grids: Plan
    mass: np.ndarray
    """(n,): sum up to one."""
    weight: np.ndarray
    """(n,): e^{h_i}/Z_i."""
    held: np.ndarray
    """(n,): whether a row errs by rtol at most."""


def lay_out(given: Backwards, rtol: float, step: TokensOfStep | None = None) -> Laid | None:
    """The grids for errors below rtol; None where queries lie on no ellipsoid, or on one that is too large.

    step: of which these are the tokens at a stage; its first one is planned for all.
    """
    top = float(given.log_mass.max())
    mass = torch.exp(given.log_mass - top)
    if step is None:
        operands = Operands.checked_before(given.queries, given.keys, given.keys, mass, 1.0)
    else:
        operands = step.operands(given.queries, given.keys, mass)
    where, grids = operands.once(surface), planned(operands, rtol, True).once(plan, rtol, True)
    if where is None or grids is None:
        return None
    share, log_total = (mass / mass.sum()).numpy(), top + math.log(float(mass.sum()))
    squares = np.einsum("ic,ic->i", given.queries.numpy(), given.queries.numpy())
    depths = np.sqrt(squares + grids.soft**2) - given.log_partition.numpy() + log_total
    # Scores at nodes are rounded, beside what is summed of them; transforms beside the whole.
    rounding = np.finfo(np.float64).eps * (64.0 + (32.0 + 8.0 * where.longest) * math.exp(-float(depths.min())))
    error = grids.error + grids.interpolated + 1.1 * grids.pruned + rounding
    with np.errstate(over="ignore"):
        held = error * np.exp(depths) + 4.0 * where.miss * (1.0 + depths) <= rtol
    return Laid(where, grids, share, np.exp(np.where(held, depths, -np.inf)), held)


def laid_cost(laid: Laid) -> float:
    """Rough nanoseconds of one core: tokens, nodes, the layout of an ellipsoid, and rows over all keys."""
    n, where = len(laid.held), laid.where
    alone = (1.0 - float(laid.held.mean())) * adjoint_cost(n, 3)
    return 800.0 * n + 6.0 * laid.grids.nanoseconds + (5e6 if where.ellipsoid else 0.0) + alone


def sphere_adjoint(given: Backwards, laid: Laid) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "n 3"]]:
    """(by_query, by_key along the sphere) for keys of unit length."""
    where, grids = laid.where, laid.grids
    kept, n = grids.window, len(laid.mass)
    keys = placed(given.keys.numpy(), kept.fine, where.turn)
    queries = _placed_queries(given, keys, where, grids)
    sent = laid.weight[:, None] * torch.column_stack((given.cotangent, given.shift)).numpy()
    size = float(np.sqrt(np.square(sent).sum(axis=1)).sum()) or 1.0
    sent /= size
    if queries is keys:
        of_mass, *of_sent = spectra(keys, np.column_stack((laid.mass, sent)), kept, grids.coarse_keys)
    else:
        of_mass = spectra(keys, laid.mass[:, None], kept, grids.coarse_keys)[0]
        of_sent = spectra(queries, sent, kept, grids.coarse_queries)
    moments, gradient = _between(where, grids, of_mass, of_sent)
    second = np.empty((n, 5))
    for columns in (slice(0, 3), slice(3, 5)):
        second[:, columns] = _interpolated(queries, _fields(moments[..., columns], grids), grids)
    by_query = _applied(second * laid.weight[:, None], given)
    by_key = _interpolated(keys, gradient, grids)
    by_key *= (laid.mass * size)[:, None]
    found = torch.from_numpy(by_query), torch.from_numpy(by_key)
    return found if laid.held.all() else _with_others(found, given, torch.from_numpy(~laid.held))


def _placed_queries(given: Backwards, keys: Placed, where: Surface, grids: Plan) -> Placed:
    """The queries on their grid: where the keys are if they are a multiple of them."""
    points = given.queries.numpy()
    if where.ellipsoid is not None:
        return placed(points, grids.window.fine, where.ellipsoid.chart(grids.stretch))
    if np.abs(points - where.longest * given.keys.numpy()).max() <= 4.0 * where.longest * np.finfo(np.float64).eps:
        return keys
    return placed(points, grids.window.fine)


def _squares(nodes: np.ndarray) -> np.ndarray:
    """(rings, 5, N): xx, yy, xy, xz, yz of nodes (rings, 3, N)."""
    x, y, z = nodes[:, 0], nodes[:, 1], nodes[:, 2]
    return np.stack((x * x, y * y, x * y, x * z, y * z), axis=1)


def _between(
    where: Surface, grids: Plan, of_mass: np.ndarray, of_sent: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(rings, N/2 + 1, 5) second moments at the nodes, transformed along rings; fields of the gradient of H."""
    kept = grids.window
    mass = node_weights(of_mass, kept, grids.coarse_keys)[:, None]
    sent = np.stack([node_weights(part, kept, grids.coarse_queries) for part in of_sent], axis=1)
    nodes = where.turned_back(ring_nodes(len(mass)))
    weight = max(sum_of_sizes(mass), sum_of_sizes(sent))
    lines = lines_of(targets_of(where, grids), weight, grids)
    moments, heard = meet(lines, mass * _squares(nodes), sent, weight, grids)
    slope = where.turned_back(slopes((heard[:, :3] * nodes).sum(axis=1) - heard[:, 3]))
    return moments, _fields(fft.rfft(slope).transpose(0, 2, 1), grids)


def _fields(along: np.ndarray, grids: Plan) -> np.ndarray:
    """(rows, c, columns): fields on the padded fine grid from transforms along rings."""
    kept = grids.window
    out = np.empty((rows_of(kept.fine, kept.width), along.shape[2], columns_of(kept.fine, kept.width)))
    for column in range(along.shape[2]):
        fine_field(along[:, :-1, column], kept, out[:, column])
    return out


def _interpolated(tokens: Placed, fields: np.ndarray, grids: Plan) -> np.ndarray:
    """(n, c): the fields at the tokens."""
    kept, n, count = grids.window, len(tokens.order), fields.shape[1]
    out, unused = np.empty((n, count)), np.empty(0)
    interpolate = interpolator(kept.width, len(kept.table) - 1, count, False)

    def work(first: int, last: int) -> None:
        interpolate(tokens.theta, tokens.phi, tokens.order, first, last, kept.table, fields, out, unused)

    over_rows(work, n, cost=150.0 * n)
    return out


def _applied(second: np.ndarray, given: Backwards) -> np.ndarray:
    """E[y y^T] g - s E[y] from the second moments xx, yy, xy, xz, yz, of keys of unit length."""
    xx, yy, xy, xz, yz = second.T
    x, y, z = given.cotangent.numpy().T
    found = -given.shift.numpy()[:, None] * given.mean.numpy()
    found[:, 0] += xx * x + xy * y + xz * z
    found[:, 1] += xy * x + yy * y + yz * z
    found[:, 2] += xz * x + yz * y + (1.0 - xx - yy) * z
    return found


def _with_others(found: tuple[Tensor, Tensor], given: Backwards, rows: Tensor) -> tuple[Tensor, Tensor]:
    """What was found, with those rows over all keys."""
    by_query, by_key = found
    some = given._replace(
        queries=given.queries[rows],
        log_partition=given.log_partition[rows],
        cotangent=given.cotangent[rows],
        shift=given.shift[rows],
        mean=given.mean[rows],
    )
    by_query[rows], others = adjoint_over_pairs(some)
    return by_query, by_key + others

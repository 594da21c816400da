"""Exact transport of n tokens to k atoms: shortest augmenting paths on the k atoms.

Primal: min sum_ij c_ij pi_ij with row sums a_i and column sums b_j. Dual: max over w of sum_i a_i min_j (c_ij -
w_j) + sum_j b_j w_j, concave in the k numbers w. Given any w, the plan that sends every token to its argmin is
optimal for the column sums it happens to have. What is left is a flow of surplus between atoms: moving token i
from p to q costs c_iq - c_ip, so the graph has only k nodes, and its arc p -> q costs the smallest such number
over the tokens that have mass at p (a heap). Mass is sent along shortest paths until every column sum is right;
the shortest distances update w, so the plan stays optimal throughout and ties split a token as they must. A
good first w (the same problem on a sample of the tokens) leaves only a fraction n^{-1/2} to be moved.

The result is certified: the caller gets the primal and the dual value, computed from scratch.
"""

from __future__ import annotations

import heapq
import math

import numba
import numpy as np
from jaxtyping import Float

from metastable.transport.simplex import certified, network_simplex

SAMPLE = 2048
"""Tokens of the first sample; its weights start a sample eight times as large, and so on up to all tokens."""
SURPLUS_TOLERANCE = 1e-14
"""Mass that an atom may have too much or too little: the rounding of sums of masses that total one."""
HOP = 1e-14
"""What every arc costs in addition, relative to the largest cost. One token that moves p -> r -> q costs as much as
p -> q to rounding, but no more than the mass of r passes; so among paths that are equal to rounding, which is a few
1e-16 per atom on the way, the one with the fewest arcs is taken. The gap of the certificate grows by no more."""
LEAST_MASS = 4e-16
"""Two units of rounding of the total mass: less is no mass of its own and moves with the rest of its token."""


def semidiscrete_cost(
    cost: Float[np.ndarray, "n k"], a: Float[np.ndarray, "n"], b: Float[np.ndarray, "k"]
) -> tuple[float, Float[np.ndarray, "k"]]:
    """(optimal cost, optimal dual weights w of the atoms); the network simplex where primal and dual do not meet.

    >>> value, _ = semidiscrete_cost(np.array([[0.0, 1.0], [0.0, 3.0]]), np.array([0.5, 0.5]), np.array([0.5, 0.5]))
    >>> value
    0.5
    """
    hop = HOP * float(cost.max())
    weights = _first_weights(cost, a, b, hop)
    primal, dual, unplaced = _augment(cost, a, b, weights, hop)
    if not certified(primal + unplaced * float(cost.max()), dual, cost):
        return network_simplex(cost, a, b)
    return primal, weights


def _first_weights(cost: np.ndarray, a: np.ndarray, b: np.ndarray, hop: float) -> np.ndarray:
    """Dual weights of the problem on samples that grow by a factor 32, each the start of the next."""
    weights = np.zeros(len(b))
    generator = np.random.default_rng(0)
    size = SAMPLE
    while size * 8 < len(a):
        chosen = generator.integers(0, len(a), size)
        _augment(cost[chosen], a[chosen] / a[chosen].sum(), b, weights, hop)
        size *= 32
    return weights


@numba.njit(cache=True, nogil=True)
def _augment(
    cost: np.ndarray, a: np.ndarray, b: np.ndarray, weights: np.ndarray, hop: float
) -> tuple[float, float, float]:
    """Solve from the start `weights`, which become optimal in place; (primal, dual, mass at the wrong atom)."""
    n, k = cost.shape
    plan = np.zeros((n, k))
    surplus = -b
    lost = np.zeros(k)
    heaps = [[(0.0, 0) for _ in range(0)] for _ in range(k * k)]
    for i in range(n):
        p = 0
        for q in range(1, k):
            if cost[i, q] - weights[q] < cost[i, p] - weights[p]:
                p = q
        plan[i, p] = a[i]
        # Compensated: a million equal masses, summed naively, drift by 1e-11.
        term = a[i] - lost[p]
        total = surplus[p] + term
        lost[p] = (total - surplus[p]) - term
        surplus[p] = total
        if a[i] > LEAST_MASS:
            for q in range(k):
                if q != p:
                    heaps[p * k + q].append((cost[i, q] - cost[i, p], i))
    for heap in heaps:
        heapq.heapify(heap)

    length = np.empty((k, k))
    distance = np.empty(k)
    parent = np.empty(k, np.int64)
    done = np.empty(k, np.bool_)
    for p in range(k):
        for q in range(k):
            heap = heaps[p * k + q]
            length[p, q] = heap[0][0] if len(heap) > 0 else math.inf

    for _ in range(10 * n * k + 1000):  # far above what is needed; the certificate tells if it ever binds
        if surplus.max() <= SURPLUS_TOLERANCE or -surplus.min() <= SURPLUS_TOLERANCE:
            break
        for p in range(k):
            distance[p] = 0.0 if surplus[p] > SURPLUS_TOLERANCE else math.inf
            parent[p] = -1
            done[p] = False
        end = -1
        while True:  # Dijkstra on the k atoms, reduced lengths are >= 0
            p = -1
            for q in range(k):
                if not done[q] and (p < 0 or distance[q] < distance[p]):
                    p = q
            if p < 0 or distance[p] == math.inf:
                break
            done[p] = True
            if surplus[p] < -SURPLUS_TOLERANCE:
                end = p
                break
            for q in range(k):
                if not done[q]:
                    reach = distance[p] + max(0.0, length[p, q] + hop + weights[p] - weights[q])
                    if reach < distance[q]:
                        distance[q] = reach
                        parent[q] = p
        if end < 0:
            break
        for p in range(k):
            weights[p] += min(distance[p], distance[end])

        amount = -surplus[end]
        q = end
        while parent[q] >= 0:
            p = parent[q]
            amount = min(amount, plan[heaps[p * k + q][0][1], p])
            q = p
        amount = min(amount, surplus[q])
        surplus[q] -= amount
        surplus[end] += amount
        q = end
        while parent[q] >= 0:
            p = parent[q]
            i = heaps[p * k + q][0][1]
            if plan[i, q] == 0.0:
                for r in range(k):
                    if r != q:
                        heapq.heappush(heaps[q * k + r], (cost[i, r] - cost[i, q], i))
            # A remainder below the rounding of the surplus goes along: moving it alone would make no progress.
            moved = plan[i, p] if plan[i, p] - amount <= LEAST_MASS else amount
            plan[i, p] -= moved
            plan[i, q] += moved
            q = p
        q = end
        while q >= 0:  # every atom on the path has gained or lost tokens: refresh the arcs that leave it
            for r in range(k):
                if r != q:
                    heap = heaps[q * k + r]
                    while len(heap) > 0 and plan[heap[0][1], q] <= 0.0:
                        heapq.heappop(heap)
                    length[q, r] = heap[0][0] if len(heap) > 0 else math.inf
            q = parent[q]

    primal = np.zeros(n)
    dual = np.zeros(n)
    for i in range(n):
        least = math.inf
        for p in range(k):
            primal[i] += plan[i, p] * cost[i, p]
            least = min(least, cost[i, p] - weights[p])
        dual[i] = a[i] * least
    return _pairwise_sum(primal), _pairwise_sum(dual) + np.sum(b * weights), np.maximum(surplus, 0.0).sum()


@numba.njit(cache=True)
def _pairwise_sum(terms: np.ndarray) -> float:
    """Sum in blocks of 1024, so that the rounding error does not grow with n (destroys `terms`)."""
    blocks = (len(terms) + 1023) // 1024
    for block in range(blocks):
        terms[block] = terms[1024 * block : 1024 * (block + 1)].sum()
    return terms[:blocks].sum()

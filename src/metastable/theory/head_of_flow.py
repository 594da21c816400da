"""`head_of`: the one head that a flow consists of, for the theory of one head; a sentence where it is not one."""

from __future__ import annotations

from typing import Any

from metastable.arguments import shown
from metastable.errors import InvalidInput, NotDefined
from metastable.flows import MultiHead, SelfAttention
from metastable.flows.flow import Flow
from metastable.weights import AttentionWeights


def head_of(given: Any) -> tuple[AttentionWeights, float | None]:
    """The weights of a head, of `SelfAttention`, of `MultiHead` with one head; and the beta, where there is one.

    Several heads, or one with a field (the biases of a trained layer), are no linear flow in disguise at zero
    temperature: x' = P_x sum_h V_h (B_h^T x + g_h)/|B_h^T x + g_h|, and what is known of one head does not hold.

    >>> w = AttentionWeights(V=[[1.0]], B=[[2.0]])
    >>> head_of(MultiHead([SelfAttention(w, 3.0)])) == (w, 3.0)
    True
    """
    if isinstance(given, AttentionWeights):
        return given, None
    if isinstance(given, MultiHead):
        if len(given.heads) > 1:
            raise NotDefined(
                f"{len(given.heads)} heads have no limit map: at zero temperature P sum_h V_h B_h^T x/|B_h^T x| is "
                "no linear flow in disguise; ask for one of them, flow.heads[h].weights"
            )
        return head_of(given.heads[0])
    if isinstance(given, SelfAttention):
        if given.field is not None and bool(given.field.any()):
            raise NotDefined(
                "a head with a field g has no limit map: at zero temperature P V (B^T x + g)/|B^T x + g| is no "
                "linear flow in disguise; ask for the head without its field, flow.weights"
            )
        if not isinstance(given.weights, AttentionWeights) or given.systems is not None:
            raise NotDefined("weights that change in time, or a beta for each system, have no one limit")
        return given.weights, float(given.beta)
    if isinstance(given, Flow):
        raise NotDefined(f"the theory of one head is not about {shown(given)}; give SelfAttention or its weights")
    raise InvalidInput(f"w must be AttentionWeights, or a flow of one head, got {shown(given)}")

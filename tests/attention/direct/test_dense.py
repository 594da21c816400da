"""The dense kernel: softmax by torch itself, and keys of mass zero."""

from __future__ import annotations

import torch

from attention.attention_reference import masses, tokens
from metastable.attention import Operands
from metastable.attention.direct.dense import attend_dense


def test_softmax_and_logsumexp_of_torch():
    x, m = tokens(60, 4, "uniform", 0), masses(60, 1) + 0.1
    mean, log_partition = attend_dense(Operands(x[:20], x, 2 * x, m, 5.0))
    logits = 5.0 * x[:20] @ x.T + m.log()
    torch.testing.assert_close(mean, torch.softmax(logits, dim=1) @ (2 * x), rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(log_partition, torch.logsumexp(logits, dim=1), rtol=1e-13, atol=1e-14)


def test_keys_without_mass_are_not_seen():
    x, m = tokens(40, 3, "uniform", 2), masses(40, 3)
    mean, log_partition = attend_dense(Operands(x, x, x, m, 9.0))
    seen = m > 0
    fewer = attend_dense(Operands(x, x[seen], x[seen], m[seen], 9.0))
    torch.testing.assert_close(mean, fewer[0], rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(log_partition, fewer[1], rtol=1e-13, atol=1e-14)

"""The expensive operation: softmax attention of n_q queries over n_k keys, and the kernels that compute it."""

from metastable.attention.attend import Attended, attend
from metastable.attention.hardmax import hardmax
from metastable.attention.select import APPROXIMATE, KERNELS

__all__ = ["APPROXIMATE", "KERNELS", "Attended", "attend", "hardmax"]

"""The expensive operation: softmax attention of n_q queries over n_k keys, and the kernels that compute it."""

from metastable.attention.attend import attend
from metastable.attention.gpu import attend_batch
from metastable.attention.hardmax import hardmax
from metastable.attention.kernel import Attended, Kernel
from metastable.attention.operands import Operands
from metastable.attention.select import KERNELS

__all__ = ["KERNELS", "Attended", "Kernel", "Operands", "attend", "attend_batch", "hardmax"]

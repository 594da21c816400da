"""The expensive operation: softmax attention of n_q queries over n_k keys, and the kernels that compute it."""

from typing import TYPE_CHECKING

from metastable.attention.attend import attend
from metastable.attention.gpu import attend_batch
from metastable.attention.kernel import Attended, Kernel
from metastable.attention.operands import Operands
from metastable.attention.select import KERNELS

if TYPE_CHECKING:
    from metastable.attention.hardmax import hardmax
else:
    from metastable.attention import hardmax  # the room, which can be called: its modules stay importable

__all__ = ["KERNELS", "Attended", "Kernel", "Operands", "attend", "attend_batch", "hardmax"]

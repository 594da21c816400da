"""Matrix products inside compiled code: dgemm of the BLAS that torch brings along, of SciPy's, or our own.

A compiled loop that holds its blocks in the caches between two products cannot go back to Python for each of them.
numba's own `np.dot` calls SciPy's library, which knows nothing of the threads that torch was given; torch's MKL
does, and is a fifth faster. On processors where neither uses the widest vectors, `wide_product` does.
"""

from __future__ import annotations

import ctypes
import math
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numba import types
from numba.extending import intrinsic

from metastable.attention.direct.processor import WIDE_LIBRARIES
from metastable.attention.direct.wide_product import own_product_address
from metastable.attention.lasting import lasting
from metastable.threads import blas_can_be_held


@cache
def product_address() -> int:
    """Where dgemm begins in this process, with arguments of 32-bit integers as in Fortran."""
    if not WIDE_LIBRARIES:
        return own_product_address()
    if blas_can_be_held():
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        address = ctypes.cast(library.dgemm_, ctypes.c_void_p).value
        assert address is not None
        return address
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__["dgemm"]
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(pointer(capsule, name(capsule)))


MOST_KEPT = 1 << 21
"""Numbers that a thread keeps from call to call, 16 MB: all scores of a thousand tokens, twice."""
LARGE_PAGES = 1 << 19
"""Numbers, 4 MB, from which numpy asks for large pages, of which a thousand fewer are made ready one by one."""
_kept = threading.local()


def room(*shape: int) -> np.ndarray:
    """Memory of float64 for a product that begins at a line of the cache.

    The order in which MKL adds depends on where a matrix begins, and with it the last digit.
    """
    size = math.prod(shape)
    if size < LARGE_PAGES:
        return np.asarray(torch.empty(shape, dtype=torch.float64).numpy())
    raw = np.empty(size + 7)
    start = -raw.ctypes.data // 8 % 8
    return raw[start : start + size].reshape(shape)


def kept_room(size: int) -> np.ndarray:
    """So much memory as `room` gives, the same at every call of a thread unless it is much.

    Whoever asks has done with it before anybody else in this thread asks: to make fresh pages ready costs more
    than to multiply what is in them.
    """
    return kept_place(size)[0][:size]


def kept_place(size: int) -> tuple[np.ndarray, int]:
    """The memory of `kept_room`, or more of it, and its address."""
    if size > MOST_KEPT:
        fresh = room(size)
        return fresh, fresh.ctypes.data
    place: tuple[np.ndarray, int] | None = getattr(_kept, "place", None)
    if place is None or len(place[0]) < size:
        memory = room(size)
        place = _kept.place = memory, memory.ctypes.data
    return place


def _call(
    builder: Any, address: Any, transposed: Any, sizes: tuple[Any, Any, Any], a: Any, lda: Any, b: Any, added: Any,
    c: Any, ldc: Any, turned: bool = False,
) -> None:  # fmt: skip
    """dgemm for A (m, k) whose rows are `lda` apart, B or B^T without gaps, C (m, n) with rows `ldc` apart.

    turned: A^T in place of A.
    """
    from llvmlite import ir  # type: ignore[import-untyped]

    byte, whole, real = ir.IntType(8), ir.IntType(32), ir.DoubleType()
    rows, columns, inner = sizes

    def place(value: Any, kind: Any) -> Any:
        slot = builder.alloca(kind)
        builder.store(value, slot)
        return slot

    def integer(value: Any) -> Any:
        return place(builder.trunc(value, whole), whole)

    def pointer(value: Any) -> Any:
        return builder.inttoptr(value, real.as_pointer())

    # Fortran's columns are our rows: C^T = op(B)^T A^T.
    plain, turn = ir.Constant(byte, ord("N")), ir.Constant(byte, ord("T"))
    arguments = [
        place(builder.select(transposed, turn, plain), byte),
        place(turn if turned else plain, byte),
        integer(columns),
        integer(rows),
        integer(inner),
        place(ir.Constant(real, 1.0), real),
        pointer(b),
        integer(builder.select(transposed, inner, columns)),
        pointer(a),
        integer(lda),
        place(builder.select(added, ir.Constant(real, 1.0), ir.Constant(real, 0.0)), real),
        pointer(c),
        integer(ldc),
    ]
    kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    builder.call(builder.inttoptr(address, kind.as_pointer()), arguments)


def _multiply(
    _context: Any, address: Any, transposed: Any, m: Any, n: Any, k: Any, a: Any, b: Any, c: Any, ldc: Any
) -> Any:
    """C = A B, or A B^T if `transposed`, for compiled code: A (m, k), C (m, n) and B in rows, by their addresses.

    Rows of A and B follow each other in memory, those of C begin `ldc` numbers apart. Nobody checks anything.
    """
    signature = types.void(
        types.int64, types.boolean, *(types.int64,) * 3, types.uintp, types.uintp, types.uintp, types.int64
    )

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        where, turned, rows, columns, inner, first, second, out, stride = args
        never = context.get_constant(types.boolean, False)
        _call(builder, where, turned, (rows, columns, inner), first, inner, second, never, out, stride)
        return context.get_dummy_value()

    return signature, codegen


def _multiply_part(
    _context: Any, address: Any, added: Any, m: Any, n: Any, k: Any, a: Any, lda: Any, b: Any, c: Any
) -> Any:
    """C = A B, or C += A B if `added`, for k columns of A, whose rows begin `lda` numbers apart."""
    signature = types.void(
        types.int64, types.boolean, *(types.int64,) * 3, types.uintp, types.int64, types.uintp, types.uintp
    )

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        where, more, rows, columns, inner, first, stride, second, out = args
        never = context.get_constant(types.boolean, False)
        _call(builder, where, never, (rows, columns, inner), first, stride, second, more, out, columns)
        return context.get_dummy_value()

    return signature, codegen


def _multiply_turned(_context: Any, address: Any, m: Any, n: Any, k: Any, a: Any, lda: Any, b: Any, c: Any) -> Any:
    """C += A^T B for k rows of A, which begin `lda` numbers apart."""
    signature = types.void(types.int64, *(types.int64,) * 3, types.uintp, types.int64, types.uintp, types.uintp)

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        where, rows, columns, inner, first, stride, second, out = args
        never, more = (context.get_constant(types.boolean, flag) for flag in (False, True))
        _call(builder, where, never, (rows, columns, inner), first, stride, second, more, out, columns, True)
        return context.get_dummy_value()

    return signature, codegen


multiply: Any = lasting(intrinsic(_multiply), "multiply")
multiply_part: Any = lasting(intrinsic(_multiply_part), "multiply_part")
multiply_turned: Any = lasting(intrinsic(_multiply_turned), "multiply_turned")

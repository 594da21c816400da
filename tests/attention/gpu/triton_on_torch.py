"""Triton's language on torch tensors: the kernels run as they stand, program after program, without a card.

A block is a tensor, a pointer is a flat tensor with places in it; loads and stores outside a tensor fail. Numbers
that a launch passes arrive in 32 bits, as on the card. Inline assembly is known by its instruction; products of
tensor cores are formed from the places that the PTX manual gives to the registers of the 32 lanes of a warp.
"""

from __future__ import annotations

import builtins
import importlib
import itertools
import operator
import pkgutil
from types import SimpleNamespace

import torch

import metastable.attention.gpu


class Type:
    """A type of Triton's language; its own value, as constants of the language are."""

    def __init__(self, torch_type):
        self.torch, self.value = torch_type, self

    def __eq__(self, other):
        return isinstance(other, Type) and self.torch == other.torch

    def __hash__(self):
        return hash(self.torch)


class Block:
    """A tensor with Triton's rules: Python numbers take its type, and a scalar counts as much as a block."""

    def __init__(self, data):
        self.data = data

    dtype = property(lambda self: Type(self.data.dtype))
    shape = property(lambda self: tuple(self.data.shape))
    T = property(lambda self: Block(self.data.T))

    def to(self, kind, bitcast=False):
        return Block(self.data.contiguous().view(kind.torch) if bitcast else self.data.to(kind.torch))

    def __getitem__(self, places):
        return Block(self.data[places])

    def __int__(self):
        return int(self.data)

    def __bool__(self):
        return bool(self.data)

    def __neg__(self):
        return Block(-self.data)


def tensors(a, b):
    """Two tensors of the type that Triton promotes to."""
    a, b = (x.data if isinstance(x, Block) else x for x in (a, b))
    if not isinstance(a, torch.Tensor):
        a, b = tensors(b, a)[::-1]
    elif not isinstance(b, torch.Tensor):
        kind = torch.float32 if isinstance(b, float) and not a.is_floating_point() else a.dtype
        a, b = a.to(kind), torch.tensor(b, dtype=torch.int32 if kind == torch.bool else kind)
    kind = torch.promote_types(a.dtype, b.dtype)
    return a.to(kind), b.to(kind)


def binary(function):
    return lambda a, b: NotImplemented if isinstance(b, Pointer) else Block(function(*tensors(a, b)))


def swapped(function):
    return lambda a, b: binary(function)(b, a)


for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "lshift", "lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Block, f"__{name}__", binary(getattr(operator, name)))
for name in ("add", "sub", "mul", "truediv"):
    setattr(Block, f"__r{name}__", swapped(getattr(operator, name)))
Block.__and__, Block.__or__ = binary(operator.and_), binary(operator.or_)
Block.__hash__ = None


class Pointer:
    """Places in a contiguous tensor."""

    def __init__(self, flat, places):
        self.flat, self.places = flat, places
        self.dtype = SimpleNamespace(element_ty=Type(flat.dtype))

    def __add__(self, offset):
        return Pointer(self.flat, self.places + (offset.data.long() if isinstance(offset, Block) else offset))

    def seen(self, mask):
        places = torch.as_tensor(self.places)
        mask = torch.tensor(True) if mask is None else mask.data if isinstance(mask, Block) else torch.tensor(mask)
        places, mask = torch.broadcast_tensors(places, mask)
        inside = (places >= 0) & (places < len(self.flat))
        assert bool((inside | ~mask).all()), "a kernel reads or writes outside a tensor"
        return places, mask


def load(pointer, mask=None, other=0.0):
    places, mask = pointer.seen(mask)
    there = pointer.flat[torch.where(mask, places, 0)]
    return Block(torch.where(mask, there, torch.tensor(other, dtype=there.dtype)))


def store(pointer, value, mask=None):
    places, mask = pointer.seen(mask)
    value = value.data if isinstance(value, Block) else torch.tensor(value)
    places, mask, value = torch.broadcast_tensors(places, mask, value)
    pointer.flat[places[mask]] = value[mask].to(pointer.flat.dtype)


def atomic(function):
    def update(pointer, value):
        old = load(pointer)
        store(pointer, function(old, value))
        return old

    return update


def warps(registers, kind):
    """Registers of all lanes as (warps, 8, 4, registers, numbers): lane 4 g + t of a warp stands at [g, t]."""
    words = torch.stack([r.data for r in registers], dim=-1)[..., None]
    numbers = (words & -8192).view(torch.float32) if kind == "tf32" else words.view(torch.int16).view(torch.float16)
    return numbers.reshape(-1, 8, 4, len(registers), numbers.shape[-1]).double()


def multiply(assembly, registers):
    """D = A B + C for m16n8k16 in float16 and m16n8k8 in TF32, by the tables of fragments of the PTX manual."""
    if "m16n8k16" in assembly:
        a, b = warps(registers[:4], "f16"), warps(registers[4:6], "f16")
        # a: [w, g, t, 2 half + side, e] is row g + 8 side, column 8 half + 2 t + e; b likewise, by columns g.
        left = a.reshape(-1, 8, 4, 2, 2, 2).permute(0, 4, 1, 3, 2, 5).reshape(-1, 16, 16)
        right = b.permute(0, 3, 2, 4, 1).reshape(-1, 16, 8)
    else:
        a, b = warps(registers[:4], "tf32"), warps(registers[4:6], "tf32")
        left = a.reshape(-1, 8, 4, 2, 2).permute(0, 4, 1, 3, 2).reshape(-1, 16, 8)
        right = b.permute(0, 3, 2, 1, 4).reshape(-1, 8, 8)
    product = (left @ right).reshape(-1, 2, 8, 4, 2).permute(0, 2, 3, 1, 4).reshape(-1, 4)
    if len(registers) == 10:
        product = product + torch.stack([r.data for r in registers[6:]], dim=-1).double()
    return tuple(Block(c) for c in product.float().unbind(-1))


def inline_asm_elementwise(assembly, _constraints, arguments, **_options):
    if "mma.sync" in assembly:
        return multiply(assembly, arguments)
    if assembly.startswith("ld.global.nc.v"):
        return tuple(load(arguments[0] + c) for c in builtins.range(int(assembly[len("ld.global.nc.v")])))
    function = {"ex2.a": torch.exp2, "rcp.a": torch.reciprocal, "lg2.a": torch.log2}[assembly[:5]]
    return Block(function(arguments[0].data))


class Number(int):
    """A loop's number, which kernels may convert."""

    def to(self, kind):
        return Block(torch.tensor(int(self), dtype=kind.torch))


def range_of_numbers(*limits):
    return (Number(i) for i in builtins.range(*(int(x) for x in limits)))


def where(condition, a, b):
    return Block(torch.where(condition.data, *tensors(a, b)))


def unary(function):
    return lambda x: Block(function(x.data))


PROGRAM, GRID = [0, 0], [1, 1]
language = SimpleNamespace(
    **{f"float{bits}": Type(getattr(torch, f"float{bits}")) for bits in (16, 32, 64)},
    **{f"int{bits}": Type(getattr(torch, f"int{bits}")) for bits in (8, 16, 32, 64)},
    **{name: unary(getattr(torch, name)) for name in ("sqrt", "log", "log2", "exp2", "ceil")},
    minimum=binary(torch.minimum),
    maximum=binary(torch.maximum),
    where=where,
    load=load,
    store=store,
    atomic_max=atomic(binary(torch.maximum)),
    atomic_add=atomic(binary(operator.add)),
    arange=lambda start, stop: Block(torch.arange(start, stop, dtype=torch.int32)),
    zeros=lambda shape, kind: Block(torch.zeros(shape, dtype=kind.torch)),
    full=lambda shape, value, kind: Block(torch.full(shape, value, dtype=kind.torch)),
    sum=lambda x, axis: Block(x.data.sum(dim=axis)),
    max=lambda x, axis: Block(x.data.amax(dim=axis)),
    min=lambda x, axis: Block(x.data.amin(dim=axis)),
    dot=lambda a, b, c=0.0: Block(a.data.float() @ b.data.float()) + c,
    program_id=lambda axis: Block(torch.tensor(PROGRAM[axis], dtype=torch.int32)),
    num_programs=lambda axis: Block(torch.tensor(GRID[axis], dtype=torch.int32)),
    static_range=builtins.range,
    inline_asm_elementwise=inline_asm_elementwise,
)


class Launch:
    """A kernel that is launched as on the card, kernel[grid](...), and runs its programs one after the other."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        def run(*arguments, num_warps=4, num_stages=3, **constants):
            given = [argument(x) for x in arguments]
            GRID[:] = (*grid, 1)[:2]
            for second, first in itertools.product(builtins.range(GRID[1]), builtins.range(GRID[0])):
                PROGRAM[:] = first, second
                self.kernel(*given, **constants)

        return run


def argument(x):
    """What a kernel sees of an argument: a pointer, or a number in 32 bits."""
    if isinstance(x, torch.Tensor):
        assert x.is_contiguous()
        return Pointer(x.view(-1), 0)
    return Block(torch.tensor(x, dtype=torch.int32 if isinstance(x, int) else torch.float32))


def wide(function):
    """A matrix product of torch's with `out_dtype`, which only CUDA knows for float16."""

    def product(*matrices, out_dtype=None):
        return function(*(m if out_dtype is None else m.to(out_dtype) for m in matrices))

    return product


def emulate(monkeypatch, processors=2):
    """Until the test ends the kernels of the room run on the CPU, as on a card with a few multiprocessors."""
    for found in pkgutil.iter_modules(metastable.attention.gpu.__path__, "metastable.attention.gpu."):
        module = importlib.import_module(found.name)
        for attribute in list(vars(module)):
            if attribute.endswith("_kernel") and attribute != "cuda_kernel":
                monkeypatch.setattr(module, attribute, Launch(getattr(module, attribute)))
        for attribute, replacement in (("tl", language), ("multiprocessors", lambda _device: processors)):
            if hasattr(module, attribute):
                monkeypatch.setattr(module, attribute, replacement)
        monkeypatch.setattr(module, "range", range_of_numbers, raising=False)
    for name in ("mm", "addmm"):
        monkeypatch.setattr(torch, name, wide(getattr(torch, name)))

"""NVFP4 in the arithmetic of a software stack, as a transform of blocks; what its loops leave is not done at all."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mxnum.dtypes import Array, numpy_dtype, signed_bits, stored_bits
from mxnum.engine.loops.random_bits import NO_DRAW, Draw
from mxnum.engine.machine import float_environment
from mxnum.engine.quantizing.float_scales import Conversion, Loops, greatest, packs_along
from mxnum.engine.quantizing.plan import Kind, Plan
from mxnum.engine.rounding import by_stack
from mxnum.engine.rounding.by_stack import E2M1, Arithmetic, tensor_word
from mxnum.engine.traversal.block_walk import Walk
from mxnum.formats import FLOATS, ElementFormat
from mxnum.layout import Blocks, packed_length, scales_shape

_BYTE = np.dtype(np.uint8)


class _Left(Exception):
    """A loop is not right for some block; what was written is of no use."""


def may_run() -> bool:
    """Whether there are loops, and hardware floats can be trusted."""
    return float_environment.is_default()


def largest(x: Array, threads: int | None) -> Any:
    """The largest magnitude, of the type of x; NaN if there is one."""
    found = greatest(signed_bits(x).ravel(order="K"), FLOATS[x.dtype.name], threads)
    return np.array(found, f"u{x.itemsize}").view(x.dtype)[()]


def quantize(
    x: Array, blocks: Blocks, arithmetic: Arithmetic, global_scale: Any, largest: Any, packed: bool, threads: int | None
) -> tuple[Array, Array] | None:
    """Codes and scales; None if some block is left."""
    plan = _quantizing(x.shape, blocks, FLOATS[x.dtype.name], arithmetic, False, packed)
    made = _run(plan, x, None, tensor_word(global_scale, largest), threads)
    return None if made is None else (made[0], made[1][0])


def fake_quantize(
    x: Array, blocks: Blocks, arithmetic: Arithmetic, global_scale: Any, largest: Any, threads: int | None
) -> Array | None:
    """What the codes of float32 numbers read as."""
    plan = _quantizing(x.shape, blocks, FLOATS[x.dtype.name], arithmetic, True, False)
    made = _run(plan, x, None, tensor_word(global_scale, largest), threads)
    return None if made is None else made[0]


def dequantize(
    codes: Array,
    scales: Array,
    blocks: Blocks,
    arithmetic: Arithmetic,
    global_scale: Any,
    largest: Any,
    threads: int | None,
) -> Array | None:
    """What codes, a byte each, read as in float32."""
    plan = _dequantizing(codes.shape, blocks, arithmetic)
    made = _run(plan, codes, (scales,), tensor_word(global_scale, largest), threads)
    return None if made is None else made[0]


def _run(plan: Plan, x: Array, sides: Any, tensor: Array, threads: int | None) -> Any:
    try:
        return plan.run(x, None, sides, threads=threads, tensor_scale=tensor)
    except _Left:
        return None


@lru_cache(maxsize=1024)
def _quantizing(
    shape: tuple[int, ...], blocks: Blocks, source: ElementFormat, arithmetic: Arithmetic, values: bool, packed: bool
) -> Plan:
    conversion = Conversion(
        source, by_stack.quantizing(source, arithmetic, values), None, by_stack.make_scale(source, arithmetic), None, 0
    )
    *rows, length = shape or (1,)
    codes: Kind = ((*rows, packed_length(length, E2M1.bits)) if packed else shape, _BYTE)
    return Plan(
        shape, blocks, _along(conversion), NO_DRAW, (shape, numpy_dtype(source)) if values else codes,
        ((scales_shape(shape, blocks), _BYTE),), writes_sides=True, writes_packed=E2M1.bits if packed else 0,
        fills_with_zeros=True, packed_operation=_along_packed(conversion) if packed else None,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _dequantizing(shape: tuple[int, ...], blocks: Blocks, arithmetic: Arithmetic) -> Plan:
    conversion = Conversion(None, by_stack.decoding(arithmetic), None, None, None, 0)
    sides = ((scales_shape(shape, blocks), _BYTE),)
    return Plan(shape, blocks, _along(conversion), NO_DRAW, (shape, np.dtype(np.float32)), sides)


def _along(conversion: Conversion) -> Any:
    def along(walk: Walk, draw: Draw) -> Any:
        return _loops(conversion, walk, False)

    return along


def _along_packed(conversion: Conversion) -> Any:
    def along(walk: Walk, draw: Draw) -> Any:
        return _loops(conversion, walk, True) if packs_along(conversion, walk) else None

    return along


class _LoopsOfStack(Loops):
    """Those of a conversion, with a word of the tensor beside the scales; what they leave is an error."""

    def __init__(self, conversion: Conversion, walk: Walk, packed: bool) -> None:
        super().__init__(conversion, walk, NO_DRAW, packed)

    def __call__(self, x: Array, out: Array, sides: tuple[Array, ...], words: Any, threads: int | None) -> None:
        """Convert contiguous arrays."""
        marks, (scales, tensor) = np.zeros(self.walk.groups, np.uint8), sides
        read = x.ravel() if self.conversion.source is None else signed_bits(x.ravel())
        arrays = read, stored_bits(out.ravel()), scales.ravel(), tensor.ravel()
        if self.run_loop(self.fast, arrays, marks, words, threads):
            raise _Left


_loops = lru_cache(maxsize=1024)(_LoopsOfStack)

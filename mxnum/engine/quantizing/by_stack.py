"""Convert to and from NVFP4 with compiled loops, in the arithmetic of a software stack.

If the loops cannot convert some block, the caller's function `otherwise` converts the whole array
with numpy. `definition.stack_arithmetic` defines the arithmetic of each stack.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from mxnum.engine.loops.panels import greatest_magnitude
from mxnum.engine.machine import workers
from mxnum.engine.quantizing import float_scales
from mxnum.engine.quantizing.float_scales import greatest
from mxnum.engine.quantizing.plan import Kind, Left, Plan, operation
from mxnum.engine.rounding import by_stack
from mxnum.engine.rounding.by_stack import E2M1, Arithmetic, tensor_word
from mxnum.formats import FLOATS, ElementFormat
from mxnum.layout import Blocks, packed_length, scales_shape
from mxnum.memory.dtypes import Array, numpy_dtype, signed_bits

_BYTE = np.dtype(np.uint8)


def may_run() -> bool:
    """Return True if compiled loops of float arithmetic may run: see `workers.may_use_floats`."""
    return workers.may_use_floats()


def largest(x: Array, threads: int | None) -> Any:
    """Return the largest magnitude of `x`, in the type of `x`; NaN if `x` holds a NaN."""
    found = greatest(signed_bits(x).ravel(order="K"), greatest_magnitude(FLOATS[x.dtype.name]), threads)
    return np.array(found, f"u{x.itemsize}").view(x.dtype)[()]


def quantize(
    x: Array,
    blocks: Blocks,
    arithmetic: Arithmetic,
    global_scale: Any,
    largest: Any,
    packed: bool,
    threads: int | None,
    otherwise: Callable[[], tuple[Array, Array]],
) -> tuple[Array, Array]:
    """Return the codes and the scales of an array.

    If the loops cannot convert some block, the function returns the result of `otherwise`.
    """
    plan = _quantizing(x.shape, blocks, FLOATS[x.dtype.name], arithmetic, False, packed)
    try:
        codes, (scales,) = plan.run(x, threads=threads, tensor_scale=tensor_word(global_scale, largest))
    except Left:
        return otherwise()
    return codes, scales


def fake_quantize(
    x: Array,
    blocks: Blocks,
    arithmetic: Arithmetic,
    global_scale: Any,
    largest: Any,
    threads: int | None,
    out: Array | None,
    otherwise: Callable[[], Array],
) -> Array:
    """Quantize float32 numbers, and return the float32 values of their codes.

    The values are written to `out` if `out` is given.

    If the loops cannot convert some block, the function returns the result of `otherwise`.
    """
    plan = _quantizing(x.shape, blocks, FLOATS[x.dtype.name], arithmetic, True, False)
    try:
        return plan.run(x, out, threads=threads, tensor_scale=tensor_word(global_scale, largest))[0]
    except Left:
        return otherwise()


def dequantize(
    codes: Array,
    scales: Array,
    blocks: Blocks,
    arithmetic: Arithmetic,
    global_scale: Any,
    largest: Any,
    threads: int | None,
    otherwise: Callable[[], Array],
) -> Array:
    """Return the float32 values of codes, of which each byte holds one.

    If the loops cannot convert some block, the function returns the result of `otherwise`.
    """
    plan = _dequantizing(codes.shape, blocks, arithmetic)
    tensor = tensor_word(global_scale, largest)
    try:
        return plan.run(codes, sides=(scales,), threads=threads, tensor_scale=tensor)[0]
    except Left:
        return otherwise()


@lru_cache(maxsize=1024)
def _quantizing(
    shape: tuple[int, ...], blocks: Blocks, source: ElementFormat, arithmetic: Arithmetic, values: bool, packed: bool
) -> Plan:
    find = by_stack.make_scale(source, arithmetic), None
    conversion = float_scales.quantizing(source, by_stack.quantizing(source, arithmetic, values), None, find, -1)
    *rows, length = shape or (1,)
    codes: Kind = ((*rows, packed_length(length, E2M1.bits)) if packed else shape, _BYTE)
    kinds = (shape, numpy_dtype(source)) if values else codes, (scales_shape(shape, blocks), _BYTE)
    quantize = operation(conversion, E2M1.bits, shape)
    return Plan(shape, blocks, quantize, None, kinds, E2M1.bits if packed else 0)


@lru_cache(maxsize=1024)
def _dequantizing(shape: tuple[int, ...], blocks: Blocks, arithmetic: Arithmetic) -> Plan:
    decode = operation(float_scales.decoding(by_stack.decoding(arithmetic), None), E2M1.bits, shape)
    return Plan(shape, blocks, decode, None, ((shape, np.dtype(np.float32)), (scales_shape(shape, blocks), _BYTE)))

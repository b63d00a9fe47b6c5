"""Quantize to NVFP4 with the same bits as a software stack, such as torchao.

Compiled loops quantize large arrays. numpy quantizes small arrays, for which compiling would take
too long. numpy also quantizes the rare arrays with infinities, NaN scales, or factors that are zero
or infinite. `definition.stack_arithmetic` defines the arithmetic of each stack.

The loops and numpy both use the processor's floating-point arithmetic, which must round to nearest
even and keep subnormal numbers. Otherwise `quantize`, `fake_quantize` and `dequantize` raise
RuntimeError.

In this module every NaN scale has the code 0x7F. The stacks themselves keep the sign of a NaN
scale. This sign depends on the processor, and the element codes of the block depend on the sign.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mxnum import errors
from mxnum.array.arguments import checked_out, checked_threads
from mxnum.definition.chunks import chunks, gather, of_blocks, spread
from mxnum.definition.stack_arithmetic import STACKS, Stack
from mxnum.engine import dispatch
from mxnum.formats import ELEMENTS, FLOATS, ElementFormat
from mxnum.layout import Blocks, resolve_blocks, scales_shape
from mxnum.memory.dtypes import Array
from mxnum.modes import Nonfinite, Overflow, Rounding

__all__ = ["STACKS", "Quantized", "Stack", "dequantize", "fake_quantize", "quantize"]

BLOCK = 16
#: numpy quantizes `PIECE` elements at a time. For an array of at most `SMALL` elements no loop is
#: compiled.
PIECE, SMALL = 1 << 16, 1 << 16
E4M3, E2M1, FLOAT32 = ELEMENTS["e4m3"], ELEMENTS["e2m1"], FLOATS["float32"]


class Quantized(NamedTuple):
    """A tensor that a stack has quantized."""

    #: The E2M1 codes. If `packed` is True, each byte holds two codes. Otherwise each byte holds one
    #: code, and the array has the shape of x.
    codes: Array
    #: The E4M3 codes of the scales, one for each block.
    scales: Array
    #: The float32 scale with which the tensor was quantized. It is the caller's scale, or if the
    #: caller gave none, the scale that the stack computes. Some stacks multiply by `global_scale`,
    #: others divide by it.
    global_scale: np.float32
    #: The factor of the whole tensor in dequantization, computed from `global_scale`.
    tensor_scale: np.float32
    #: The tensor's largest magnitude. TransformerEngine stores this magnitude instead of a scale.
    largest: np.float32
    #: The length of a block along each axis.
    blocks: Blocks
    #: True if each byte of `codes` holds two codes, as in `MXArray.pack`.
    packed: bool = False


def quantize(
    x: Array,
    stack: str | Stack,
    *,
    blocks: Blocks | None = None,
    largest: Any = None,
    global_scale: Any = None,
    packed: bool = False,
    threads: int | None = None,
) -> Quantized:
    """Quantize an array to NVFP4 with the arithmetic of `stack`.

    x has the type float32, bfloat16 or float16. The stack of torchao raises TypeError for float16.
    `blocks` lists the length of a block along each axis. By default x must have the shape (n, 16),
    each row is a block, and the scales have the shape (n,). If x is only a part of a tensor,
    `largest` must be the largest magnitude of the whole tensor. `global_scale` replaces the scale
    that the stack computes. If `packed` is True, each byte of the codes holds two codes, as in
    `MXArray.pack`.
    """
    chosen, blocks, by_rows = _checked(x, stack, blocks)
    threads, found = checked_threads(threads), _largest(x, chosen, threads)  # raises for a NaN
    largest = found if largest is None else largest
    errors.require(bool(largest >= 0), "largest", "a magnitude", largest)
    tensor = _global_scale(chosen, x.dtype, largest) if global_scale is None else np.float32(global_scale)
    errors.require(bool(tensor >= 0), "global_scale", "a number that is not negative", tensor)
    largest = np.float32(largest)
    by_numpy, loops = partial(_by_numpy, x, blocks, chosen, tensor, packed), _loops(x.size, chosen)
    if loops is None:
        codes, scales = by_numpy()
    else:
        codes, scales = loops.quantize(x, blocks, chosen, tensor, largest, packed, threads, by_numpy)
    decoding = np.float32(chosen.tensor_scale(tensor))
    return Quantized(codes, scales[:, 0] if by_rows else scales, tensor, decoding, largest, blocks, packed)


def fake_quantize(
    x: Array, stack: str | Stack, *, blocks: Blocks | None = None, threads: int | None = None, out: Array | None = None
) -> Array:
    """Quantize and dequantize with the arithmetic of `stack`. The result has the type of x.

    If `out` is given, the function writes the result to `out`, which may be x itself.
    """
    chosen, blocks, _ = _checked(x, stack, blocks)
    threads, out = checked_threads(threads), checked_out(out, x.shape, x.dtype)

    def by_way_of_codes() -> Array:
        made = quantize(x, chosen, blocks=blocks, threads=threads)
        with np.errstate(over="ignore"):
            return dequantize(made, chosen, threads=threads).astype(x.dtype)

    loops = _loops(x.size, chosen)
    if loops is None or x.dtype != np.float32:
        values = by_way_of_codes()
    else:
        largest = _largest(x, chosen, threads)
        tensor = _global_scale(chosen, x.dtype, largest)
        # The loops must not overwrite x, because numpy starts again from x if the loops cannot
        # compute the result.
        into = None if out is None or np.may_share_memory(x, out) else out
        values = loops.fake_quantize(x, blocks, chosen, tensor, largest, threads, into, by_way_of_codes)
    if out is None or values is out:
        return values
    np.copyto(out, values)
    return out


def _checked(x: Array, stack: str | Stack, blocks: Blocks | None) -> tuple[Stack, Blocks, bool]:
    """Return the stack, the blocks, and True if `blocks` is None, so that each row is a block.

    Raise an error for an array that the stack does not accept.
    """
    errors.require_type(isinstance(x, np.ndarray), "x", "a numpy array", type(x).__name__)
    chosen, name = of(stack), x.dtype.name
    _check_environment(chosen)
    errors.require_type(name in chosen.takes, "x", f"of {errors.joined(chosen.takes)} for {chosen.name}", name)
    if blocks is not None:
        return chosen, resolve_blocks(x.shape, BLOCK, blocks=blocks), False
    accepted = f"of shape (n, {BLOCK}), with a block in each row, unless `blocks` is given"
    errors.require(x.ndim == 2 and x.shape[1] == BLOCK, "x", accepted, x.shape)
    return chosen, (1, BLOCK), True


def _check_environment(stack: Stack) -> None:
    """Raise RuntimeError unless floats round to nearest even and keep subnormals.

    numpy and the loops compute with the processor's floats, so other settings of the processor give
    other bits.
    """
    from mxnum.engine.machine import workers

    if not workers.has_default_floats():
        raise RuntimeError(
            f"The arithmetic of {stack.name} needs floats that round to nearest even and keep subnormals. This is the "
            "processor's default, but this thread has changed it, for example by torch.set_flush_denormal(True)."
        )


def _loops(size: int, stack: Stack) -> Any:
    """Return the module with the compiled loops, or None if numpy must process the array.

    numpy must process small arrays. It must also process every array for a `Stack` that is not in
    `STACKS`, and every array if compiled loops cannot run.
    """
    if size <= SMALL or STACKS.get(stack.name) is not stack:
        return None
    from mxnum.engine.quantizing import by_stack

    return by_stack if by_stack.may_run() else None


def _largest(x: Array, stack: Stack, threads: int | None) -> Any:
    """Return the largest magnitude of an array; raise ValueError for a NaN."""
    loops = _loops(x.size, stack)
    largest = loops.largest(x, threads) if loops else np.abs(x).max(initial=0)
    if np.isnan(largest):
        where = tuple(int(i) for i in np.argwhere(np.isnan(x))[0])
        raise errors.nonfinite("x", where, f"free of NaN for the arithmetic of {stack.name}", "a NaN")
    return largest


def _global_scale(stack: Stack, dtype: Any, largest: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.float32(stack.global_scale(np.asarray(largest, dtype if stack.block_scale_in else np.float32)))


def block_scale_of(stack: Stack, dtype: Any) -> Callable[[Any, Any], Any]:
    """Return the function by which a stack computes block scales before it rounds them to E4M3.

    The returned function takes the largest magnitudes of the blocks and the global scale. `dtype`
    is the type of the tensor.
    """
    if stack.block_scale_in is None:
        return stack.block_scale
    of_narrowed: Callable[[Any, Any], Any] = stack.block_scale_in(lambda x: x.astype(dtype).astype(np.float32))
    return of_narrowed


def _by_numpy(x: Array, blocks: Blocks, stack: Stack, tensor: Any, packed: bool) -> tuple[Array, Array]:
    """Return the codes and scales of an array, which numpy computes piece by piece."""
    codes, scales = np.empty(x.shape, np.uint8), np.empty(scales_shape(x.shape, blocks), np.uint8)
    with np.errstate(all="ignore"):
        for part in chunks(x.shape, blocks, PIECE):
            codes[part], scales[of_blocks(part, blocks)] = _quantized(stack, x[part], blocks, tensor)
    if packed:
        codes = dispatch.host_engine().pack(codes if codes.ndim else codes[None], E2M1.bits)
    return codes, scales


def _quantized(stack: Stack, x: Array, blocks: Blocks, tensor: Any) -> tuple[Array, Array]:
    """Return the codes and scales of x, which numpy computes all at once."""
    wide = x.astype(np.float32)
    found = block_scale_of(stack, x.dtype)(_largest_of_blocks(np.abs(wide), blocks), tensor)
    # Scales have no sign, so `abs` removes every sign, even the sign of a NaN.
    scales = _encoded(np.abs(np.asarray(found, np.float32)), E4M3)
    scales = np.where(scales == 0, np.uint8(stack.for_zero), scales)
    factor = spread(np.asarray(stack.factor(_values(scales, E4M3), tensor)), blocks, x.shape)
    scaled = wide / factor if stack.divides else wide * factor
    is_nan = np.isnan(scaled)
    if is_nan.any():
        undecided = is_nan & (spread(scales, blocks, x.shape) != E4M3.nan_code) & (stack.nan_element is None)
        if undecided.any():
            where = tuple(int(i) for i in np.argwhere(undecided)[0])
            raise errors.outside("x", where, f"a number that {stack.name} does not turn into NaN", float(wide[where]))
        scaled[is_nan] = 0
    codes = _encoded(scaled, E2M1)
    if not stack.keeps_negative_zero:
        codes[scaled == 0] = 0
    codes[is_nan] = stack.nan_element or 0  # elements that scaling turns into NaN
    return codes, scales


def _largest_of_blocks(magnitudes: Array, blocks: Blocks) -> Array:
    """Return the largest magnitude of each block.

    If blocks lie along the last axis only and have 2**k elements, the function uses a fast path. It
    repeats one step k times: replace each block by the elementwise maximum of its two halves.
    """
    if not blocks:
        return magnitudes
    *others, last = blocks
    if any(block > 1 for block in others) or last & (last - 1) or magnitudes.shape[-1] % last:
        return gather(np.maximum, magnitudes, blocks)
    found = magnitudes.reshape(*magnitudes.shape[:-1], -1, last)
    while last > 1:
        last //= 2
        found = np.maximum(found[..., :last], found[..., last:])
    return found[..., 0]


def dequantize(made: Quantized, stack: str | Stack, *, threads: int | None = None) -> Array:
    """Dequantize to float32 with the arithmetic of `stack`; raise ValueError for packed codes."""
    errors.require(not made.packed, "made", "unpacked, with one code in each byte", "packed")
    threads = checked_threads(threads)
    chosen, by_block = of(stack), _scales_by_block(made)
    _check_environment(chosen)
    by_numpy, loops = partial(_read_by_numpy, made, chosen, by_block), _loops(made.codes.size, chosen)
    if loops is None:
        return by_numpy()
    of_tensor = made.global_scale, made.largest
    values: Array = loops.dequantize(made.codes, by_block, made.blocks, chosen, *of_tensor, threads, by_numpy)
    return values


def _scales_by_block(made: Quantized) -> Array:
    """Return the scales as an array with as many axes as the codes.

    Raise ValueError if the codes are packed, or if the shapes of codes and scales do not match.
    """
    codes, scales = made.codes, made.scales
    largest = codes.max(initial=0)
    errors.require(largest < 1 << E2M1.bits, "made", f"unpacked, with codes below {1 << E2M1.bits}", largest)
    by_rows = scales.ndim < codes.ndim  # True if `quantize` was called without `blocks`
    fits = codes.shape == (len(scales), BLOCK) if by_rows else scales.shape == scales_shape(codes.shape, made.blocks)
    accepted = f"unpacked, with codes and scales whose shapes fit blocks {made.blocks}"
    errors.require(fits, "made", accepted, (codes.shape, scales.shape))
    return scales[:, None] if by_rows else scales


def _read_by_numpy(made: Quantized, stack: Stack, by_block: Array) -> Array:
    """Return the dequantized values, which numpy computes piece by piece."""
    values = np.empty(made.codes.shape, np.float32)
    for part in chunks(values.shape, made.blocks, PIECE):
        elements = _values(made.codes[part], E2M1)
        scales = spread(_values(by_block[of_blocks(part, made.blocks)], E4M3), made.blocks, elements.shape)
        with np.errstate(all="ignore"):
            values[part] = stack.decoded(elements, scales, made.global_scale, made.largest)
    return values


def of(stack: str | Stack) -> Stack:
    """Return the stack with the name `stack`; if `stack` is a `Stack`, return it unchanged."""
    return stack if isinstance(stack, Stack) else STACKS[errors.choose("stack", stack, tuple(STACKS))]


def _encoded(x: Array, element: ElementFormat) -> Array:
    """Return the codes of float32 numbers, rounded to nearest even and saturated."""
    modes = {"rounding": Rounding.RNE, "overflow": Overflow.SATURATE, "nonfinite": Nonfinite.ELEMENT, "random": None}
    return np.asarray(dispatch.host_engine().encode(x, FLOAT32, element, **modes))


def _values(codes: Array, element: ElementFormat) -> Array:
    return np.asarray(dispatch.host_engine().decode(codes, element, FLOAT32))

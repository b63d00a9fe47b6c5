"""Matrix products on a GPU, with sums whose order and rounding are defined.

Each thread computes elements of the result, one after another. The kernels are simple rather than
fast: they read operands from global memory, and sum the products of a block exactly with integers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mxnum import errors
from mxnum.definition.convert import make_encode
from mxnum.definition.unpack import FINITE, NAN, make_normalize, make_unpack
from mxnum.definition.word import dialect
from mxnum.engine.cuda import arrays, driver, kernels, passes
from mxnum.engine.cuda.driver import compile_kernel, cuda, fma_float32, sum_float32
from mxnum.engine.cuda.functions import make_quantized
from mxnum.engine.cuda.launches import flat, queue
from mxnum.engine.products import exact
from mxnum.engine.products.float32_by_integers import FLOAT32, make_round
from mxnum.engine.products.operands import Operand
from mxnum.engine.products.terms import INFINITY, NOT_A_NUMBER, NUMBER, ZERO, meanings
from mxnum.formats import E8M0, ElementFormat
from mxnum.memory.device import DeviceArray
from mxnum.memory.dtypes import numpy_dtype
from mxnum.modes import Accumulate, Nonfinite, Overflow, Rounding

#: A sum of at most this many bits is held in one 64-bit integer. A longer sum is held in an array
#: of limbs, as in the module `exact`.
_SUM_BITS = exact.SUM_WIDTH


def matmul(a: Operand, b: Operand, accumulate: Accumulate, target: ElementFormat) -> DeviceArray:
    """Return the matrix product of two operands, with sums over the last axis of each.

    The sums are computed in float32 and then rounded to `target`. The result has the shape (*batch,
    rows of a, rows of b).
    """
    ways = {Accumulate.BLOCK: _by_blocks, Accumulate.SEQUENTIAL: _in_sequence}
    errors.require(accumulate in ways, "accumulate", "'block' or 'sequential' for arrays on a GPU", str(accumulate))
    parts: list[Any] = [part for x in (a, b) for part in (x.array, x.scales, x.offsets)]
    batch = np.broadcast_shapes(a.array.shape[:-2], b.array.shape[:-2])
    with queue(parts[0], *parts[1:]) as stream:
        shape = (*batch, a.array.shape[-2], b.array.shape[-2])
        out = arrays.empty(parts[0], shape, numpy_dtype(target))
        ways[accumulate](a, b, out, target, stream)
        return out


def scalar(result: DeviceArray) -> Any:
    """Return the only element of `result`, a product of two vectors, as an array without axes."""
    return arrays.owner_of(result[(*(0,) * result.ndim, ...)])


def _in_sequence(a: Operand, b: Operand, out: DeviceArray, target: ElementFormat, stream: int | None) -> None:
    left, right = _float32(a, stream, by_columns=False), _float32(b, stream, by_columns=True)
    arguments: list[Any] = []
    for view, axis in ((left, -2), (right, -1)):
        memory, at = driver.memory(view, signed=True)
        arguments += [memory, at, _along(view, out, axis), view.strides[-1]]
    kernel = sequential(target)
    driver.launch(kernel, out.size, stream, out.size, out.shape, left.shape[-1], *arguments, flat(out))


def _by_blocks(a: Operand, b: Operand, out: DeviceArray, target: ElementFormat, stream: int | None) -> None:
    run = a.blocks[-1]
    arguments: list[Any] = []
    for x, axis in ((a, -2), (b, -1)):
        codes: Any = x.array
        scales: Any = x.scales
        of_blocks = [1] * out.ndim
        # Store, for each axis of the result, the length of the operand's blocks along that axis.
        for i, block in enumerate(reversed(x.blocks[:-1])):
            of_blocks[axis if i == 0 else -2 - i] = block
        memory, at = driver.memory(codes, signed=False)
        side, side_at = driver.memory(scales, signed=False)
        arguments += [memory, at, _along(codes, out, axis), codes.strides[-1]]
        arguments += [side, side_at, _along(scales, out, axis), scales.strides[-1], tuple(of_blocks)]
    kernel = blocks(a.format, b.format, min(run, max(1, a.array.shape[-1])), target)
    driver.launch(kernel, out.size, stream, out.size, out.shape, a.array.shape[-1], run, *arguments, flat(out))


def _along(view: DeviceArray, out: DeviceArray, axis: int) -> tuple[int, ...]:
    """Return, for each axis of the result, the stride of an operand along that axis.

    The operand's rows correspond to the axis `axis` of the result. The stride is 0 along axes that
    the operand lacks, or along which its length is 1, so that the operand is broadcast.
    """
    steps = [0] * out.ndim
    for i, (length, stride) in enumerate(zip(reversed(view.shape[:-1]), reversed(view.strides[:-1]), strict=True)):
        place = axis if i == 0 else -2 - i
        steps[place] = 0 if length == 1 else stride
    return tuple(steps)


def _float32(x: Operand, stream: int | None, *, by_columns: bool) -> DeviceArray:
    """Return the values of an operand in float32.

    An operand of float32 numbers is returned as it is. The values of an operand that is not float32
    are stored in a new float32 array, row by row. If `by_columns`, the new array is stored column
    by column, so that neighbouring threads read neighbouring numbers.
    """
    array: DeviceArray = x.array  # type: ignore[assignment]
    if x.format == FLOAT32:
        return array
    shape = (*array.shape[:-2], array.shape[-1], array.shape[-2]) if by_columns else array.shape
    values = arrays.empty(array, shape, np.float32)
    view = values.swapaxes(-1, -2) if by_columns else values
    if x.scales is None:
        narrow = make_quantized(x.format, FLOAT32, Rounding.RNE, Overflow.IEEE, Nonfinite.ELEMENT)
        passes.map_elements(kernels.map_elements(narrow, kernels.NOWHERE, 0), array, view, stream)
    else:
        passes.values_of(array, x.scales, x.offsets, x.format, x.blocks, FLOAT32, view)  # type: ignore[arg-type]
    return view


def _make_finish(target: ElementFormat) -> Callable[..., Any]:
    """Return `finish(total)`, which converts a sum in float32 bits to the stored bits of `target`.

    `finish` replaces every NaN by the canonical NaN, and rounds once more if `target` is narrower
    than float32.
    """
    narrow = make_encode(FLOAT32, target, Rounding.RNE, Overflow.IEEE)
    IS_FLOAT32, STORED = target == FLOAT32, (1 << target.bits) - 1
    NAN_BITS = 0x7FC00000

    @dialect
    def finish(total):
        bits = int(total) & 0xFFFFFFFF
        if (bits & 0x7FFFFFFF) > 0x7F800000:
            bits = NAN_BITS
        if IS_FLOAT32:
            return bits
        return int(narrow(bits, 127, 0)) & STORED

    return finish


@cache
def sequential(target: ElementFormat) -> Any:
    """Return a kernel that sums products as acc = fma(a, b, acc), in the order of the indices."""
    finish = _make_finish(target)

    def multiply(count, shape, length, a, a_at, a_by, a_step, b, b_at, b_by, b_step, out):
        index, step = cuda.grid(1), cuda.gridsize(1)
        while index < count:
            rest, of_a, of_b = index, a_at, b_at
            for back in range(len(shape)):
                axis = len(shape) - 1 - back
                whole = rest // shape[axis]
                at = rest - whole * shape[axis]
                rest = whole
                of_a += at * a_by[axis]
                of_b += at * b_by[axis]
            total = np.int32(0)
            for k in range(length):
                total = _as_int32(fma_float32(a[of_a + k * a_step], b[of_b + k * b_step], total))
            out[index] = finish(total)
            index += step

    return compile_kernel(multiply)


@dialect
def _as_int32(bits):
    """Return the low 32 bits of a signed or an unsigned integer as a signed integer."""
    return np.int32(((int(bits) & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000)


def _make_term(element: ElementFormat) -> Callable[..., Any]:
    """Return `term(code)`, which returns the (significand, exponent, class) of an element code.

    The three numbers have the meanings of the fields of `terms.Term`.
    """
    width = element.mantissa_bits
    unpack = make_unpack(element, width)

    @dialect
    def term(code):
        sign, exponent, significand, kind = unpack(code)
        if kind == NAN:
            return 0, 0, NOT_A_NUMBER
        if kind != FINITE:
            return 0, 0, INFINITY + sign
        if significand == 0:
            return 0, 0, ZERO + sign
        return -significand if sign == 1 else significand, exponent - width, NUMBER + sign

    return term


def _bounds(a: ElementFormat, b: ElementFormat) -> tuple[int, int, int]:
    """Return (lowest, highest, bits) for the products of two element formats.

    `lowest` and `highest` are the least and the greatest exponent of a product. Every product has
    at most `bits` bits, in units of 2**lowest.
    """
    low = high = bits = 0
    for element in (a, b):
        term = meanings(element)
        present = term.significands != 0
        exponents, sizes = term.exponents[present], np.abs(term.significands[present])
        least = int(exponents.min())
        low, high = low + least, high + int(exponents.max())
        bits += max(int(m).bit_length() + int(e) - least for m, e in zip(sizes, exponents, strict=True))
    return low, high, bits


@cache
def blocks(a_format: ElementFormat, b_format: ElementFormat, run: int, target: ElementFormat) -> Any:
    """Return a kernel that adds the sums of blocks in order, as acc = acc + (the sum of a block).

    The sum of a block is computed exactly, and then scaled and rounded once. A block has at most
    `run` products.
    """
    finish = _make_finish(target)
    term_a, term_b = _make_term(a_format), _make_term(b_format)
    lowest, highest, bits = _bounds(a_format, b_format)
    WIDE = bits + run.bit_length() > _SUM_BITS
    LIMBS = exact.limbs_for(lowest, highest)
    normalize, round_sum = make_normalize(exact.SUM_WIDTH), make_round(exact.SUM_WIDTH)
    state_of_product, special_float32 = exact.state_of_product, exact.special_float32
    add_product, rounded, INVALID, WIDTH = exact.add_product, exact.rounded, exact.INVALID, exact.SUM_WIDTH
    SCALE_NAN, SCALES_BIAS = E8M0.nan_code, 2 * E8M0.bias

    def multiply(
        count, shape, length, run, a, a_at, a_by, a_step, scales_a, scales_a_at, scales_a_by, scales_a_step, blocks_a,
        b, b_at, b_by, b_step, scales_b, scales_b_at, scales_b_by, scales_b_step, blocks_b, out,
    ):  # fmt: skip
        limbs = cuda.local.array(LIMBS, np.int64)
        for i in range(LIMBS):
            limbs[i] = 0
        index, step = cuda.grid(1), cuda.gridsize(1)
        while index < count:
            rest, of_a, of_b, of_scales_a, of_scales_b = index, a_at, b_at, scales_a_at, scales_b_at
            for back in range(len(shape)):
                axis = len(shape) - 1 - back
                whole = rest // shape[axis]
                at = rest - whole * shape[axis]
                rest = whole
                of_a += at * a_by[axis]
                of_b += at * b_by[axis]
                of_scales_a += at // blocks_a[axis] * scales_a_by[axis]
                of_scales_b += at // blocks_b[axis] * scales_b_by[axis]
            total = np.int32(0)
            for start in range(0, length, run):
                block = start // run
                scale_a = int(scales_a[of_scales_a + block * scales_a_step])
                scale_b = int(scales_b[of_scales_b + block * scales_b_step])
                state, narrow_sum = 0, 0
                for k in range(start, min(start + run, length)):
                    ma, ea, ca = term_a(int(a[of_a + k * a_step]))
                    mb, eb, cb = term_b(int(b[of_b + k * b_step]))
                    state |= state_of_product(ca, cb)
                    if ma != 0 and mb != 0:
                        if WIDE:
                            add_product(limbs, ma, mb, ea + eb - lowest)
                        else:
                            narrow_sum += (ma * mb) << (ea + eb - lowest)
                position = lowest + scale_a + scale_b - SCALES_BIAS
                if WIDE:
                    value = rounded(limbs, position)
                else:
                    size = -narrow_sum if narrow_sum < 0 else narrow_sum
                    exponent, significand = normalize(position + WIDTH, size)
                    value = round_sum(1 if narrow_sum < 0 else 0, exponent, significand, FINITE)
                if scale_a == SCALE_NAN or scale_b == SCALE_NAN:
                    state = INVALID
                if state != 0:
                    value = special_float32(state)
                total = _as_int32(sum_float32(total, _as_int32(value)))
            out[index] = finish(total)
            index += step

    return compile_kernel(multiply)

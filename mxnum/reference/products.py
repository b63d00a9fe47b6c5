"""Dot products and matrix products with an order of summation that the caller chooses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mxnum import errors, formats
from mxnum.formats import FLOATS, MXFormat
from mxnum.modes import Accumulate
from mxnum.reference.blocks import Array, Blocks, float_array, from_bits
from mxnum.reference.float_scales import scale_number
from mxnum.reference.numbers import (
    FLOAT32,
    ZERO,
    Exact,
    decode_exact,
    exact,
    plus,
    round_to,
    times,
    to,
)


@dataclass(frozen=True, eq=False)
class Blocked:
    """A quantized vector: one-dimensional codes, a scale for each block, and optional offsets."""

    codes: Array
    scales: Array
    format: str | MXFormat
    #: The length of a block.
    block: int
    offsets: Array | None = None
    #: A float32 number if the format has a tensor scale, else None.
    tensor_scale: Any = None


def _blocks(x: Blocked) -> Iterator[tuple[Exact, Exact | None, list[Exact]]]:
    """Yield, for each block, its scale, its offset and its elements before scaling."""
    fmt = formats.get(x.format)
    division = Blocks(x.codes.shape, (x.block,), fmt)
    scales = division.check("scales", x.scales)
    offsets = None if x.offsets is None else division.check("offsets", x.offsets)
    for block, where in division:
        o = None if offsets is None else exact(float(offsets[block]))
        code = scales[block] if scales.dtype.kind in "iu" else scales[block].view(f"uint{fmt.scale.bits}")
        yield scale_number(int(code), fmt.scale), o, [decode_exact(code, fmt.element) for code in x.codes[where]]


def _of_tensor(x: Blocked) -> Exact:
    return exact(1.0 if x.tensor_scale is None else float(x.tensor_scale))


def _vector(x: Array | Blocked) -> list[Exact]:
    """Return the exact numbers of an operand."""
    if isinstance(x, Blocked):
        factor = _of_tensor(x)
        return [_value(p, scale, o, factor) for scale, o, elements in _blocks(x) for p in elements]
    array = float_array(x)
    errors.require(array.ndim == 1, "x", "one-dimensional", array.shape)
    return [exact(float(v)) for v in array]


def _value(element: Exact, scale: Exact, offset: Exact | None, factor: Exact) -> Exact:
    """Return element * scale * factor + offset; NaN if the scale is NaN."""
    value = times(times(element, scale), factor)
    return value if offset is None or scale.kind == "nan" else plus(value, offset)


def _exact_dot(a: Iterable[Exact], b: Iterable[Exact]) -> Exact:
    """Return the exact sum of the products; the sum starts from +0.

    The sum is NaN if a product is NaN or 0 * Inf, or if there are infinite products of both signs.
    Otherwise the sum is infinite if a product is infinite.
    """
    total = ZERO
    for p, q in zip(a, b, strict=True):
        total = plus(total, times(p, q))
    return total


def dot(
    a: Array | Blocked, b: Array | Blocked, c: Any = 0.0, *, accumulate: str = "exact", out_dtype: str = "float32"
) -> Any:
    """Return the dot product of two vectors in `out_dtype`; `accumulate` selects the summation.

    - `exact`: the exact sum of the exact products is rounded once to float32 (RNE).
    - `block`: for each block, the exact sum of its products, times both scales, is rounded once to
      float32. The rounded sums are added in float32, in the order of the blocks. If an operand has
      a tensor scale, the total is multiplied by the product of both tensor scales, which is first
      rounded to float32.
    - `sequential`: the operands are rounded to float32. The products are added in index order, by
      fused multiply-adds, which round once.

    Each sum starts from c, which is first rounded to float32. In the exact sum, c is one more term.
    If `out_dtype` is not float32, the float32 result is rounded to `out_dtype`.
    """
    how = errors.choose_member("accumulate", accumulate, (Accumulate.EXACT, Accumulate.BLOCK, Accumulate.SEQUENTIAL))
    target = FLOATS[errors.choose("out_dtype", out_dtype, ("float32", "bfloat16", "float16"))]
    u, v = _vector(a), _vector(b)
    errors.require(len(u) == len(v), "b", f"of length {len(u)}", len(v))
    total = to(exact(float(c)), FLOAT32)
    match how:
        case Accumulate.EXACT:
            total = to(plus(_exact_dot(u, v), total), FLOAT32)
        case Accumulate.SEQUENTIAL:
            for p, q in zip(u, v, strict=True):
                total = to(plus(times(to(p, FLOAT32), to(q, FLOAT32)), total), FLOAT32)
        case Accumulate.BLOCK:
            if not isinstance(a, Blocked) or not isinstance(b, Blocked) or a.block != b.block:
                raise ValueError("Argument 'accumulate' can be 'block' only if both operands have the same blocks.")
            errors.require(a.offsets is None and b.offsets is None, "accumulate", "'block' without offsets", accumulate)
            for (scale_a, _, p_a), (scale_b, _, p_b) in zip(_blocks(a), _blocks(b), strict=True):
                term = _exact_dot([times(p, scale_a) for p in p_a], [times(p, scale_b) for p in p_b])
                total = to(plus(total, to(term, FLOAT32)), FLOAT32)
            if a.tensor_scale is not None or b.tensor_scale is not None:
                total = to(times(total, to(times(_of_tensor(a), _of_tensor(b)), FLOAT32)), FLOAT32)
        case _:
            raise NotImplementedError(f"The reference does not implement accumulate={str(how)!r}.")
    return from_bits([round_to(total, target)], target)[0]


def matmul(
    a: Array | Sequence[Blocked], b: Array | Sequence[Blocked], *, accumulate: str = "exact", out_dtype: str = "float32"
) -> Array:
    """Return the `dot` of each row of a with each column of b.

    The operands are 2-D arrays, or lists of `Blocked`: the rows of a and the columns of b.
    """
    columns = b.T if isinstance(b, np.ndarray) else b
    result = np.zeros((len(a), len(columns)), out_dtype)
    for i, j in np.ndindex(*result.shape):
        result[i, j] = dot(a[i], columns[j], accumulate=accumulate, out_dtype=out_dtype)
    return result

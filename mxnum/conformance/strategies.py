"""Hypothesis strategies for testing kernels: numbers near boundaries, blocks, arrays, formats.

    from hypothesis import given
    from mxnum.conformance import strategies as mxst

    @given(mxst.blocks("mxfp8_e4m3"))
    def test_my_kernel(x): ...

This module needs Hypothesis (the extra ``test``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import mxnum as mx
from mxnum import errors, formats
from mxnum.conformance.bits import as_floats
from mxnum.conformance.cases import grid
from mxnum.formats import E8M0, ELEMENTS, FLOATS, ElementFormat, MXFormat
from mxnum.memory.dtypes import Array, numpy_dtype, scale_dtype

st = errors.package("hypothesis.strategies", "test")


def _element(format: str | MXFormat | ElementFormat) -> ElementFormat:
    if isinstance(format, MXFormat):
        return format.element
    if isinstance(format, str) and (format in formats.names() or ":" in format):
        return formats.get(format).element
    return formats.element(format)


def boundary_values(
    format: str | MXFormat | ElementFormat,
    *,
    source: str = "float32",
    scale: int | None = None,
    tensor_scale: float = 1.0,
) -> Any:
    """Return a strategy for the values and midpoints of an element, and the floats next to them.

    The floats are multiplied by `tensor_scale` and, if `scale` is given, by the scale with this
    code. If `format` is an element format, which has no scales, `scale` is an E8M0 code.
    """
    float_type, element = FLOATS[errors.choose("source", source, tuple(FLOATS))], _element(format)
    of_scales = E8M0
    if isinstance(format, MXFormat) or (isinstance(format, str) and format not in formats.ELEMENTS):
        of_scales = formats.get(format).scale
    factor = tensor_scale * (1.0 if scale is None else of_scales.value(scale))
    points = grid.points(element) * (factor if np.isfinite(factor) else 1.0)
    near = grid.with_neighbours(grid.narrowed(points, float_type), float_type)
    listed = sorted(as_floats(near, float_type), key=grid.simplicity)
    return st.sampled_from(listed)


def special_values(*, source: str = "float32", nan: bool = True, infinity: bool = True) -> Any:
    """Return a strategy for zeros, extreme subnormals and normals, infinities and NaNs.

    `infinity` and `nan` say whether infinities and NaNs are included.
    """
    float_type = FLOATS[errors.choose("source", source, tuple(FLOATS))]
    listed = as_floats(grid.special_patterns(float_type, nan=nan), float_type)
    if not infinity:
        listed = listed[~np.isinf(listed)]
    return st.sampled_from(list(listed))


def values(
    format: str | MXFormat | ElementFormat, *, source: str = "float32", nan: bool = True, infinity: bool = True
) -> Any:
    """Return a strategy for floats: floats near boundaries, special values, and any others."""
    float_type = FLOATS[errors.choose("source", source, tuple(FLOATS))]
    dtype = numpy_dtype(float_type)
    finite = st.integers(0, float_type.max_code)
    signs = st.sampled_from([0, 1 << (float_type.bits - 1)])
    bits = np.dtype(f"u{float_type.bits // 8}")
    anything = st.builds(lambda magnitude, sign: np.array(magnitude | sign, bits).view(dtype)[()], finite, signs)
    special = special_values(source=source, nan=nan, infinity=infinity)
    return st.one_of(boundary_values(format, source=source), special, anything)


def blocks(
    format: str | MXFormat,
    *,
    source: str = "float32",
    block: int | None = None,
    nan: bool = True,
    infinity: bool = True,
) -> Any:
    """Return a strategy for one block of floats: up to `block` numbers, and zeros after them.

    The numbers include special values, and floats near rounding boundaries at scale 1 and at one
    random scale of the format.
    """
    fmt = formats.get(format)
    float_type = FLOATS[errors.choose("source", source, tuple(FLOATS))]
    length = fmt.block if block is None else errors.positive_integer("block", block)
    low = max(float_type.emin, fmt.element.emax - 130)
    high = min(float_type.emax, fmt.element.emax + 127)

    @st.composite  # type: ignore[untyped-decorator]
    def build(draw: Any) -> Array:
        if fmt.scale.power_of_two:
            exponent, tensor = draw(st.one_of(st.just(0), st.integers(low, high))), None
            scale = min(max(exponent - fmt.element.emax, -127), 127) + 127
        else:
            scale, tensor = draw(scale_codes(fmt, nan=False)), draw(tensor_scales(fmt))
        numbers = st.one_of(
            boundary_values(fmt, source=source, scale=scale, tensor_scale=1.0 if tensor is None else tensor),
            values(fmt, source=source, nan=nan, infinity=infinity),
        )
        filled = draw(st.lists(numbers, max_size=length))
        return np.array([*filled, *[0.0] * (length - len(filled))], numpy_dtype(float_type))

    return build()


def codes(element: str | ElementFormat) -> Any:
    """Return a strategy for element codes."""
    return st.integers(0, (1 << _element(element).bits) - 1)


def scale_codes(format: str | MXFormat | None = None, *, nan: bool = True) -> Any:
    """Return a strategy for codes of a format's scales (default: E8M0).

    Shrinking prefers the codes of scales around 1, and then the extreme codes.
    """
    scale = E8M0 if format is None else formats.get(format).scale
    number = scale.number
    if number is None:
        middle, ends, last = [127, 126, 128, 125, 129], [0, 1, 2, 254, 253], 255
    else:
        one, least = number.bias << number.mantissa_bits, 1 << number.mantissa_bits
        middle, ends = [one, one - 1, one + 1], [0, 1, least - 1, least, number.max_code, number.max_code - 1]
        last = scale.nan_code
    everything = st.integers(0, scale.max_code)
    return st.one_of(st.sampled_from(middle), st.sampled_from(ends + [last] * nan), everything)


def tensor_scales(format: str | MXFormat) -> Any:
    """Return a strategy for tensor scales: positive float32 numbers, simple numbers first.

    The strategy generates None if the format has no tensor scale.
    """
    if formats.get(format).tensor_scale is None:
        return st.none()
    plain = st.sampled_from([1.0, 0.5, 2.0**-12, 2.0**20])
    anything = st.floats(float(np.finfo(np.float32).smallest_subnormal), float(np.finfo(np.float32).max), width=32)
    return st.one_of(plain, anything)


def elements(*, custom: bool = True) -> Any:
    """Return a strategy for element formats; `custom` adds custom formats of up to eight bits."""
    known = st.sampled_from(list(ELEMENTS.values()))
    if not custom:
        return known

    @st.composite  # type: ignore[untyped-decorator]
    def build(draw: Any) -> ElementFormat:
        if draw(st.booleans()):
            bits = draw(st.integers(3, 8))
            return formats.two_complement(f"int{bits}", bits)
        exponent_bits = draw(st.integers(1, 5))
        mantissa_bits = draw(st.integers(0, 7 - exponent_bits))
        kinds = ["none"]
        if exponent_bits + mantissa_bits >= 2:
            kinds.append("nan")
        if exponent_bits >= 2 and mantissa_bits >= 1:
            kinds.append("ieee")
        bias = draw(st.integers(0, (1 << exponent_bits) - 1))
        specials = draw(st.sampled_from(kinds))
        return ElementFormat(f"e{exponent_bits}m{mantissa_bits}", exponent_bits, mantissa_bits, bias, specials)

    return st.one_of(known, build())


def mx_formats(*, custom: bool = True, scales: str | Sequence[str] = "e8m0") -> Any:
    """Return a strategy for MX formats whose scales are in `scales`.

    If `custom` is True, the strategy also generates custom formats, with any element and a block
    length of 1 to 64. `scales` is one name in `mxnum.formats.SCALES`, or several.
    """
    chosen = [
        errors.choose("scales", s, tuple(formats.SCALES)) for s in ([scales] if isinstance(scales, str) else scales)
    ]
    listed = [formats.get(name) for scale in chosen for name in formats.names(scale)]
    made = st.builds(lambda e, s, k: MXFormat(e, s, k), elements(), st.sampled_from(chosen), st.integers(1, 64))
    if not custom:
        errors.require(bool(listed), "scales", "the scales of a known format, unless custom=True", scales)
        return st.sampled_from(listed)
    return st.one_of(st.sampled_from(listed), made) if listed else made


def mx_arrays(format: str | MXFormat, *, max_rows: int = 3, max_length: int = 80) -> Any:
    """Return a strategy for two-dimensional `MXArray` objects with any codes and scales.

    Blocks lie along the rows. The last block of a row may be short.
    """
    fmt = formats.get(format)
    dtype = scale_dtype(fmt.scale)

    @st.composite  # type: ignore[untyped-decorator]
    def build(draw: Any) -> mx.MXArray:
        rows, length = draw(st.integers(1, max_rows)), draw(st.integers(1, max_length))
        per_row = -(-length // fmt.block)
        made = draw(st.lists(codes(fmt.element), min_size=rows * length, max_size=rows * length))
        scales = draw(st.lists(scale_codes(fmt), min_size=rows * per_row, max_size=rows * per_row))
        held = np.array(scales, f"u{dtype.itemsize}").view(dtype).reshape(rows, per_row)
        elements_of = np.array(made, np.uint8).reshape(rows, length)
        return mx.MXArray.from_parts(elements_of, held, fmt, tensor_scale=draw(tensor_scales(fmt)))

    return build()

"""Hypothesis strategies for people who test kernels: numbers near rounding boundaries, blocks, MX arrays, formats.

    from hypothesis import given
    from mxnum.conformance import strategies as mxst

    @given(mxst.blocks("mxfp8_e4m3"))
    def test_my_kernel(x): ...

Needs hypothesis (the extra ``test``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import mxnum as mx
from mxnum import errors, formats
from mxnum.conformance import grid
from mxnum.conformance.expected import as_floats
from mxnum.dtypes import Array, numpy_dtype
from mxnum.formats import ELEMENTS, FLOATS, ElementFormat, MXFormat

st = errors.package("hypothesis.strategies", "test")


def _element(format: str | MXFormat | ElementFormat) -> ElementFormat:
    if isinstance(format, MXFormat):
        return format.element
    if isinstance(format, str) and format in formats.names():
        return formats.get(format).element
    return formats.element(format)


def boundary_values(format: str | MXFormat | ElementFormat, *, source: str = "float32", scale: int = 127) -> Any:
    """Floats at or next to a value or a midpoint of the element, times 2**(scale-127): where rounding decides."""
    float_type, element = FLOATS[errors.choose("source", source, tuple(FLOATS))], _element(format)
    points = np.ldexp(grid.points(element), scale - 127)
    near = grid.with_neighbours(grid.narrowed(points, float_type), float_type)
    listed = sorted(as_floats(near, float_type), key=simplicity)
    return st.sampled_from(listed)


def special_values(*, source: str = "float32", nan: bool = True, infinity: bool = True) -> Any:
    """Zeros, the ends of subnormals and normals, and unless left out infinities and NaNs of every kind."""
    float_type = FLOATS[errors.choose("source", source, tuple(FLOATS))]
    listed = as_floats(grid.special_patterns(float_type, nan=nan), float_type)
    if not infinity:
        listed = listed[~np.isinf(listed)]
    return st.sampled_from(list(listed))


def values(
    format: str | MXFormat | ElementFormat, *, source: str = "float32", nan: bool = True, infinity: bool = True
) -> Any:
    """Floats worth converting to the element: boundaries, special values, and any others."""
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
    """One block of floats: few distinct numbers or many, boundaries of the scale its maximum gives, special values."""
    fmt = formats.get_e8m0(format, "mxnum.conformance.strategies")
    float_type = FLOATS[errors.choose("source", source, tuple(FLOATS))]
    length = fmt.block if block is None else errors.positive_integer("block", block)
    low = max(float_type.emin, fmt.element.emax - 130)
    high = min(float_type.emax, fmt.element.emax + 127)

    @st.composite  # type: ignore[untyped-decorator]
    def build(draw: Any) -> Array:
        exponent = draw(st.one_of(st.just(0), st.integers(low, high)))
        scale = min(max(exponent - fmt.element.emax, -127), 127) + 127
        numbers = st.one_of(
            boundary_values(fmt, source=source, scale=scale), values(fmt, source=source, nan=nan, infinity=infinity)
        )
        filled = draw(st.lists(numbers, max_size=length))
        return np.array([*filled, *[0.0] * (length - len(filled))], numpy_dtype(float_type))

    return build()


def codes(element: str | ElementFormat) -> Any:
    """Element codes."""
    return st.integers(0, (1 << _element(element).bits) - 1)


def scale_codes(*, nan: bool = True) -> Any:
    """E8M0 codes, extremes and those around 1 first."""
    middle, ends = [127, 126, 128, 125, 129], [0, 1, 2, 254, 253] + ([255] if nan else [])
    return st.one_of(st.sampled_from(middle), st.sampled_from(ends), st.integers(0, 255 if nan else 254))


def elements(*, custom: bool = True) -> Any:
    """Element formats: the known ones and, unless left out, any of at most eight bits."""
    known = st.sampled_from(list(ELEMENTS.values()))
    if not custom:
        return known

    @st.composite  # type: ignore[untyped-decorator]
    def build(draw: Any) -> ElementFormat:
        if draw(st.booleans()):
            bits = draw(st.integers(3, 8))
            return ElementFormat.two_complement(f"int{bits}", bits)
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


def mx_formats(*, custom: bool = True) -> Any:
    """MX formats: the known ones with E8M0 scales and, unless left out, any element in blocks of 1 to 64."""
    known = st.sampled_from([formats.get(name) for name in formats.names("e8m0")])
    if not custom:
        return known
    return st.one_of(known, st.builds(lambda e, k: MXFormat(e, block=k), elements(), st.integers(1, 64)))


def mx_arrays(format: str | MXFormat, *, max_rows: int = 3, max_length: int = 80) -> Any:
    """Two-dimensional `MXArray` objects of any codes and scales, blocks along the rows, short last blocks included."""
    fmt = formats.get_e8m0(format, "mxnum.conformance.strategies")

    @st.composite  # type: ignore[untyped-decorator]
    def build(draw: Any) -> mx.MXArray:
        rows, length = draw(st.integers(1, max_rows)), draw(st.integers(1, max_length))
        per_row = -(-length // fmt.block)
        made = draw(st.lists(codes(fmt.element), min_size=rows * length, max_size=rows * length))
        scales = draw(st.lists(scale_codes(), min_size=rows * per_row, max_size=rows * per_row))
        return mx.MXArray.from_parts(
            np.array(made, np.uint8).reshape(rows, length), np.array(scales, np.uint8).reshape(rows, per_row), fmt
        )

    return build()


def simplicity(x: Any) -> tuple[Any, ...]:
    """Numbers that people find simple come first: zero, few significant bits, small exponents, positive."""
    value = float(x)
    if value == 0 or value - value != 0:
        return (0 if value == 0 else 99, np.signbit(x))
    numerator = abs(value.as_integer_ratio()[0])
    significant = numerator.bit_length() - ((numerator & -numerator).bit_length() - 1)
    return min(significant, 9), abs(int(np.frexp(value)[1]) - 1), significant, value < 0

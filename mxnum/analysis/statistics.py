"""Measure the errors and the clamping when `mxnum.quantize` quantizes an array."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from mxnum import errors, formats
from mxnum.analysis.observed import of_elements
from mxnum.array import MXArray
from mxnum.array.arguments import checked_tensor_scale
from mxnum.definition import by_numpy
from mxnum.definition.chunks import Slices, chunks, gather, of_blocks, positions, random_words
from mxnum.formats import FLOATS, ElementFormat, MXFormat
from mxnum.layout import Blocks, resolve_blocks, scales_shape
from mxnum.memory.dtypes import Array, as_array, float_array
from mxnum.modes import FloatScaleRule, Nonfinite, OffsetRange, Overflow, Rounding, ScaleRule, scale_rule_of
from mxnum.ops import quantize, shared_scale

#: Arrays are measured in pieces of about this many elements, because measuring needs about 130
#: bytes of memory for each element of a piece.
CHUNK = 1 << 16

#: Arrays of at most this many elements are quantized with numpy, which takes milliseconds.
#: Compiling a loop for them would take a second.
FEW = 1 << 16

_COUNT: dict[str, Any] = {"dtype": np.int64, "combine": np.add}
_SUM: dict[str, Any] = {"dtype": np.float64, "combine": np.add}
_LARGEST: dict[str, Any] = {"dtype": np.float64, "combine": np.maximum}


@dataclass(frozen=True, repr=False)
class Statistics:
    """The effect of quantization on an array, on each of its blocks, or on each index of an axis.

    The fields are counts and sums. Rates and errors are computed from the fields. For a whole
    tensor each field is a number, otherwise an array. Rates are shares of the `measured` elements,
    which are finite and not in a NaN block. Errors are averages over the `compared` elements, which
    are measured elements that are finite after quantization. Rates and errors are NaN if no element
    was measured.

    Under asymmetric scaling, elements represent x - offset instead of x. Counts such as `clamped`
    then count values of x - offset, but errors are still the differences x_q - x.

    Errors x_q - x are rounded once to float64 and summed in float64. The squares of errors must not
    overflow.
    """

    #: All elements.
    size: Any = field(metadata=_COUNT)
    #: NaN and infinite elements in the input.
    nonfinite: Any = field(metadata=_COUNT)
    #: Finite elements in blocks that are not NaN.
    measured: Any = field(metadata=_COUNT)
    #: Measured elements that are finite after quantization.
    compared: Any = field(metadata=_COUNT)
    #: Elements whose magnitude is above the format's largest value times the scale.
    #: `beyond_max_rate` is one of two definitions of *last-bin occupancy*; see `max_code_rate`.
    beyond_max: Any = field(metadata=_COUNT)
    #: Elements whose rounded value would exceed the format's largest if exponents were unbounded.
    #: overflow="saturate" clamps exactly these elements. If the scale is zero, all numbers except 0
    #: are clamped.
    clamped: Any = field(metadata=_COUNT)
    #: Elements with the code of the format's largest value. `max_code_rate` is one of two
    #: definitions of *last-bin occupancy*; see `beyond_max_rate`.
    at_max: Any = field(metadata=_COUNT)
    #: Elements that are not zero, but get the code of zero.
    underflowed: Any = field(metadata=_COUNT)
    sum_x2: Any = field(metadata=_SUM)
    sum_error: Any = field(metadata=_SUM)
    sum_error2: Any = field(metadata=_SUM)
    #: Sum of error times x.
    sum_error_x: Any = field(metadata=_SUM)
    max_error: Any = field(metadata=_LARGEST)
    #: Three counts: all blocks, NaN blocks, and blocks with an element that `beyond_max` counts.
    #: All fields about blocks are None if `per` is an axis.
    blocks: Any = None
    nan_blocks: Any = None
    blocks_beyond_max: Any = None
    #: Three counts: blocks whose scale is zero (all their elements are lost), blocks whose scale is
    #: subnormal (less precise), and blocks with the largest scale of the format. E8M0 scales are
    #: never zero or subnormal.
    zero_scales: Any = None
    subnormal_scales: Any = None
    largest_scales: Any = None
    #: The tensor scale of the whole tensor or of its rows, in float32. None for formats without a
    #: tensor scale.
    tensor_scale: Any = None

    @property
    def beyond_max_rate(self) -> Any:
        """The share of elements x with abs(x) above the format's largest value times the scale."""
        return _ratio(self.beyond_max, self.measured)

    @property
    def clamp_rate(self) -> Any:
        """The share of elements that saturation, not rounding, set to the largest value."""
        return _ratio(self.clamped, self.measured)

    @property
    def max_code_rate(self) -> Any:
        """The share of elements with the code of the format's largest value."""
        return _ratio(self.at_max, self.measured)

    @property
    def underflow_rate(self) -> Any:
        """The share of elements that were not zero and became zero."""
        return _ratio(self.underflowed, self.measured)

    @property
    def overflowing_blocks(self) -> Any:
        """The share of blocks with an element that `beyond_max` counts. NaN blocks are left out."""
        return self._of_blocks(self.blocks_beyond_max)

    @property
    def zero_scale_blocks(self) -> Any:
        """The share of blocks whose scale is zero. NaN blocks are left out."""
        return self._of_blocks(self.zero_scales)

    def _of_blocks(self, counted: Any) -> Any:
        if self.blocks is None:
            raise AttributeError("Blocks are not counted along an axis; use per='tensor' or per='block'.")
        return _ratio(counted, self.blocks - self.nan_blocks)

    @property
    def mse(self) -> Any:
        """The mean of (x_q - x)**2."""
        return _ratio(self.sum_error2, self.compared)

    @property
    def rmse(self) -> Any:
        """The square root of the mean squared error, in the unit of x."""
        return _scalar(np.sqrt(self.mse))

    @property
    def normalized_rmse(self) -> Any:
        """The square root of sum((x_q - x)**2) / sum(x**2), the error relative to the size of x."""
        return _scalar(np.sqrt(_ratio(self.sum_error2, self.sum_x2)))

    @property
    def sqnr_db(self) -> Any:
        """The ratio of signal to quantization noise in decibels, infinite if there is no error.

        The value is 10 log10(sum(x**2) / sum((x_q - x)**2)).
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return _scalar(10 * np.log10(np.divide(self.sum_x2, self.sum_error2)))

    @property
    def bias(self) -> Any:
        """The mean of x_q - x, in the unit of x. See `gain` for the relative bias."""
        return _ratio(self.sum_error, self.compared)

    @property
    def gain(self) -> Any:
        """The factor sum(x_q x) / sum(x x), by which quantization scales x on average.

        The gain is 1 if there is no multiplicative bias.
        """
        return _scalar(1 + _ratio(self.sum_error_x, self.sum_x2))

    def as_dict(self) -> dict[str, Any]:
        """Return every field and every property by name."""
        names = [f.name for f in fields(self)] + [n for n, v in vars(type(self)).items() if isinstance(v, property)]
        if self.blocks is None:
            names = [name for name in names if "blocks" not in name and not name.endswith("_scales")]
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        if np.ndim(self.size):
            error, clamp = np.asarray(self.normalized_rmse), np.asarray(self.clamp_rate)
            known = error[np.isfinite(error)]
            spread = (
                f"normalized R-MSE {known.min():.3g} to {known.max():.3g} (median {np.median(known):.3g})"
                if known.size
                else "nothing measured"
            )
            clamping = int(np.count_nonzero(np.nan_to_num(clamp) > 0))
            return f"<Statistics of {np.shape(self.size)} groups: {spread}; {clamping} of {clamp.size} clamped>"
        if self.measured == 0:
            return f"<Statistics of {self.size} elements: nothing measured (no finite element outside NaN blocks)>"
        excluded = self.size - self.compared
        return (
            "\n".join(
                [
                    f"<Statistics of {self.size} elements" + (f", {excluded} of them not compared" if excluded else ""),
                    f"  R-MSE {self.rmse:.4g}, normalized {self.normalized_rmse:.4g}, SQNR {self.sqnr_db:.2f} dB",
                    f"  bias {self.bias:+.3g}, gain {self.gain:.6f}, largest error {self.max_error:.3g}",
                    f"  beyond max {self.beyond_max_rate:.3%}, clamped {self.clamp_rate:.3%}, at max "
                    f"{self.max_code_rate:.3%}, underflow to zero {self.underflow_rate:.3%}",
                    *self._of_scales(),
                ]
            )
            + ">"
        )

    def _of_scales(self) -> list[str]:
        """Return the line about scales in a list, which is empty if there is nothing to report."""
        known = {"zero": self.zero_scales, "subnormal": self.subnormal_scales, "the largest": self.largest_scales}
        shares = [
            f"{name} {_ratio(count, self.blocks - self.nan_blocks):.3%}" for name, count in known.items() if count
        ]
        if np.ndim(self.tensor_scale) == 0 and self.tensor_scale is not None:
            shares.insert(0, f"tensor scale {self.tensor_scale:.6g}")
        return [f"  scales: {', '.join(shares)}"] if shares else []


_SUMMED = tuple(f for f in fields(Statistics) if f.metadata)
#: The fields that count blocks.
_OF_BLOCKS = "nan_blocks", "blocks_beyond_max", "zero_scales", "subnormal_scales", "largest_scales"


def measure(
    x: Any,
    format: str | MXFormat,
    *,
    per: str | int = "tensor",
    axis: int | None = None,
    block_size: int | None = None,
    block_shape: Sequence[int] | None = None,
    blocks: Sequence[int] | None = None,
    rounding: str | Rounding = "rne",
    scale_rule: str | ScaleRule | FloatScaleRule | None = None,
    overflow: str | Overflow = "saturate",
    nonfinite: str | Nonfinite = "block",
    scales: Any = None,
    tensor_scale: Any = None,
    offset: str | None = None,
    offset_range: str | OffsetRange = "exact",
    random_bits: Any = None,
    seed: int | None = None,
    stream: int = 0,
    sr_bits: int = 30,
    progress: Callable[[int, int], object] | None = None,
) -> Statistics:
    """Quantize an array as `mxnum.quantize` does, and measure the errors.

    Parameters
    ----------
    x
        An array of floats. A memory map is read one piece at a time, so its file may be larger than
        memory.
    format
        An `MXFormat`, or a name that `mxnum.formats.get` accepts.
    per
        The groups of elements that each get a result. With ``"tensor"``, the fields are numbers for
        the whole array. With ``"block"``, the fields are arrays with one number for each block, in
        the shape of the scales. With an axis, they are arrays with one number for each index along
        this axis.
    progress
        A function that `measure` calls after each piece of the array, with the number of elements
        measured so far and the number of all elements.

    The other keywords are those of `mxnum.quantize` without `arithmetic`; ``nonfinite`` must be
    ``"block"`` or ``"element"``.

    >>> import numpy as np, mxnum as mx
    >>> gamma = np.array([0.897, 0.896, 0.884, 0.885, 0.904], np.float32)
    >>> mx.analysis.measure(gamma, "mxfp8_e4m3").beyond_max_rate
    1.0
    >>> mx.analysis.measure(gamma, "mxfp8_e4m3", scale_rule="rceil").beyond_max_rate
    0.0
    >>> mx.analysis.measure(gamma, "nvfp4").tensor_scale
    0.0003363095165695995
    """
    fmt = formats.get(format)
    array = _any_float_array(x)
    layout = resolve_blocks(
        array.shape, fmt.block, axis=axis, block_size=block_size, block_shape=block_shape, blocks=blocks
    )
    mode = errors.choose_member("rounding", rounding, Rounding)
    policy = errors.choose_member("nonfinite", nonfinite, (Nonfinite.BLOCK, Nonfinite.ELEMENT))
    sums = _Sums(*_group(per, array.shape, layout))
    words = _of_shape("random_bits", random_bits, array.shape)
    scales = _of_shape("scales", scales, scales_shape(array.shape, layout))
    options: dict[str, Any] = {
        "rounding": mode, "overflow": overflow, "scale_rule": scale_rule, "nonfinite": policy, "offset": offset,
        "offset_range": offset_range, "blocks": layout, "sr_bits": sr_bits,
    }  # fmt: skip
    # This call with an empty array only checks the arguments, and raises the errors of `quantize`.
    empty = np.zeros((0,) * array.ndim, array.dtype) if array.ndim else array
    quantize(
        empty, fmt, **options, seed=seed, stream=stream, random_bits=None if words is None else words[_none(words)],
        tensor_scale=tensor_scale if isinstance(tensor_scale, str) else None,
    )  # fmt: skip
    if fmt.tensor_scale is None or not (tensor_scale is None or isinstance(tensor_scale, str)):
        tensor = checked_tensor_scale(tensor_scale, array.shape, layout, fmt, positive=True, beside=array)
    else:
        tensor = found_tensor_scale(array, fmt, tensor_scale is not None)

    settings, is_few = _settings(options, fmt), array.size <= FEW
    # `by_numpy` does not have the scale rules that compare the errors of elements. For these rules,
    # `shared_scale` computes the scales.
    finds_scales = is_few and scales is None and by_numpy.looks_at_elements(settings.scale_rule)
    done = 0
    for part in chunks(array.shape, layout, CHUNK):
        piece = np.asarray(array[part], order="C")
        if policy.by_element and fmt.element.nan_code is None:
            _refuse_nan(piece, part, fmt.element)
        bits = None if words is None else words[part]
        if mode.is_stochastic and bits is None and seed is not None:
            bits = random_words(positions(part, array.shape), seed, stream)
        given = None if scales is None else scales[of_blocks(part, layout)]
        t = None if tensor is None else _part_of(tensor, part)
        if finds_scales:
            given = shared_scale(piece, fmt, blocks=layout, scale_rule=scale_rule, nonfinite=policy, tensor_scale=t)
        if is_few:
            q: MXArray | by_numpy.Quantized = by_numpy.quantize(piece, fmt, layout, settings, given, bits, t)
        else:
            q = quantize(piece, fmt, **options, scales=given, random_bits=bits, tensor_scale=t)
        sums.add(of_elements(piece, q, fmt, layout, settings, bits, t), part)
        done += piece.size
        if progress is not None:
            progress(done, array.size)
    return Statistics(**sums.values(), tensor_scale=None if tensor is None else _scalar(tensor))


def _of_shape(name: str, given: Any, shape: tuple[int, ...]) -> Array | None:
    """Return an optional argument as an array of the required shape, or None if it is None."""
    if given is None:
        return None
    array: Array = as_array(name, given, anywhere=False)
    errors.require(array.shape == shape, name, f"of shape {shape}", array.shape)
    return array


def found_tensor_scale(array: Array, fmt: MXFormat, by_rows: bool = False) -> Array | None:
    """Return the tensor scale that `quantize` computes, or None if the format has none."""
    if fmt.tensor_scale is None:
        return None
    largest = np.zeros((*array.shape[:-1], 1) if by_rows else (), np.int64)
    for part in chunks(array.shape, (1,) * array.ndim, CHUNK):
        found = by_numpy.largest_of(np.asarray(array[part]), -1 if by_rows else None)
        here = (*part[:-1], slice(None)) if by_rows else ()
        largest[here] = np.maximum(largest[here], found)
    return by_numpy.tensor_scale(largest, FLOATS[array.dtype.name], fmt)


def _part_of(tensor: Array, part: Slices) -> Array:
    """Return the tensor scales for a piece of the array.

    Along each of its axes, `tensor` has either length 1 or the length of the whole array.
    """
    along = part[: tensor.ndim]
    return tensor[tuple(slice(None) if n == 1 else piece for n, piece in zip(tensor.shape, along, strict=True))]


class _Sums:
    """Sums over groups of elements: over the tensor, each block, or each index of an axis."""

    def __init__(self, kind: str, shape: tuple[int, ...], layout: Blocks, of_scales: tuple[int, ...], axis: int = 0):
        self.kind, self.layout, self.of_scales, self.axis = kind, layout, of_scales, axis
        self.totals = {f.name: np.full(shape, 0, f.metadata["dtype"]) for f in _SUMMED}
        self.blocks = {name: np.zeros(of_scales if kind == "block" else (), np.int64) for name in _OF_BLOCKS}

    def add(self, seen: dict[str, Array], part: Slices) -> None:
        """Add the results of `of_elements` for a piece of the array to the sums."""
        for name, counts in self.blocks.items():
            if self.kind == "block":
                counts[of_blocks(part, self.layout)] = seen[name]
            else:
                counts += np.count_nonzero(seen[name])
        for f in _SUMMED:
            self._add(f.metadata["combine"], self.totals[f.name], seen[f.name], part)

    def _add(self, operation: np.ufunc, total: Array, values: Array, part: Slices) -> None:
        dtype = total.dtype
        if self.kind == "block":
            total[of_blocks(part, self.layout)] = gather(operation, values.astype(dtype, copy=False), self.layout)
            return
        here = part[self.axis] if self.kind == "axis" else ()
        others = tuple(i for i in range(values.ndim) if self.kind == "tensor" or i != self.axis)
        total[here] = operation(total[here], operation.reduce(values, axis=others, dtype=dtype))

    def values(self) -> dict[str, Any]:
        """Return the sums and counts for the fields of `Statistics`, by name.

        If `per` is an axis, the result does not contain the fields that count blocks.
        """
        counted: dict[str, Any] = {}
        if self.kind != "axis":
            count = math.prod(self.of_scales)
            every = np.ones(self.of_scales, np.int64) if self.kind == "block" else np.int64(count)
            counted = {"blocks": every, **self.blocks}
        return {name: _scalar(value) for name, value in {**self.totals, **counted}.items()}


def _group(per: str | int, shape: tuple[int, ...], layout: Blocks) -> tuple[Any, ...]:
    """Return the arguments of `_Sums` for the groups of elements that `per` selects."""
    of_scales = scales_shape(shape, layout)
    if isinstance(per, str):
        kind = errors.choose("per", per, ("tensor", "block"))
        return kind, () if kind == "tensor" else of_scales, layout, of_scales
    errors.require(len(shape) > 0, "per", "'tensor' or 'block' for an array without axes", per)
    errors.require_type(not isinstance(per, bool), "per", "'tensor', 'block' or an axis", per)
    axis = errors.integer("per", per, -len(shape), len(shape) - 1) % len(shape)
    return "axis", (shape[axis],), layout, of_scales, axis


def _settings(options: dict[str, Any], fmt: MXFormat) -> by_numpy.Settings:
    offset_range = None if options["offset"] is None else OffsetRange(options["offset_range"])
    rule = scale_rule_of(fmt, options["scale_rule"])
    modes = options["rounding"], Overflow(options["overflow"]), rule, options["nonfinite"]
    return by_numpy.Settings(*modes, offset_range, options["sr_bits"])


def _any_float_array(x: Any) -> Array:
    """Check `x`, and return it as an array of floats. Return a memory map without reading it."""
    return x if isinstance(x, np.memmap) and float_array("x", x[_none(x)]) else float_array("x", x)[0]


def _none(array: Array) -> Slices:
    return (slice(0),) * array.ndim


def _refuse_nan(piece: Array, part: Slices, element: ElementFormat) -> None:
    found = np.isnan(piece)
    if found.any():
        local = np.unravel_index(int(np.argmax(found)), piece.shape)
        index = tuple(int(i) + p.start for i, p in zip(local, part, strict=True))
        raise errors.nonfinite("x", index, f"free of NaN for {element.name}, which has no NaN code", "a NaN")


def _ratio(numerator: Any, denominator: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return _scalar(np.divide(numerator, denominator))


def _scalar(value: Any) -> Any:
    """Return an array without axes as a Python number, and other values unchanged."""
    return value.item() if np.ndim(value) == 0 and hasattr(value, "item") else value

"""Compute the effect of quantization on each element and block.

The module `statistics` combines the results into sums and maxima.
"""

from __future__ import annotations

import numpy as np

from mxnum.array import MXArray
from mxnum.definition import by_numpy
from mxnum.definition.chunks import gather, spread
from mxnum.formats import MXFormat, ScaleFormat
from mxnum.layout import Blocks
from mxnum.memory.dtypes import Array


def of_elements(
    x: Array,
    q: MXArray | by_numpy.Quantized,
    fmt: MXFormat,
    layout: Blocks,
    asked: by_numpy.Settings,
    bits: Array | None,
    tensor: Array | None,
) -> dict[str, Array]:
    """Return a dictionary from each field of `Statistics` to its values for elements or blocks."""
    element, scales = fmt.element, np.asarray(q.scales)
    exact = x.astype(np.float64)
    by_block = by_numpy.scale_numbers(scales, fmt.scale)
    broken = np.isnan(by_block)
    finite = np.isfinite(exact)
    measured = finite & ~spread(broken, layout, x.shape)
    # A product of scale, tensor scale and element value has fewer than 53 bits, so float64 is
    # exact.
    factor = spread(by_block, layout, x.shape) * (1.0 if tensor is None else tensor.astype(np.float64))
    held = exact if q.offsets is None else _differences(x, spread(q.offsets, layout, x.shape))
    table = np.array([element.value(code) for code in range(1 << element.bits)])
    magnitudes = np.abs(table)
    with np.errstate(invalid="ignore", over="ignore"):
        # `values` equals q.dequantize("float64"), but needs no compiled loop.
        values = table[q.codes] * factor
        if q.offsets is not None:
            values += spread(q.offsets, layout, x.shape)
        beyond = measured & (np.abs(held) > element.max * factor)
        clamped, divided = beyond.copy(), beyond & (factor > 0)  # a scale of 0 clamps every number but 0
        if divided.any():
            each = spread(scales, layout, x.shape)[divided]
            tensors = np.broadcast_to(np.float32(1) if tensor is None else tensor, x.shape)[divided]
            drawn = None if bits is None else bits[divided]
            clamped[divided] = by_numpy.exceed(held[divided], fmt, each, tensors, asked, drawn)
        compared = measured & np.isfinite(values)
        x_or_0 = np.where(compared, exact, 0.0)
        error = np.where(compared, values, 0.0) - x_or_0
        return {
            "size": np.ones(x.shape, bool),
            "nonfinite": ~finite,
            "measured": measured,
            "compared": compared,
            "beyond_max": beyond,
            "clamped": clamped,
            "at_max": measured & (magnitudes == element.max)[q.codes],
            "underflowed": measured & (magnitudes == 0)[q.codes] & (held != 0),
            "sum_x2": x_or_0 * x_or_0,
            "sum_error": error,
            "sum_error2": error * error,
            "sum_error_x": error * x_or_0,
            "max_error": np.abs(error),
            "blocks_beyond_max": gather(np.logical_or, beyond, layout),
            "nan_blocks": broken,
            "zero_scales": by_block == 0,
            "subnormal_scales": (by_block > 0) & (by_block < _least_normal(fmt.scale)),
            "largest_scales": by_block == fmt.scale.value(fmt.scale.max_code),
        }


def _least_normal(scale: ScaleFormat) -> float:
    return 0.0 if scale.number is None else scale.number.min_normal


def _differences(x: Array, offsets: Array) -> Array:
    """Return the differences x - offset, which the elements represent under asymmetric scaling.

    As in the definition, differences are computed in float64 for float64 input and in float32 for
    other input.
    """
    working = np.float64 if x.dtype == np.float64 else np.float32
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray((x.astype(working) - offsets.astype(working)).astype(np.float64))

"""Collect the counts that `mxnum inspect` prints, for arrays that may be larger than memory.

An array is read and counted piece by piece.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import mxnum as mx
from mxnum.analysis import Statistics, measure
from mxnum.array import MXArray
from mxnum.definition.by_numpy import scale_numbers
from mxnum.formats import MXFormat
from mxnum.memory.dtypes import Array

#: The number of elements in a piece.
PIECE = 1 << 22
#: The fields of `mxnum.analysis.Statistics` that are summed over the pieces of an array.
_SUMMED = (
    "blocks", "nan_blocks", "blocks_beyond_max", "beyond_max", "clamped", "underflowed", "subnormal_scales",
    "largest_scales", "compared", "sum_error", "sum_error_x", "sum_error2", "sum_x2",
)  # fmt: skip


def pieces(x: Any) -> Iterator[Any]:
    """Yield slices along the first axis with about `PIECE` elements or fewer.

    Slices of an `MXArray` consist of whole blocks.
    """
    if x.ndim == 0 or x.size <= PIECE:
        yield x
        return
    rows = max(1, PIECE * len(x) // x.size)
    if isinstance(x, MXArray):
        rows = -(-rows // x.blocks[0]) * x.blocks[0]
    elif x.ndim == 1:
        rows -= rows % 4096
    for start in range(0, len(x), rows):
        yield x[start : start + rows]


class FloatSummary:
    """The range and special values of an array of floats, and the errors of quantizing the array.

    `settings` are keyword arguments of `mxnum.analysis.measure`. If the array is counted in pieces
    and the format has a tensor scale, `settings` must include the tensor scale of the whole array.
    """

    def __init__(self, format: MXFormat | None = None, **settings: Any) -> None:
        self.format, self.settings = format, settings
        self.count = self.zeros = self.nan = self.infinite = self.subnormal = 0
        self.smallest, self.largest = np.inf, 0.0
        self.low, self.high = np.inf, -np.inf
        #: The number of elements with each exponent.
        self.exponents: Counter[int] = Counter()
        self.sums: dict[str, Any] = dict.fromkeys(_SUMMED, 0)
        self.zero_blocks = 0
        #: The statistics of the last piece.
        self.last: Statistics | None = None

    def add(self, x: Array) -> None:
        """Add one piece to the counts."""
        wide = np.abs(np.asarray(x, np.float64))
        finite = np.isfinite(wide)
        self.count += wide.size
        self.nan += int(np.isnan(wide).sum())
        self.infinite += int(np.isinf(wide).sum())
        nonzero = wide[finite & (wide > 0)]
        self.zeros += int((wide == 0).sum())
        if nonzero.size:
            self.smallest = min(self.smallest, float(nonzero.min()))
            self.largest = max(self.largest, float(nonzero.max()))
            tiny = mx.formats.element(x.dtype.name).min_normal
            self.subnormal += int((nonzero < tiny).sum())
            found, counts = np.unique(np.frexp(nonzero)[1] - 1, return_counts=True)
            self.exponents.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
        if finite.any():
            values = np.asarray(x, np.float64)[finite]
            self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        if self.format is not None and x.size:
            self._quantize(x)

    def _quantize(self, x: Array) -> None:
        assert self.format is not None
        got = measure(x, self.format, **self.settings)
        self.sums = {name: total + getattr(got, name) for name, total in self.sums.items()}
        self.last = got
        if self.format.scale.power_of_two:
            self.zero_blocks += int((mx.shared_scale(x, self.format, **self.settings) == 0).sum())
        else:
            self.zero_blocks += got.zero_scales

    def facts(self) -> dict[str, Any]:
        """Return the counts under the names that `mxnum inspect` prints."""
        facts: dict[str, Any] = {"elements": self.count}
        if self.low <= self.high:
            facts |= {"smallest value": self.low, "largest value": self.high}
        if self.largest:
            facts |= {"smallest magnitude > 0": self.smallest, "largest magnitude": self.largest}
        facts |= {"zeros": self.zeros, "subnormal": self.subnormal, "infinite": self.infinite, "NaN": self.nan}
        sums = self.sums
        if self.format is not None:
            facts |= {
                "format": self.format.name,
                "blocks": sums["blocks"],
                "blocks of NaN": sums["nan_blocks"],
                **self._of_scales(self.format),
                "blocks with an element beyond max": sums["blocks_beyond_max"],
                "elements beyond max": sums["beyond_max"],
                "elements clamped": sums["clamped"],
                "elements that underflowed to zero": sums["underflowed"],
            }
            if self.last is not None and 0 < sums["sum_x2"] < np.inf:
                whole = replace(self.last, **sums)
                facts["relative root mean square error"] = whole.normalized_rmse
                if sums["sum_error2"]:
                    facts["SQNR in dB"] = whole.sqnr_db
                facts |= {"bias": whole.bias, "gain": whole.gain}
        return facts

    def _of_scales(self, fmt: MXFormat) -> dict[str, Any]:
        if fmt.scale.power_of_two:
            return {"blocks of scale code 0": self.zero_blocks}
        return {
            **({} if self.last is None or self.last.tensor_scale is None else {"tensor scale": self.last.tensor_scale}),
            "blocks of scale 0": self.zero_blocks,
            "blocks of a subnormal scale": self.sums["subnormal_scales"],
            "blocks of the largest scale": self.sums["largest_scales"],
        }


class MXSummary:
    """How often an `MXArray` uses each element code and each scale exponent."""

    def __init__(self, q: MXArray) -> None:
        self.q = q
        self.codes: Array = np.zeros(1 << q.format.element.bits, np.int64)
        self.nan_blocks = self.zero_scales = self.subnormal_scales = self.largest_scales = 0
        #: The number of blocks with each scale exponent. Scales that are NaN, infinite or zero are
        #: not counted.
        self.exponents: Counter[int] = Counter()

    def add(self, q: MXArray) -> None:
        """Add one piece to the counts."""
        scale, numbers = q.format.scale, scale_numbers(np.asarray(q.scales), q.format.scale).ravel()
        self.nan_blocks += int(np.isnan(numbers).sum())
        self.zero_scales += int((numbers == 0).sum())
        if scale.number is not None:
            self.subnormal_scales += int(((numbers > 0) & (numbers < scale.number.min_normal)).sum())
        self.largest_scales += int((numbers == scale.value(scale.max_code)).sum())
        found, counts = np.unique(np.frexp(numbers[(numbers > 0) & np.isfinite(numbers)])[1] - 1, return_counts=True)
        self.exponents.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
        self.codes += np.bincount(q.codes.ravel(), minlength=self.codes.size)

    def facts(self) -> dict[str, Any]:
        """Return the counts under the names that `mxnum inspect` prints."""
        element = self.q.format.element
        magnitudes = np.abs(np.array(element.values()))
        facts: dict[str, Any] = {
            "format": self.q.format.name,
            "shape": self.q.shape,
            "blocks": self.q.blocks,
            "bytes packed": self.q.packed_nbytes,
            "number of blocks": self.q.scales.size,
            "blocks of NaN": self.nan_blocks,
        }
        if self.exponents:
            facts["scale exponents"] = f"{min(self.exponents)} to {max(self.exponents)}"
        if not self.q.format.scale.power_of_two:
            facts |= {
                "blocks of scale 0": self.zero_scales,
                "blocks of a subnormal scale": self.subnormal_scales,
                "blocks of the largest scale": self.largest_scales,
            }
        if self.q.tensor_scale is not None:
            t = np.asarray(self.q.tensor_scale)
            facts["tensor scale"] = float(t) if t.size == 1 else f"{t.size}, {t.min():.9g} to {t.max():.9g}"
        facts |= {
            "elements": self.q.size,
            "elements at the largest magnitude": int(self.codes[magnitudes == element.max].sum()),
            "elements zero": int(self.codes[magnitudes == 0].sum()),
            "element codes used": f"{np.count_nonzero(self.codes)} of {self.codes.size}",
        }
        if element.specials != "none":
            facts["element codes not finite"] = int(self.codes[~np.isfinite(magnitudes)].sum())
        return facts

"""What `mxnum inspect` counts, piece by piece, so that an array larger than memory can be summarized."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

import mxnum as mx
from mxnum.analysis import measure
from mxnum.array import MXArray
from mxnum.dtypes import Array
from mxnum.formats import E8M0, MXFormat

#: Elements summarized at a time.
PIECE = 1 << 22


def pieces(x: Any) -> Iterator[Any]:
    """Slices along the first axis of at most about `PIECE` elements (an `MXArray` in whole blocks)."""
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
    """Range and kinds of an array of floats, and what an MX format would do to it."""

    def __init__(self, format: MXFormat | None = None, **settings: Any) -> None:
        self.format, self.settings = format, settings
        self.count = self.zeros = self.nan = self.infinite = self.subnormal = 0
        self.smallest, self.largest = np.inf, 0.0
        self.low, self.high = np.inf, -np.inf
        #: How many elements have each exponent.
        self.exponents: Counter[int] = Counter()
        #: As `mxnum.analysis.Statistics` has them.
        self.blocks = self.nan_blocks = self.blocks_beyond_max = self.beyond_max = self.clamped = self.underflowed = 0
        self.zero_blocks = 0
        self.squared_error = self.squared = 0.0

    def add(self, x: Array) -> None:
        """Count one piece."""
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
        self.beyond_max += got.beyond_max
        self.clamped += got.clamped
        self.underflowed += got.underflowed
        self.blocks += got.blocks
        self.nan_blocks += got.nan_blocks
        self.blocks_beyond_max += got.blocks_beyond_max
        self.squared_error += got.sum_error2
        self.squared += got.sum_x2
        self.zero_blocks += int((mx.shared_scale(x, self.format, **self.settings) == 0).sum())

    def facts(self) -> dict[str, Any]:
        """The counts under names that people read."""
        facts: dict[str, Any] = {"elements": self.count}
        if self.low <= self.high:
            facts |= {"smallest value": self.low, "largest value": self.high}
        if self.largest:
            facts |= {"smallest magnitude > 0": self.smallest, "largest magnitude": self.largest}
        facts |= {"zeros": self.zeros, "subnormal": self.subnormal, "infinite": self.infinite, "NaN": self.nan}
        if self.format is not None:
            facts |= {
                "format": self.format.name,
                "blocks": self.blocks,
                "blocks of NaN": self.nan_blocks,
                "blocks of scale code 0": self.zero_blocks,
                "blocks with an element beyond max": self.blocks_beyond_max,
                "elements beyond max": self.beyond_max,
                "elements clamped": self.clamped,
                "elements underflown to zero": self.underflowed,
            }
            if 0 < self.squared < np.inf:
                facts["relative root mean square error"] = (self.squared_error / self.squared) ** 0.5
        return facts


class MXSummary:
    """Use of scale and element codes in an `MXArray`."""

    def __init__(self, q: MXArray) -> None:
        self.q = q
        self.scales: Array = np.zeros(256, np.int64)
        self.codes: Array = np.zeros(1 << q.format.element.bits, np.int64)

    def add(self, q: MXArray) -> None:
        """Count one piece."""
        self.scales += np.bincount(q.scales.ravel(), minlength=256)
        self.codes += np.bincount(q.codes.ravel(), minlength=self.codes.size)

    @property
    def exponents(self) -> Counter[int]:
        """How many blocks have each scale exponent; those of NaN are left out."""
        return Counter({code - E8M0.bias: int(n) for code, n in enumerate(self.scales[:255]) if n})

    def facts(self) -> dict[str, Any]:
        """The counts under names that people read."""
        element = self.q.format.element
        magnitudes = np.abs(np.array(element.values()))
        used = np.flatnonzero(self.scales[:255])
        facts: dict[str, Any] = {
            "format": self.q.format.name,
            "shape": self.q.shape,
            "blocks": self.q.blocks,
            "bytes packed": self.q.packed_nbytes,
            "number of blocks": self.q.scales.size,
            "blocks of NaN": int(self.scales[E8M0.nan_code]),
        }
        if used.size:
            facts["scale exponents"] = f"{used[0] - E8M0.bias} to {used[-1] - E8M0.bias}"
        facts |= {
            "elements": self.q.size,
            "elements at the largest magnitude": int(self.codes[magnitudes == element.max].sum()),
            "elements zero": int(self.codes[magnitudes == 0].sum()),
            "element codes used": f"{np.count_nonzero(self.codes)} of {self.codes.size}",
        }
        if element.specials != "none":
            facts["element codes not finite"] = int(self.codes[~np.isfinite(magnitudes)].sum())
        return facts

"""Rank combinations of format, scale rule, rounding, block and offset by error on one tensor."""

from __future__ import annotations

import csv
import io
import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from mxnum import errors
from mxnum import formats as known_formats
from mxnum.analysis.statistics import found_tensor_scale, measure
from mxnum.formats import MXFormat
from mxnum.memory.dtypes import Array, float_array
from mxnum.modes import FloatScaleRule, Rounding, ScaleRule
from mxnum.modes import scale_rules as known_rules
from mxnum.output.files import written_whole
from mxnum.output.text_table import text_table

#: The number of elements that are measured by default.
SAMPLE = 1 << 18

#: The scale rules that are compared by default: for E8M0 scales, and for scales that are floats.
USUAL_RULES = (ScaleRule.FLOOR, ScaleRule.CEIL, ScaleRule.EVEN, ScaleRule.RCEIL)
USUAL_FLOAT_RULES = (FloatScaleRule.NEAREST, FloatScaleRule.RCEIL, FloatScaleRule.FOUR_OVER_SIX_SQUARED)
ORGANISATIONS = ("row", "column", "tile")
#: The block sizes that are compared by default, besides the format's block size.
USUAL_SIZES = (16, 32)


@dataclass(frozen=True)
class Candidate:
    """One combination of choices, with its errors on the tensor.

    `overflow_rate`, `clamp_rate` and `underflow_rate` are shares of the measured elements.
    """

    format: str
    scale_rule: str
    rounding: str
    #: The numbers of rows and columns of a block.
    block_rows: int
    block_columns: int
    #: True if each block has a float16 offset.
    asymmetric: bool
    #: Bits stored per element: the bits of a code, and an element's share of the block's scale and
    #: offset, but not of a tensor scale.
    bits_per_element: float
    #: The error by which candidates are ranked: the root of sum((x_q - x)**2) / sum(x**2).
    normalized_rmse: float
    rmse: float
    sqnr_db: float
    #: The factor sum(x_q x) / sum(x x), by which quantization scales x on average.
    gain: float
    #: The share of elements x with abs(x) above the format's largest value times the scale.
    overflow_rate: float
    clamp_rate: float
    #: The share of elements that were not zero and became zero.
    underflow_rate: float
    #: The share of blocks whose scale is zero. E8M0 scales are never zero.
    zero_scale_rate: float = 0.0

    @property
    def block(self) -> str:
        return f"{self.block_rows}x{self.block_columns}"

    @property
    def organisation(self) -> str:
        """The shape of a block: "row", "column", or "tile" (several rows and several columns)."""
        return "row" if self.block_rows == 1 else "column" if self.block_columns == 1 else "tile"


@dataclass(frozen=True, repr=False)
class Exploration:
    """The measured candidates, in the order of measurement."""

    candidates: tuple[Candidate, ...]
    #: The number of candidates that a complete exploration has.
    total: int
    #: The shape of the tensor, and the number of elements that were measured.
    shape: tuple[int, ...]
    measured: int

    @property
    def complete(self) -> bool:
        return len(self.candidates) == self.total

    def ranked(self, **wanted: Any) -> list[Candidate]:
        """Return candidates sorted by `Candidate.normalized_rmse`, the best first.

        Keywords, such as ``asymmetric=False``, select candidates by their fields.
        """
        for name in wanted:
            errors.choose_name("a candidate", name, _SELECTABLE)
        chosen = [c for c in self.candidates if all(getattr(c, name) == value for name, value in wanted.items())]
        return sorted(chosen, key=lambda c: (math.isnan(c.normalized_rmse), c.normalized_rmse, c.bits_per_element))

    def best(self, **wanted: Any) -> Candidate:
        """Return the first candidate of `ranked`."""
        ranked = self.ranked(**wanted)
        errors.require(bool(ranked), "wanted", "fields and values of at least one candidate", wanted)
        return ranked[0]

    def frontier(self) -> list[Candidate]:
        """Return the Pareto frontier of bits per element and error, beginning with the fewest bits.

        A candidate is on the frontier if every other candidate has more bits or more error.
        """
        kept: list[Candidate] = []
        known = [c for c in self.ranked() if not math.isnan(c.normalized_rmse)]
        for candidate in sorted(known, key=lambda c: c.bits_per_element):
            if not kept or candidate.normalized_rmse < kept[-1].normalized_rmse:
                kept.append(candidate)
        return kept

    def as_dict(self) -> dict[str, Any]:
        """Return the exploration as dictionaries, lists and numbers, with candidates ranked."""
        return {
            "shape": list(self.shape), "measured": self.measured, "complete": self.complete, "total": self.total,
            "candidates": [asdict(c) for c in self.ranked()],
        }  # fmt: skip

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the ranking as CSV, a line for each candidate; write the CSV to `path` if given."""
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, [f.name for f in fields(Candidate)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(c) for c in self.ranked())
        if path is not None:
            with written_whole(path) as partial:
                partial.write_text(text.getvalue())
        return text.getvalue()

    def __repr__(self) -> str:
        state = "" if self.complete else f", interrupted: {len(self.candidates)} of {self.total} candidates"
        table = text_table(TITLES, map(cells_of, self.ranked()[:10]), width=80)
        return f"<Exploration of {self.shape}, {self.measured} elements measured{state}\n{table}>"


_SELECTABLE = (*(f.name for f in fields(Candidate)), "block", "organisation")


#: The titles of the columns in tables of candidates.
TITLES = "format", "scale rule", "rounding", "block", "bits", "R-MSE", "SQNR dB", "overflow", "underflow"


def cells_of(c: Candidate) -> tuple[str, ...]:
    """Return the cells of a candidate, for a table with the columns `TITLES`."""
    return (
        c.format, c.scale_rule, c.rounding, c.block + " + offset" * c.asymmetric, f"{c.bits_per_element:g}",
        f"{c.normalized_rmse:.3g}", f"{c.sqnr_db:.2f}", f"{c.overflow_rate:.3%}", f"{c.underflow_rate:.3%}",
    )  # fmt: skip


def explore(
    x: Any,
    *,
    formats: Sequence[str | MXFormat] | None = None,
    scale_rules: Sequence[str] | None = None,
    roundings: Sequence[str] = tuple(Rounding),
    block_sizes: Sequence[int] | None = None,
    organisations: Sequence[str] = ORGANISATIONS,
    asymmetric: Sequence[bool] = (False, True),
    sample: int | None = SAMPLE,
    seed: int = 0,
    progress: Callable[[int, int, Candidate], object] | None = None,
) -> Exploration:
    """Measure the error of every combination of the given choices on a tensor.

    Parameters
    ----------
    x
        An array of floats. All axes but the last are merged, which makes x a matrix.
    formats, scale_rules, roundings, block_sizes, organisations, asymmetric
        The choices to combine. By default, all choices are combined except the scale rules
        `half_up`, `floor_plus_one` and `four_over_six_absolute`. The default block sizes are 16, 32
        and the format's block size. `half_up` equals `even` in e2m1 and is close to `rceil` in
        e4m3. `floor_plus_one` differs from `ceil` only at powers of two. A block lies along a row
        or a column, or is a tile that is as close to a square as its size allows. A format is
        combined only with the rules for its kind of scale. For example, nvfp4 is never combined
        with `floor`. Formats with float scales have no offsets. A tensor scale is computed from all
        of x, not only from the measured elements.
    sample
        The approximate maximum number of elements to measure; None measures all elements. The
        measured rows form evenly spaced bands. The height of a band is a multiple of the height of
        every block. If columns are left out, at least 256 are kept. At least one band is measured.
    seed
        The seed of stochastic rounding.
    progress
        A function that is called as `progress(done, total, candidate)` after each candidate. Here
        `done` is the number of candidates measured so far, and `total` the number of all
        candidates. Ctrl-C, or a KeyboardInterrupt that `progress` raises, ends the exploration and
        keeps the candidates measured so far.

    >>> from mxnum.analysis import explore, synthetic
    >>> x = synthetic.weights(64, 64)
    >>> found = explore(x, formats=["mxfp4_e2m1", "mxint4"], roundings=["rne"], asymmetric=[False], block_sizes=[32])
    >>> found.best().format, found.best().scale_rule
    ('mxfp4_e2m1', 'even')
    """
    array, _ = float_array("x", x)
    errors.require(array.size > 0, "x", "of at least one element", array.shape)
    lists: dict[str, Any] = {
        "formats": formats, "scale_rules": scale_rules, "roundings": roundings, "block_sizes": block_sizes,
        "organisations": organisations, "asymmetric": asymmetric,
    }  # fmt: skip
    for name, several in lists.items():
        is_list = several is None or (hasattr(several, "__len__") and not isinstance(several, str))
        errors.require_type(is_list, name, "a list of choices", several)
        errors.require(several is None or len(several) > 0, name, "at least one choice", several)
    chosen = [known_formats.get(f) for f in (formats if formats is not None else known_formats.names())]
    for name, values, accepted in (
        ("scale_rules", scale_rules or (), _RULES),
        ("roundings", roundings, tuple(Rounding)),
        ("organisations", organisations, ORGANISATIONS),
    ):
        for value in values:
            errors.choose(name, value, accepted)
    matrix = array.reshape(-1, array.shape[-1]) if array.ndim else array.reshape(1, 1)
    shapes = {fmt: _shapes_of(fmt, block_sizes, organisations) for fmt in chosen}
    sampled = bands(matrix, sample, math.lcm(*(rows for several in shapes.values() for rows, _ in several)))
    tensor_scales = {fmt: found_tensor_scale(matrix, fmt) for fmt in chosen}
    # Formats are the innermost loop, so an interrupted exploration still compares the formats.
    settings = _combinations(asymmetric, shapes, roundings, {fmt: _rules_of(fmt, scale_rules) for fmt in chosen})
    candidates: list[Candidate] = []
    try:
        for setting in settings:
            candidates.append(_measured(sampled, *setting, tensor_scale=tensor_scales[setting[-1]], seed=seed))
            if progress is not None:
                progress(len(candidates), len(settings), candidates[-1])
    except KeyboardInterrupt:
        pass
    return Exploration(tuple(candidates), len(settings), array.shape, sampled.size)


#: All scale rules, each listed once (`ScaleRule` and `FloatScaleRule` both have `rceil`).
_RULES = tuple(dict.fromkeys(str(rule) for rule in (*ScaleRule, *FloatScaleRule)))


def _rules_of(fmt: MXFormat, asked: Sequence[str] | None) -> list[str]:
    """Return the scale rules that suit a format, out of `asked` (default: the usual rules)."""
    usual = USUAL_RULES if fmt.scale.power_of_two else USUAL_FLOAT_RULES
    of_kind = [str(rule) for rule in known_rules(fmt)]
    found = [rule for rule in map(str, usual if asked is None else asked) if rule in of_kind]
    errors.require(bool(found), "scale_rules", f"at least one of {of_kind} for {fmt.name}", list(asked or ()))
    return found


def _shapes_of(fmt: MXFormat, asked: Sequence[int] | None, organisations: Sequence[str]) -> list[tuple[int, int]]:
    """Return the shapes of blocks for a format.

    The block sizes are the requested sizes, by default `USUAL_SIZES` and the format's block size.
    """
    sizes = tuple(dict.fromkeys((*USUAL_SIZES, fmt.block))) if asked is None else asked
    found = [s for k in sizes for s in block_shapes(errors.positive_integer("block_sizes", k), organisations)]
    elements = f"{errors.joined(sizes)} element{'s' * (max(sizes) > 1)}"
    accepted = f"'row' or 'column', because {elements} cannot form a tile"
    errors.require(bool(found), "organisations", accepted, list(organisations))
    return found


def _combinations(
    asymmetric: Sequence[bool],
    shapes: dict[MXFormat, list[tuple[int, int]]],
    roundings: Sequence[str],
    rules: dict[MXFormat, list[str]],
) -> list[tuple[bool, tuple[int, int], str, str, MXFormat]]:
    """Return all combinations of choices; formats whose scales are floats get no offsets."""
    of_floats = [fmt for fmt in rules if not fmt.scale.power_of_two]
    if of_floats and False not in asymmetric:
        name = of_floats[0].name
        errors.require(False, "asymmetric", f"a list containing False, because {name} has no offsets", list(asymmetric))
    all_rules, all_shapes = (dict.fromkeys(itertools.chain(*each.values())) for each in (rules, shapes))
    return [
        (offset, shape, rounding, rule, fmt)
        for offset, shape, rounding, rule, fmt in itertools.product(asymmetric, all_shapes, roundings, all_rules, rules)
        if rule in rules[fmt] and shape in shapes[fmt] and not (offset and fmt in of_floats)
    ]


def block_shapes(size: int, organisations: Sequence[str] = ORGANISATIONS) -> Iterator[tuple[int, int]]:
    """Yield the shapes (rows, columns) of blocks of `size` elements.

    The shapes are 1 x size, size x 1, and the tile that is closest to a square.
    """
    side = max(d for d in range(1, math.isqrt(size) + 1) if size % d == 0)
    shapes = {"row": (1, size), "column": (size, 1), "tile": (side, size // side)}
    seen = set()
    for organisation in organisations:
        shape = shapes[organisation]
        if shape not in seen and not (organisation == "tile" and side == 1):
            seen.add(shape)
            yield shape


def bands(matrix: Array, limit: int | None, height: int) -> Array:
    """Return at most about `limit` elements of a matrix, in evenly spaced bands of `height` rows.

    If a single band has more than `limit` elements, the result leaves out columns at the end.
    """
    if limit is None or matrix.size <= limit:
        return matrix
    errors.positive_integer("sample", limit)
    rows, columns = matrix.shape
    height = min(height, rows)
    wide = matrix[:, : max(min(columns, 256), limit // height)] if columns * height > limit else matrix
    count = max(1, limit // (wide.shape[1] * height))
    starts = np.linspace(0, rows - height, min(count, rows // height)) // height * height
    return np.concatenate([wide[int(start) : int(start) + height] for start in starts])


def _measured(
    x: Array,
    asymmetric: bool,
    block: tuple[int, int],
    rounding: str,
    scale_rule: str,
    fmt: MXFormat,
    *,
    tensor_scale: Any,
    seed: int,
) -> Candidate:
    options: dict[str, Any] = {"rounding": rounding, "scale_rule": scale_rule, "block_shape": block}
    options["tensor_scale"] = tensor_scale
    if Rounding(rounding).is_stochastic:
        options["seed"] = seed
    if asymmetric:
        options["offset"] = "float16"
    got = measure(x, fmt, **options)
    return Candidate(
        format=fmt.name, scale_rule=str(scale_rule), rounding=str(rounding), block_rows=block[0],
        block_columns=block[1], asymmetric=bool(asymmetric), bits_per_element=bits_per_element(fmt, block, asymmetric),
        normalized_rmse=got.normalized_rmse, rmse=got.rmse, sqnr_db=got.sqnr_db, gain=got.gain,
        overflow_rate=got.beyond_max_rate, clamp_rate=got.clamp_rate, underflow_rate=got.underflow_rate,
        zero_scale_rate=got.zero_scale_blocks if got.blocks > got.nan_blocks else 0.0,
    )  # fmt: skip


def bits_per_element(fmt: MXFormat, block: Sequence[int], asymmetric: bool = False) -> float:
    """Return the bits stored per element, including a share of the block's scale and offset."""
    return fmt.element.bits + (fmt.scale.bits + (16 if asymmetric else 0)) / math.prod(block)

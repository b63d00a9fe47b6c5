"""Which answers differ from the right ones, and whether the difference is a documented choice or a bug.

Every case gets a set of labels: empty where the answer is the right one, names of choices where the answer is what
another legitimate choice gives, and ``BUG`` where no choice explains it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

import mxnum as mx
from mxnum.conformance.expected import element_codes, expected
from mxnum.conformance.grid import PLACES, as_magnitudes, places
from mxnum.conformance.task import Columns, Task
from mxnum.dtypes import Array
from mxnum.formats import E8M0, ElementFormat
from mxnum.modes import Nonfinite, Overflow

#: What an implementation may legitimately do otherwise, and the sentence that says so.
CHOICES = {
    "overflow": "finite values beyond the largest: saturating, or infinity (NaN where there is none)",
    "infinity": "infinite inputs: saturating, or infinity (NaN where there is none)",
    "minus_zero": "a negative number that rounds to zero loses its sign",
    "nan_code": "another NaN code (sign or payload)",
    "nonfinite": "NaN or infinity: the whole block becomes NaN, or its element alone",
    "nan_block_codes": "element codes other than 0 in a block whose scale is NaN",
    "zero_scale": "the scale code of a block of zeros",
    "sr_bits": "the number of random bits that stochastic rounding uses",
    "sr_fraction": "stochastic rounding takes the nearest r-bit fraction of the gap, not its first r bits",
    "most_negative": "two's complement: numbers near -2 get the most negative code, which the library never produces",
}

#: Bits of a case's verdict.
BUG = 1
LABELS = {name: 2 << i for i, name in enumerate(CHOICES)}

BLOCK_CLASSES = ("NaN or infinity inside", "all zero", "scale clamped", "maximum beyond the largest", "ordinary")
VALUE_CLASSES = ("NaN", "infinity", "zero", "subnormal result", "ordinary")


@dataclass
class Consistency:
    """For one choice: in how many places its alternative was followed, and in how many it was not, where it could."""

    followed: int = 0
    kept: int = 0

    @property
    def is_consistent(self) -> bool:
        return not (self.followed and self.kept)


@dataclass
class Judgement:
    """Of one batch: a verdict and a class for each case."""

    verdicts: Array
    classes: Array
    #: For each case the part that is wrong first: "scale", the place of an element, or "value".
    parts: list[str | None] = field(default_factory=list)


def class_names(task: Task) -> tuple[str, ...]:
    """The classes that cases of this operation fall into."""
    if task.operation == "encode":
        return PLACES
    return BLOCK_CLASSES if task.operation in ("quantize", "scale") else VALUE_CLASSES


def judge(task: Task, inputs: Columns, answers: Columns, tallies: dict[str, Consistency]) -> Judgement:
    """The verdict on each case of a batch; `tallies` gathers how consistently choices are followed."""
    want = expected(task, inputs)
    count = len(next(iter(inputs.values())))
    verdicts = np.zeros(count, np.int64)
    wrong_place = np.full(count, -1, np.int64)
    match task.operation:
        case "encode":
            found = _elements(task, inputs["x"], None, inputs.get("random"), answers["code"], want["code"], tallies)
            verdicts = found[:, 0]
            wrong_place[(verdicts & BUG) != 0] = 0
        case "quantize":
            verdicts, wrong_place = _quantized(task, inputs, answers, want, tallies)
        case "scale":
            verdicts = _scales(task, inputs, answers["scale"], want["scale"], tallies)
        case _:
            verdicts = _values(task.source, answers["value"], want["value"], tallies)[:, 0]
    classes = classify(task, inputs, want)
    return Judgement(verdicts, classes, _parts(task, inputs, answers, verdicts, wrong_place))


def _elements(
    task: Task, x: Array, scales: Array | None, random: Array | None, got: Array, want: Array,
    tallies: dict[str, Consistency],
) -> Array:  # fmt: skip
    """Labels of every element, given the scale codes of the rows."""
    e = task.element
    labels = np.where(got == want, 0, BUG)
    sign = 1 << (e.bits - 1)

    def settle(name: str, where: Array, followed: Array, judged: bool = True) -> None:
        followed = where & followed & (got != want)
        labels[followed & (labels == BUG)] = LABELS[name]
        tally = tallies.setdefault(name, Consistency())
        tally.followed += int(followed.sum())
        tally.kept += int((where & (got == want)).sum()) if judged else 0

    if e.integer:
        settle("most_negative", (want == sign + 1) & _reaches_minus_two(task, x, scales, random), got == sign)
    else:
        settle("minus_zero", want == sign, got == 0)
    if e.nan_code is not None:
        first_nan = e.max_code + 1 + (e.infinity_code is not None)
        is_nan = (want & (sign - 1)) >= first_nan
        got_nan = (got & (sign - 1)) >= first_nan
        settle("nan_code", is_nan, got_nan, judged=False)
        other = Overflow.IEEE if task.overflow == Overflow.SATURATE else Overflow.SATURATE
        alternative = element_codes(replace(task, overflow=other), x, scales, random)
        same = (got == alternative) | (got_nan & ((alternative & (sign - 1)) >= first_nan))
        magnitude = as_magnitudes(x, task.source)
        differs = alternative != want
        settle("infinity", differs & np.isinf(magnitude), same)
        settle("overflow", differs & np.isfinite(magnitude), same)
    return labels


def _reaches_minus_two(task: Task, x: Array, scales: Array | None, random: Array | None) -> Array:
    """Where an integer element without an upper end would round to -2 or below."""
    y = as_magnitudes(x, task.source, scales)
    signs = np.where(x >> (task.source.bits - 1), -1.0, 1.0)
    values = np.where(np.isnan(y), 0, signs * np.minimum(y, 4))
    wide = ElementFormat("wider", exponent_bits=2, mantissa_bits=task.element.mantissa_bits, bias=1)
    options = {"random_bits": np.ascontiguousarray(random), "sr_bits": task.sr_bits} if task.is_stochastic else {}
    codes = mx.encode(values, wide, rounding=task.rounding, **options)  # type: ignore[arg-type]
    return (signs < 0) & (mx.decode(codes, wide, dtype="float64") <= -2)


def _quantized(
    task: Task, inputs: Columns, answers: Columns, want: Columns, tallies: dict[str, Consistency]
) -> tuple[Array, Array]:
    x, random = inputs["x"], inputs.get("random")
    got_scale, want_scale = answers["scale"], want["scale"]
    verdicts = _scales(task, inputs, got_scale, want_scale, tallies)
    magnitude = as_magnitudes(x, task.source)
    nan_scale = got_scale[:, 0] == E8M0.nan_code
    usable = (verdicts & BUG) == 0
    by_element = usable & ~nan_scale
    place = np.full(len(x), -1, np.int64)

    # Blocks that the implementation calls NaN: their element codes mean nothing.
    loose = usable & nan_scale & (answers["codes"] != 0).any(axis=1)
    verdicts[loose] |= LABELS["nan_block_codes"]

    # The others: each element for the scale that was answered.
    rows = np.flatnonzero(by_element)
    if rows.size:
        part = x[rows]
        words = None if random is None else random[rows]
        right = element_codes(task, part, got_scale[rows], words)
        got = answers["codes"][rows]
        labels = _elements(task, part, got_scale[rows], words, got, right, tallies)
        if task.element.nan_code is None:
            labels[np.isnan(magnitude[rows])] = 0
        verdicts[rows] |= np.bitwise_or.reduce(labels, axis=1)
        bad = (labels & BUG) != 0
        place[rows] = np.where(bad.any(axis=1), bad.argmax(axis=1), -1)
    return verdicts, place


def _scales(task: Task, inputs: Columns, got: Array, want: Array, tallies: dict[str, Consistency]) -> Array:
    """Verdicts on the scale codes of blocks."""
    magnitude = as_magnitudes(inputs["x"], task.source)
    got, want = got[:, 0].astype(np.int64), want[:, 0].astype(np.int64)
    verdicts = np.where(got == want, 0, BUG)
    special = ~np.isfinite(magnitude).all(axis=1)
    zero = np.where(np.isfinite(magnitude), magnitude, 0).max(axis=1, initial=0) == 0
    other = Nonfinite.ELEMENT if task.nonfinite == Nonfinite.BLOCK else Nonfinite.BLOCK
    alternative = expected(replace(task, operation="scale", nonfinite=other), inputs)["scale"][:, 0]
    for kind, rows in (("NaN", np.isnan(magnitude).any(axis=1)), ("infinity", ~np.isnan(magnitude).any(axis=1))):
        rows = rows & special
        followed = rows & (got != want) & ((got == alternative) | (zero & (got != E8M0.nan_code)))
        tally = tallies.setdefault(f"nonfinite ({kind})", Consistency())
        tally.followed += int(followed.sum())
        tally.kept += int((rows & (got == want)).sum())
        verdicts[followed] = LABELS["nonfinite"]
    rows = zero & ~special
    followed = rows & (got != want) & (got != E8M0.nan_code)
    verdicts[followed] = LABELS["zero_scale"]
    for code in np.unique(got[rows & (got != E8M0.nan_code)]):
        tallies.setdefault(f"zero_scale ({int(code)})", Consistency()).followed += int((rows & (got == code)).sum())
    return verdicts


def _values(target: ElementFormat, got: Array, want: Array, tallies: dict[str, Consistency]) -> Array:
    """Labels of floats that came out."""
    sign = got.dtype.type(1 << (target.bits - 1))
    labels = np.where(got == want, 0, BUG)
    nan = ((want & ~sign) > target.max_code + 1) & ((got & ~sign) > target.max_code + 1) & (got != want)
    labels[nan] = LABELS["nan_code"]
    tallies.setdefault("nan_code", Consistency()).followed += int(nan.sum())
    minus = (want == sign) & (got == 0)
    labels[minus] = LABELS["minus_zero"]
    tally = tallies.setdefault("minus_zero", Consistency())
    tally.followed += int(minus.sum())
    tally.kept += int(((want == sign) & (got == want)).sum())
    return labels


def classify(task: Task, inputs: Columns, want: Columns) -> Array:
    """An index into `class_names` for each case."""
    if task.operation == "encode":
        return places(as_magnitudes(inputs["x"], task.source), task.element)[:, 0]
    names = class_names(task)
    if task.operation in ("quantize", "scale"):
        magnitude = as_magnitudes(inputs["x"], task.source)
        finite = np.isfinite(magnitude)
        largest = np.where(finite, magnitude, 0).max(axis=1, initial=0)
        block = expected(replace(task, operation="scale", nonfinite=Nonfinite.ELEMENT), inputs)["scale"][:, 0]
        exponent = np.frexp(np.where(largest > 0, largest, 1))[1] - 1 - task.element.emax
        found = np.full(len(largest), names.index("ordinary"))
        found[largest > np.ldexp(task.element.max, block.astype(np.int64) - 127)] = names.index(
            "maximum beyond the largest"
        )
        found[(largest > 0) & ((exponent < -127) | (exponent > 127))] = names.index("scale clamped")
        found[largest == 0] = names.index("all zero")
        found[~finite.all(axis=1)] = names.index("NaN or infinity inside")
        return found
    value = as_magnitudes(want["value"], task.source)[:, 0]
    found = np.full(len(value), names.index("ordinary"))
    found[value < task.source.min_normal] = names.index("subnormal result")
    found[value == 0] = names.index("zero")
    found[np.isinf(value)] = names.index("infinity")
    found[np.isnan(value)] = names.index("NaN")
    return found


def _parts(task: Task, inputs: Columns, answers: Columns, verdicts: Array, wrong_place: Array) -> list[str | None]:
    """What is wrong in each case with a bug."""
    parts: list[str | None] = [None] * len(verdicts)
    for row in np.flatnonzero(verdicts & BUG):
        if task.operation in ("dequantize", "dot"):
            parts[row] = "value"
        elif wrong_place[row] < 0:
            parts[row] = "scale"
        else:
            scales = answers["scale"][row] if task.operation == "quantize" else None
            x = inputs["x"][row, wrong_place[row]].reshape(1)
            parts[row] = PLACES[places(as_magnitudes(x, task.source, scales), task.element)[0]]
    return parts


def first_wrong_element(task: Task, inputs: Columns, answers: Columns) -> int | None:
    """For one case of quantize: the first element that is wrong for the scale that was answered."""
    tallies: dict[str, Consistency] = {}
    want = expected(task, inputs)
    place = int(_quantized(task, inputs, answers, want, tallies)[1][0])
    return None if place < 0 else place

"""Judge which answers differ from the right ones, and whether a difference is a legitimate choice or a bug.

Every case gets a set of labels. The set is empty if the answer is right. It holds names of choices
if another legitimate choice gives the answer, and ``BUG`` if no choice explains it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

import mxnum as mx
from mxnum.conformance.calling import fits
from mxnum.conformance.cases.grid import PLACES, as_magnitudes, places
from mxnum.conformance.judging.right import element_codes, expected, is_nan_scale, scale_numbers, scaled, tensor_scales
from mxnum.conformance.task import Columns, Task
from mxnum.formats import ElementFormat
from mxnum.memory.dtypes import Array
from mxnum.modes import Nonfinite, Overflow

#: The legitimate choices of an implementation, each with a phrase that describes it.
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
    "nan_element": "a NaN in an element without NaN becomes the largest or zero (or the most negative integer)",
}

#: Bits of the verdict on a case: `BUG`, and one bit for each choice in `LABELS`.
BUG = 1
LABELS = {name: 2 << i for i, name in enumerate(CHOICES)}
UNJUDGED = -1
#: The wrong part of a case whose answer is not a code at all.
MISFIT = "does not fit"
#: Prefix of the tallies that count which codes NaNs became in an element without NaN.
NAN_BECAME = "NaN became "

BLOCK_CLASSES = ("NaN or infinity inside", "all zero", "scale at its limit", "maximum beyond the largest", "ordinary")
#: The classes of blocks in formats whose scales are floats.
FLOAT_SCALE_CLASSES = (
    "NaN or infinity inside", "all zero", "scale zero", "scale subnormal", "scale at its limit",
    "maximum beyond the largest", "ordinary",
)  # fmt: skip
VALUE_CLASSES = ("NaN", "infinity", "zero", "subnormal result", "ordinary")


@dataclass
class Consistency:
    """For one choice: the number of answers that follow its alternative, and of those that could but do not."""

    followed: int = 0
    kept: int = 0

    @property
    def is_consistent(self) -> bool:
        return not (self.followed and self.kept)


@dataclass
class Judgement:
    """The judgement of one batch: a verdict and a class for each case."""

    verdicts: Array
    classes: Array
    #: For each output field, the labels of its numbers. `UNJUDGED` marks numbers that have no
    #: meaning with the rest of the answer.
    labels: Columns
    #: For each case the first part that is wrong: "scale", the class of an element, or "value".
    parts: list[str | None] = field(default_factory=list)


def class_names(task: Task) -> tuple[str, ...]:
    """Return the names of the classes of cases of this operation."""
    if task.operation == "encode":
        return PLACES
    if task.operation not in ("quantize", "scale"):
        return VALUE_CLASSES
    return BLOCK_CLASSES if task.format.scale.power_of_two else FLOAT_SCALE_CLASSES


def judge(task: Task, inputs: Columns, answers: Columns, tallies: dict[str, Consistency]) -> Judgement:
    """Return the verdict on each case of a batch. `tallies` collects how consistently choices are followed."""
    want = expected(task, inputs)
    count = len(next(iter(inputs.values())))
    wrong_place = np.full(count, -1, np.int64)
    match task.operation:
        case "encode":
            found = _elements(task, inputs["x"], None, inputs.get("random"), answers["code"], want["code"], tallies)
            labels = {"code": found}
            wrong_place[(found[:, 0] & BUG) != 0] = 0
        case "quantize":
            labels, wrong_place = _quantized(task, inputs, answers, want, tallies)
        case "scale":
            labels = {"scale": _scales(task, inputs, answers["scale"], want["scale"], tallies)}
        case _:
            labels = {"value": _values(task.source, answers["value"], want["value"], tallies)}
    verdicts = np.zeros(count, np.int64)
    for name, found in labels.items():
        verdicts |= np.bitwise_or.reduce(np.where(found == UNJUDGED, 0, found), axis=1)
        if name == "codes":  # codes in a block of NaN mean nothing: the implementation may choose them
            loose = (found == UNJUDGED).all(axis=1) & ((verdicts & BUG) == 0) & (answers["codes"] != 0).any(axis=1)
            verdicts[loose] |= LABELS["nan_block_codes"]
    classes = classify(task, inputs, want)
    return Judgement(verdicts, classes, labels, _parts(task, inputs, answers, verdicts, wrong_place))


def _elements(
    task: Task, x: Array, scales: Array | None, random: Array | None, got: Array, want: Array,
    tallies: dict[str, Consistency], tensor: Array | None = None,
) -> Array:  # fmt: skip
    """Return the labels of every element, given the scale codes and the tensor scales of the rows."""
    e = task.element
    labels = np.where(got == want, 0, BUG)
    sign = 1 << (e.bits - 1)
    known = fits(got, e.bits)

    settled: list[tuple[str, Array, Array]] = []

    def settle(name: str, where: Array, followed: Array, judged: bool = True) -> None:
        followed = where & followed & (got != want)
        labels[followed & (labels == BUG)] = LABELS[name]
        settled.append((name, followed, where & (got == want) & judged))

    if e.integer:
        settle("most_negative", (want == sign + 1) & _reaches_minus_two(task, x, scales, random, tensor), got == sign)
    else:
        settle("minus_zero", want == sign, got == 0)
    if e.nan_code is not None:
        first_nan = e.max_code + 1 + (e.infinity_code is not None)
        is_nan = (want & (sign - 1)) >= first_nan
        got_nan = known & ((got & (sign - 1)) >= first_nan)
        settle("nan_code", is_nan, got_nan, judged=False)
        other = Overflow.IEEE if task.overflow == Overflow.SATURATE else Overflow.SATURATE
        alternative = element_codes(replace(task, overflow=other), x, scales, random, tensor)
        same = (got == alternative) | (got_nan & ((alternative & (sign - 1)) >= first_nan))
        magnitude = as_magnitudes(x, task.source)
        differs = alternative != want
        settle("infinity", differs & np.isinf(magnitude), same)
        settle("overflow", differs & np.isfinite(magnitude), same)
    else:
        _settle_nan(task, x, got, labels, tallies)
    clean = ~wrong_codes(labels).any(axis=1, keepdims=True)  # wrong rows say nothing about choices
    for name, followed, kept in settled:
        tally = tallies.setdefault(name, Consistency())
        tally.followed += int((followed & clean).sum())
        tally.kept += int((kept & clean).sum())
    return labels


def _settle_nan(task: Task, x: Array, got: Array, labels: Array, tallies: dict[str, Consistency]) -> None:
    """Set the labels of NaNs in an element that has none, and count the code that each NaN became.

    Every rule of `nan_codes` is a legitimate choice.
    """
    nan = np.isnan(as_magnitudes(x, task.source))
    if not nan.any():
        return
    negative = (x >> (task.source.bits - 1)) != 0
    labels[nan] = BUG
    if not task.takes_nan:  # the definition of `encode`, which cannot raise
        labels[nan & (got == task.element.max_code)] = 0
    for name, (positive_code, negative_code) in nan_codes(task.element).items():
        followed = nan & (got == np.where(negative, negative_code, positive_code))
        by_choice = followed & (labels != 0)
        labels[by_choice] = LABELS["nan_element"]
        tally = tallies.setdefault(f"nan_element ({name})", Consistency())
        tally.followed += int(by_choice.sum())
        tally.kept += int((nan & ~followed).sum())
    for code, count in zip(*np.unique(got[nan], return_counts=True), strict=True):
        tallies.setdefault(f"{NAN_BECAME}{int(code)}", Consistency()).followed += int(count)


def nan_codes(element: ElementFormat) -> dict[str, tuple[int, int]]:
    """Return what a positive and a negative NaN may become in an element without NaN, by the name of the rule.

    The rules are those that implementations document.
    """
    sign, largest = 1 << (element.bits - 1), element.max_code
    least = (1 << element.bits) - largest if element.integer else largest + sign
    rules = {
        "the largest": (largest, largest),
        "the largest of its sign": (largest, least),
        "zero": (0, 0),
    }
    if element.integer:
        return rules | {"the most negative": (sign, sign)}
    return rules | {"zero of its sign": (0, sign), "zero of the other sign": (sign, 0)}


def _reaches_minus_two(task: Task, x: Array, scales: Array | None, random: Array | None, tensor: Array | None) -> Array:
    """Return for each number whether an integer element without a lower limit would round it to -2 or below."""
    y = scaled(task, x, scales, tensor)
    signs = np.where(x >> (task.source.bits - 1), -1.0, 1.0)
    values = np.where(np.isnan(y), 0, signs * np.minimum(y, 4))
    wide = ElementFormat("wider", exponent_bits=2, mantissa_bits=task.element.mantissa_bits, bias=1)
    options = {"random_bits": np.ascontiguousarray(random), "sr_bits": task.sr_bits} if task.is_stochastic else {}
    codes = mx.encode(values, wide, rounding=task.rounding, **options)  # type: ignore[arg-type]
    return (signs < 0) & (mx.decode(codes, wide, dtype="float64") <= -2)


def _quantized(
    task: Task, inputs: Columns, answers: Columns, want: Columns, tallies: dict[str, Consistency]
) -> tuple[Columns, Array]:
    """Return the labels of scales and codes, and for each block the first wrong element (-1 if there is none)."""
    x, random = inputs["x"], inputs.get("random")
    got_scale, got = answers["scale"], answers["codes"]
    of_scales = _scales(task, inputs, got_scale, want["scale"], tallies)
    of_codes = np.full(x.shape, UNJUDGED, np.int64)
    of_codes[~fits(got, task.element.bits)] = BUG

    # Elements are judged for the scale that was answered, if that is right or a choice, and not
    # NaN.
    rows = np.flatnonzero(((of_scales[:, 0] & BUG) == 0) & ~is_nan_scale(task, got_scale)[:, 0])
    if rows.size:
        words, tensor = (None if column is None else column[rows] for column in (random, tensor_scales(inputs)))
        right = element_codes(task, x[rows], got_scale[rows], words, tensor)
        of_codes[rows] = _elements(task, x[rows], got_scale[rows], words, got[rows], right, tallies, tensor)
    bad = wrong_codes(of_codes)
    return {"scale": of_scales, "codes": of_codes}, np.where(bad.any(axis=1), bad.argmax(axis=1), -1)


def _scales(task: Task, inputs: Columns, got: Array, want: Array, tallies: dict[str, Consistency]) -> Array:
    """Return the verdicts on the scale codes of blocks."""
    magnitude = as_magnitudes(inputs["x"], task.source)
    got, want = got[:, 0].astype(np.int64), want[:, 0].astype(np.int64)
    verdicts = np.where(got == want, 0, BUG)
    known = fits(got, task.scale_bits) & ~is_nan_scale(task, got)
    special = ~np.isfinite(magnitude).all(axis=1)
    zero = np.where(np.isfinite(magnitude), magnitude, 0).max(axis=1, initial=0) == 0
    other = Nonfinite.ELEMENT if task.nonfinite == Nonfinite.BLOCK else Nonfinite.BLOCK
    alternative = expected(replace(task, operation="scale", nonfinite=other), inputs)["scale"][:, 0]
    for kind, rows in (("NaN", np.isnan(magnitude).any(axis=1)), ("infinity", ~np.isnan(magnitude).any(axis=1))):
        rows = rows & special
        # If NaN stays in its element, a block whose only finite numbers are zeros has the scale of
        # zeros.
        followed = rows & (got != want) & ((got == alternative) | (zero & known))
        tally = tallies.setdefault(f"nonfinite ({kind})", Consistency())
        tally.followed += int(followed.sum())
        tally.kept += int((rows & (got == want)).sum())
        verdicts[followed] = LABELS["nonfinite"]
        verdicts[followed & (got != alternative)] |= LABELS["zero_scale"]
    followed = zero & ~special & (got != want) & known
    verdicts[followed] = LABELS["zero_scale"]
    by_element = zero & known & (~special | (verdicts == LABELS["nonfinite"] | LABELS["zero_scale"]))
    for code in np.unique(got[by_element]):
        tallies.setdefault(f"zero_scale ({int(code)})", Consistency()).followed += int(
            (by_element & (got == code)).sum()
        )
    return verdicts.reshape(-1, 1)


def _values(target: ElementFormat, got: Array, want: Array, tallies: dict[str, Consistency]) -> Array:
    """Return the labels of dequantized floats and dot products."""
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
    """Return an index into `class_names` for each case."""
    if task.operation == "encode":
        return places(as_magnitudes(inputs["x"], task.source), task.element)[:, 0]
    names = class_names(task)
    if task.operation in ("quantize", "scale"):
        magnitude = as_magnitudes(inputs["x"], task.source)
        finite = np.isfinite(magnitude)
        largest = np.where(finite, magnitude, 0).max(axis=1, initial=0)
        block = expected(replace(task, operation="scale", nonfinite=Nonfinite.ELEMENT), inputs)["scale"][:, 0]
        number, tensor, scale = scale_numbers(task, block), tensor_scales(inputs), task.format.scale
        most = task.element.max * number * (1.0 if tensor is None else tensor[:, 0].astype(np.float64))
        found = np.full(len(largest), names.index("ordinary"))
        found[largest > most] = names.index("maximum beyond the largest")
        if scale.number is None:
            exponent = np.frexp(np.where(largest > 0, largest, 1))[1] - 1 - task.element.emax
            found[(largest > 0) & ((exponent < -127) | (exponent > 127))] = names.index("scale at its limit")
        else:
            found[(largest > most) & (block == scale.max_code)] = names.index("scale at its limit")
            found[number < scale.number.min_normal] = names.index("scale subnormal")
            found[number == 0] = names.index("scale zero")
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
    """Return the name of the wrong part of each case with a bug; None for the other cases."""
    bug = (verdicts & BUG) != 0
    parts = np.full(len(verdicts), None, object)
    parts[bug] = "value" if task.operation in ("dequantize", "dot") else "scale"
    rows = np.flatnonzero(bug & (wrong_place >= 0))
    if rows.size:
        scales, tensor = None, tensor_scales(inputs) if task.operation == "quantize" else None
        if task.operation == "quantize":
            scales = answers["scale"][rows].clip(0, (1 << task.scale_bits) - 1)
        x = inputs["x"][rows, wrong_place[rows]].reshape(-1, 1)
        y = scaled(task, x, scales, None if tensor is None else tensor[rows])[:, 0]
        parts[rows] = np.array(PLACES, object)[places(y, task.element)]
    for output in task.outputs:
        parts[~fits(answers[output.name], output.bits).all(axis=1)] = MISFIT
    return list(parts)


def wrong_elements(task: Task, inputs: Columns, answers: Columns) -> Array:
    """Return the indices of the elements that are wrong for the scale answered, in one case of quantize."""
    labels, _ = _quantized(task, inputs, answers, expected(task, inputs), {})
    return np.flatnonzero(wrong_codes(labels["codes"][0]))


def wrong_codes(labels: Array) -> Array:
    """Return for each label whether its number is judged and wrong."""
    return np.asarray((labels != UNJUDGED) & ((labels & BUG) != 0))

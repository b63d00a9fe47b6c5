"""Judge whether answers are right, differ by a legitimate choice, or are wrong.

Every number of an answer gets an integer; each bit of this integer is a label. A right number has
no label. A number that differs from the right number has the labels of the choices that explain the
difference, or ``BUG`` if no choice does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

import mxnum as mx
from mxnum.conformance.bits import fits, ordinal, sign_bits
from mxnum.conformance.cases.grid import PLACES, as_magnitudes, places
from mxnum.conformance.judging import right
from mxnum.conformance.task import Columns, Task, number_of
from mxnum.formats import ElementFormat
from mxnum.memory.dtypes import Array
from mxnum.modes import Nonfinite, Overflow

#: The choices that the standard leaves to an implementation, each with a description.
CHOICES = {
    "overflow": "finite values beyond the largest saturate, or become infinity (NaN if the element has no infinity)",
    "infinity": "infinite inputs saturate, or become infinity (NaN if the element has no infinity)",
    "minus_zero": "a negative number that rounds to zero loses its sign",
    "nan_code": "a NaN has a different sign or payload",
    "nonfinite": "a NaN or an infinity makes the whole block NaN, or changes only its own element",
    "nan_block_codes": "element codes other than 0 in a block whose scale is NaN",
    "zero_scale": "the scale code of a block of zeros",
    "sr_bits": "the number of random bits that stochastic rounding uses",
    "sr_fraction": "stochastic rounding rounds the fraction of the gap to r bits, instead of truncating it to r bits",
    "most_negative": "two's complement: numbers near -2 get the most negative code, which mxnum never produces",
    "nan_element": "a NaN becomes the largest value or zero (or the most negative integer) if the element has no NaN",
}

#: Bits of the verdict on a case: `BUG`, and one bit for each choice in `LABELS`.
BUG = 1
LABELS = {name: 2 << i for i, name in enumerate(CHOICES)}
UNJUDGED = -1
#: The value of `Case.part` for an answer that is not a code, such as a number with too many bits.
MISFIT = "does not fit"

BLOCK_CLASSES = ("NaN or infinity inside", "all zero", "scale at its limit", "maximum beyond the largest", "ordinary")
#: The classes of blocks in formats whose scales are floats.
FLOAT_SCALE_CLASSES = (
    "NaN or infinity inside", "all zero", "scale zero", "scale subnormal", "scale at its limit",
    "maximum beyond the largest", "ordinary",
)  # fmt: skip
VALUE_CLASSES = ("NaN", "infinity", "zero", "subnormal result", "ordinary")


@dataclass
class Consistency:
    """The number of answers that follow a choice, and the number that could but do not (`kept`)."""

    followed: int = 0
    kept: int = 0

    @property
    def is_consistent(self) -> bool:
        return not (self.followed and self.kept)


@dataclass(frozen=True)
class Key:
    """The key of a tally: the name of a choice.

    The choice `nonfinite` has one tally for each kind of input, "NaN" and "infinity".
    """

    choice: str
    kind: str = ""


class Tallies:
    """Counts that show whether an implementation makes each choice always, never or sometimes."""

    def __init__(self) -> None:
        self.choices: dict[Key, Consistency] = {}
        #: Counts for elements without NaN: how many answers to a NaN follow each rule of
        #: `nan_codes`, and how many answers to a NaN are each code.
        self.nan_rules: dict[str, Consistency] = {}
        self.nan_became: Counter[int] = Counter()
        #: For each scale code: the number of blocks of zeros with this code.
        self.zero_scales: Counter[int] = Counter()

    def add(self, key: Key, followed: Array, kept: Array) -> None:
        """Count answers that follow a choice, and answers that could follow it but do not."""
        tally = self.choices.setdefault(key, Consistency())
        tally.followed += int(followed.sum())
        tally.kept += int(kept.sum())

    def inconsistent(self) -> dict[str, Consistency]:
        """Return the choices that some answers follow and other answers could follow but do not."""
        found = {key.choice: tally for key, tally in self.choices.items() if not tally.is_consistent}
        others = [count for code, count in self.zero_scales.items() if code != 0]
        if others and (self.zero_scales[0] or len(others) > 1):
            found["zero_scale"] = Consistency(max(others), self.zero_scales.total() - max(others))
        rules = self.nan_rules.values()
        most = max(rules, key=lambda tally: tally.followed, default=Consistency())
        if most.followed and all(tally.kept for tally in rules):  # the codes of NaNs follow no single rule
            found["nan_element"] = most
        return found


@dataclass
class Judgement:
    """The judgement of one batch: a verdict and a class for each case."""

    inputs: Columns
    answers: Columns
    want: Columns
    #: For each case, the bits of all labels that its numbers have.
    verdicts: Array
    classes: Array
    #: For each output field, the labels of its numbers. `UNJUDGED` marks a number that cannot be
    #: judged, such as a code in a block whose scale is wrong or NaN.
    labels: Columns
    #: For each case, the name of the wrong part: an output field such as "scale" or "value", the
    #: class of the first wrong element, or `MISFIT`. None if no part is wrong.
    parts: list[str | None]


def judge(task: Task, inputs: Columns, answers: Columns, tallies: Tallies | None = None) -> Judgement:
    """Return the verdict on each case of a batch.

    The counts of answers that follow each choice are added to `tallies`.
    """
    want = right.expected(task, inputs)
    labels = task.operation.labels(task, inputs, answers, want, tallies or Tallies())
    verdicts = np.zeros(number_of(inputs), np.int64)
    for name, found in labels.items():
        verdicts |= np.bitwise_or.reduce(np.where(found == UNJUDGED, 0, found), axis=1)
        if name == "codes":  # if the scale of a block is NaN, its codes have no meaning and may be any codes
            loose = (found == UNJUDGED).all(axis=1) & ((verdicts & BUG) == 0) & (answers["codes"] != 0).any(axis=1)
            verdicts[loose] |= LABELS["nan_block_codes"]
    classes = task.operation.classify(task, inputs, want)
    return Judgement(inputs, answers, want, verdicts, classes, labels, _parts(task, inputs, answers, labels))


def _parts(task: Task, inputs: Columns, answers: Columns, labels: Columns) -> list[str | None]:
    """Return the name of the wrong part of each case with a bug; None for the other cases."""
    bug = np.any([wrong_codes(found).any(axis=1) for found in labels.values()], axis=0)
    parts = np.full(len(bug), None, object)
    parts[bug] = task.outputs[0].name
    name = task.outputs[-1].name
    if task.outputs[-1].kind == "element" and "x" in inputs:
        bad = wrong_codes(labels[name])
        rows = np.flatnonzero(bad.any(axis=1))
        x = inputs["x"][rows, bad[rows].argmax(axis=1)].reshape(-1, 1)
        scales = answers["scale"][rows].clip(0, (1 << task.scale_bits) - 1) if task.has_scales else None
        tensor = right.tensor_scales(inputs) if task.has_scales else None
        y = right.scaled(task, x, scales, None if tensor is None else tensor[rows])[:, 0]
        parts[rows] = np.array(PLACES, object)[places(y, task.element)]
    for output in task.outputs:
        parts[~fits(answers[output.name], output.bits).all(axis=1)] = MISFIT
    return list(parts)


def element_labels(
    task: Task, x: Array, scales: Array | None, random: Array | None, got: Array, want: Array,
    tallies: Tallies, tensor: Array | None = None,
) -> Array:  # fmt: skip
    """Return the labels of every element, given the rows' scale codes and tensor scales."""
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
        alternative = right.element_codes(replace(task, overflow=other), x, scales, random, tensor)
        same = (got == alternative) | (got_nan & ((alternative & (sign - 1)) >= first_nan))
        magnitude = as_magnitudes(x, task.source)
        differs = alternative != want
        settle("infinity", differs & np.isinf(magnitude), same)
        settle("overflow", differs & np.isfinite(magnitude), same)
    else:
        _label_nan(task, x, got, labels, tallies)
    clean = ~wrong_codes(labels).any(
        axis=1, keepdims=True
    )  # rows with a wrong code do not show which choices were made
    for name, followed, kept in settled:
        tallies.add(Key(name), followed & clean, kept & clean)
    return labels


def _label_nan(task: Task, x: Array, got: Array, labels: Array, tallies: Tallies) -> None:
    """Label and count the answers to NaN inputs, for an element that has no NaN.

    An answer that follows a rule of `nan_codes` is a permitted choice.
    """
    nan = np.isnan(as_magnitudes(x, task.source))
    if not nan.any():
        return
    negative = sign_bits(x, task.source) != 0
    labels[nan] = BUG
    if not task.takes_nan:  # no code is right for NaN, but an answer must be a code: accept the largest
        labels[nan & (got == task.element.max_code)] = 0
    for name, (positive_code, negative_code) in nan_codes(task.element).items():
        followed = nan & (got == np.where(negative, negative_code, positive_code))
        by_choice = followed & (labels != 0)
        labels[by_choice] = LABELS["nan_element"]
        tally = tallies.nan_rules.setdefault(name, Consistency())
        tally.followed += int(by_choice.sum())
        tally.kept += int((nan & ~followed).sum())
    tallies.nan_became.update(got[nan].tolist())


def nan_codes(element: ElementFormat) -> dict[str, tuple[int, int]]:
    """Return the codes that replace +NaN and -NaN under each rule, for an element without NaN."""
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
    """Return True for each number that rounds to -2 or below in an element of wider range."""
    y = right.scaled(task, x, scales, tensor)
    signs = np.where(x >> (task.source.bits - 1), -1.0, 1.0)
    values = np.where(np.isnan(y), 0, signs * np.minimum(y, 4))
    wide = ElementFormat("wider", exponent_bits=2, mantissa_bits=task.element.mantissa_bits, bias=1)
    options = {"random_bits": np.ascontiguousarray(random), "sr_bits": task.sr_bits} if task.is_stochastic else {}
    codes = mx.encode(values, wide, rounding=task.rounding, **options)  # type: ignore[arg-type]
    return (signs < 0) & (mx.decode(codes, wide, dtype="float64") <= -2)


def block_labels(task: Task, inputs: Columns, answers: Columns, want: Columns, tallies: Tallies) -> Columns:
    """Return the labels of the scales and codes of blocks."""
    x, random, scale, got = inputs["x"], inputs.get("random"), answers["scale"], answers["codes"]
    of_scales = scale_labels(task, inputs, scale, want["scale"], tallies)
    of_codes = np.full(x.shape, UNJUDGED, np.int64)
    of_codes[~fits(got, task.element.bits)] = BUG
    # Codes are judged at the implementation's scale, unless this scale is wrong or NaN.
    rows = np.flatnonzero(((of_scales[:, 0] & BUG) == 0) & ~right.is_nan_scale(task, scale)[:, 0])
    if rows.size:
        words, tensor = (None if column is None else column[rows] for column in (random, right.tensor_scales(inputs)))
        wanted = right.element_codes(task, x[rows], scale[rows], words, tensor)
        of_codes[rows] = element_labels(task, x[rows], scale[rows], words, got[rows], wanted, tallies, tensor)
    return {"scale": of_scales, "codes": of_codes}


def scale_labels(task: Task, inputs: Columns, got: Array, want: Array, tallies: Tallies) -> Array:
    """Return the labels of the scale codes of blocks."""
    magnitude = as_magnitudes(inputs["x"], task.source)
    got, want = got[:, 0].astype(np.int64), want[:, 0].astype(np.int64)
    labels = np.where(got == want, 0, BUG)
    known = fits(got, task.scale_bits) & ~right.is_nan_scale(task, got)
    special = ~np.isfinite(magnitude).all(axis=1)
    zero = np.where(np.isfinite(magnitude), magnitude, 0).max(axis=1, initial=0) == 0
    other = Nonfinite.ELEMENT if task.nonfinite == Nonfinite.BLOCK else Nonfinite.BLOCK
    alternative = right.right_scales(replace(task, nonfinite=other), inputs)[:, 0]
    has_nan = np.isnan(magnitude).any(axis=1)
    for kind, rows in (("NaN", has_nan), ("infinity", special & ~has_nan)):
        # If a NaN or an infinity changes only its own element, a block whose finite numbers are all
        # zero counts as a block of zeros. Any scale code but NaN is permitted for such a block.
        followed = rows & (got != want) & ((got == alternative) | (zero & known))
        tallies.add(Key("nonfinite", kind), followed, rows & (got == want))
        labels[followed] = LABELS["nonfinite"]
        labels[followed & (got != alternative)] |= LABELS["zero_scale"]
    labels[zero & ~special & (got != want) & known] = LABELS["zero_scale"]
    by_element = zero & known & (~special | (labels == LABELS["nonfinite"] | LABELS["zero_scale"]))
    tallies.zero_scales.update(got[by_element].tolist())
    return labels.reshape(-1, 1)


def float_labels(target: ElementFormat, got: Array, want: Array, tallies: Tallies) -> Array:
    """Return the labels of dequantized floats and dot products."""
    sign = got.dtype.type(1 << (target.bits - 1))
    labels = np.where(got == want, 0, BUG)
    nan = ((want & ~sign) > target.max_code + 1) & ((got & ~sign) > target.max_code + 1) & (got != want)
    labels[nan] = LABELS["nan_code"]
    tallies.add(Key("nan_code"), nan, np.zeros(1, bool))
    minus = (want == sign) & (got == 0)
    labels[minus] = LABELS["minus_zero"]
    tallies.add(Key("minus_zero"), minus, (want == sign) & (got == want))
    return labels


def classify_blocks(task: Task, inputs: Columns) -> Array:
    """Return the class of each block, as an index into the task's class names."""
    names = task.operation.class_names(task)
    magnitude = as_magnitudes(inputs["x"], task.source)
    finite = np.isfinite(magnitude)
    largest = np.where(finite, magnitude, 0).max(axis=1, initial=0)
    block = right.right_scales(replace(task, nonfinite=Nonfinite.ELEMENT), inputs)[:, 0]
    number, tensor, scale = right.scale_numbers(task, block), right.tensor_scales(inputs), task.format.scale
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


def classify_values(target: ElementFormat, values: Array) -> Array:
    """Return an index into `VALUE_CLASSES` for each float."""
    value = as_magnitudes(values, target)
    found = np.full(len(value), VALUE_CLASSES.index("ordinary"))
    found[value < target.min_normal] = VALUE_CLASSES.index("subnormal result")
    found[value == 0] = VALUE_CLASSES.index("zero")
    found[np.isinf(value)] = VALUE_CLASSES.index("infinity")
    found[np.isnan(value)] = VALUE_CLASSES.index("NaN")
    return found


def wrong_codes(labels: Array) -> Array:
    """Return True for each label that marks a wrong scale or code."""
    return np.asarray((labels != UNJUDGED) & ((labels & BUG) != 0))


def place_of_largest(task: Task, x: Array) -> Array:
    """Return the index of the largest finite element in each block."""
    magnitude = as_magnitudes(x, task.source)
    return np.asarray(np.where(np.isfinite(magnitude), magnitude, -1).argmax(axis=1))


def direction(task: Task, got: Array, want: Array) -> Array:
    """Return 1 for a code that is too high, -1 for one that is too low, and 0 for the right code.

    The result is None for an answer that is not a code.
    """
    known = fits(got, task.element.bits)
    ranks = np.array([ordinal(task.element, code) for code in range(1 << task.element.bits)])
    steps = ranks[np.where(known, got, 0).astype(np.int64)] - ranks[want]
    return or_none(known, np.sign(steps))


def or_none(known: Array, values: Array) -> Array:
    """Return the values where `known` is True, and None elsewhere."""
    result = values.astype(object)
    result[~known] = None
    return result

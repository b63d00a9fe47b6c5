"""Mistakes that an implementation may make: other modes, common errors, and codes in another order.

Each hypothesis is a name and a function of a task and its inputs that gives one field of the
answers. For the codes of blocks, the column ``scale`` of the inputs holds the scale codes that were
answered. The column ``answered`` holds the answers to be explained, for hypotheses that leave a
part of them open. Names complete "what ... gives", or begin with "the right".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from mxnum.conformance.cases.grid import PLACES, as_magnitudes, neighbours, places, threshold
from mxnum.conformance.hypotheses import values as value_hypotheses
from mxnum.conformance.hypotheses.arrangements import orders
from mxnum.conformance.hypotheses.float_scales import answer_of_stack, applicable_stacks, codes, scales, values
from mxnum.conformance.judging.right import as_bits, as_floats, element_codes, expected, scaled, tensor_scales
from mxnum.conformance.task import Columns, Field, Task
from mxnum.formats import E8M0, FLOATS
from mxnum.memory.dtypes import Array, numpy_dtype
from mxnum.modes import Overflow, Rounding, ScaleRule, scale_rules

Answer = Callable[[Task, Columns], Array]
#: Rare scale rules. If a wrong comparison in another rule explains the answers too, it is named
#: first.
_SELDOM = (ScaleRule.HALF_UP, ScaleRule.FLOOR_PLUS_ONE)
#: Uncommon directions for ties, and the rounding mode that rounds ties that way.
_TIES = {
    "toward zero": Rounding.RTZ,
    "upward (floor(x + 1/2))": Rounding.RTP,
    "downward (ceil(x - 1/2))": Rounding.RTN,
    "to odd": Rounding.RTO,
}
#: The hypothesis for answers that are all zero. It may hold for one field alone.
ZEROS = "a kernel that leaves zeros"
#: Scale rules that add one at their threshold. The other rules with a threshold add one above it
#: only.
_FROM_THEIR_THRESHOLD = (ScaleRule.EVEN, ScaleRule.HALF_UP)


@dataclass(frozen=True)
class Hypothesis:
    """One way in which answers may have come about."""

    name: str
    #: The field of the answers that the hypothesis is about.
    field: str
    answer: Answer
    #: The stack of `mxnum.stacks` whose arithmetic the hypothesis is, if any.
    stack: str | None = None


def hypotheses(task: Task) -> list[Hypothesis]:
    """Return the hypotheses for an operation.

    The order matters: if several explain the same cases, the earliest is named first.
    """
    makers: dict[str, list[tuple[str, Callable[[Task], Iterator[tuple[str, Answer]]]]]] = {
        "encode": [("code", _elements)],
        "quantize": [("scale", _scales), ("codes", _elements), ("codes", _at_other_scales), ("codes", _orders)],
        "scale": [("scale", _scales)],
        "dequantize": [("value", value_hypotheses.values)],
        "dot": [("value", value_hypotheses.dots)],
    }
    if not task.format.scale.power_of_two:
        makers |= {
            "quantize": [
                ("scale", scales), ("scale", _scales_of_others),
                ("codes", codes), ("codes", _elements), ("codes", _orders),
            ],
            "scale": [("scale", scales), ("scale", _scales_of_others)],
            "dequantize": [("value", values), ("value", value_hypotheses.without_subnormals)],
        }  # fmt: skip
    found = [
        Hypothesis(f"{stack.name}'s arithmetic", field.name, answer_of_stack(stack, field.name), stack.name)
        for stack in applicable_stacks(task)
        for field in task.outputs
    ]
    found += [Hypothesis(name, field, made) for field, maker in makers[task.operation] for name, made in maker(task)]
    for field in task.outputs:
        zeros = Hypothesis(ZEROS, field.name, _zeros)
        found.append(zeros)
        if field.kind != "float":
            name = f"the right codes with other bits above their lowest {field.bits}"
            found.append(Hypothesis(name, field.name, _other_bits_above(field)))
    return found


def stuck_bits(task: Task) -> Iterator[Hypothesis]:
    """Yield the hypotheses that one bit of the codes never changes.

    They are tried on all cases only: a bit that is stuck in one class of cases is another mistake.
    """

    def stuck(field: Field, bit: int, at: int) -> Answer:
        def answer(task: Task, inputs: Columns) -> Array:
            code = right(task, inputs, field.name)
            mask = code.dtype.type(1 << bit)
            return np.asarray(code | mask if at else code & ~mask)

        return answer

    for field in task.outputs:
        if field.kind != "float":
            for bit, at in product(range(field.bits), (0, 1)):
                what = "scales" if field.kind == "scale" else "codes"
                yield Hypothesis(f"the right {what} with bit {bit} stuck at {at}", field.name, stuck(field, bit, at))


def pairs(task: Task) -> Iterator[Hypothesis]:
    """Yield hypotheses of two mistakes at once.

    They are one mistake under another rounding or scale rule, and the codes of one mistake in
    another order.
    """
    singles = hypotheses(task)
    others = {f"rounding {mode}": replace(task, rounding=mode) for mode in Rounding}
    rules = scale_rules(task.format)
    others |= {f"scale rule {rule}": replace(task, scale_rule=rule) for rule in rules}
    of_stacks = [one for one in singles if one.stack and one.field == "codes"]
    for mode in singles:
        if other := others.get(mode.name):
            for one in [*of_stacks, *(one for one in hypotheses(other) if not one.stack)]:
                if one.field == mode.field and not any(name in one.name for name in ("the right", *others)):
                    yield Hypothesis(f"{one.name} under {mode.name}", one.field, _under(other, one.answer))
    for name, change in orders(task.block, task.element.bits):
        for one in singles:
            if one.field == "codes" and not one.name.startswith("the right"):
                yield Hypothesis(f"{name}, after {one.name}", "codes", _ordered(change, one.answer))


def _under(other: Task, answer: Answer) -> Answer:
    return lambda task, inputs: answer(other, inputs)


def _ordered(change: Callable[[Array], Array], answer: Answer) -> Answer:
    def ordered(task: Task, inputs: Columns) -> Array:
        places = change(np.arange(task.block)[None])[0]
        return change(answer(task, {**inputs, "answered": inputs["answered"][:, np.argsort(places)]}))

    return ordered


def _zeros(task: Task, inputs: Columns) -> Array:
    return np.zeros_like(inputs["answered"])


def _other_bits_above(field: Field) -> Answer:
    def answer(task: Task, inputs: Columns) -> Array:
        got, want = inputs["answered"], right(task, inputs, field.name)
        return np.where((got & ((1 << field.bits) - 1)) == want, got, want)

    return answer


def right(task: Task, inputs: Columns, field: str) -> Array:
    """Return the right answers in a field; the codes of blocks are those for the scales that were answered."""
    if field == "codes":
        return element_codes(task, inputs["x"], inputs["scale"], inputs.get("random"), tensor_scales(inputs))
    answers: Array = expected(task, inputs)[field]
    return answers


def _codes(task: Task, inputs: Columns) -> Array:
    return right(task, inputs, "code" if task.operation == "encode" else "codes")


def _elements(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield names of mistakes in converting elements, and functions that give the resulting codes."""
    other = Overflow.IEEE if task.overflow == Overflow.SATURATE else Overflow.SATURATE
    overflows = (task.overflow, other) if task.element.nan_code is not None else (task.overflow,)
    for overflow in overflows:
        for mode in Rounding:
            if mode not in (task.rounding, Rounding.SR):
                also = "" if overflow == task.overflow else f" with overflow {overflow}"
                yield f"rounding {mode}{also}", _with(rounding=mode, overflow=overflow)
    if not task.is_stochastic:
        if task.rounding == Rounding.RNE:
            for where, mode in _TIES.items():
                yield f"rounding to nearest with ties {where}", _with_ties(mode)
            if task.element.nan_code is None and not task.element.integer:
                yield "the first nearest entry of a table of values", _first_of_table
        for step, where in ((1, "low"), (-1, "high")):
            yield f"a table of thresholds that are one ulp too {where}", _moved(_codes, step)
        if task.operation == "encode" or task.format.scale.power_of_two:
            for bits in (1, 2, 3):
                kept = f"{bits} bit{'s' * (bits > 1)} below the last place"
                yield f"a rounder with {kept} and no sticky bit", _without_sticky(bits)
    else:
        yield from _random_bits(task)
    yield from _inputs_read_otherwise(task, _codes)
    if not task.element.integer:
        yield "flushing subnormal results to zero", lambda t, i: _flushed(t, _codes(t, i))
    sign = 1 << (task.element.bits - 1)
    yield "losing all signs", lambda t, i: _codes(t, _magnitudes(t, i))
    yield "the opposite signs", lambda t, i: _codes(t, _negated(t, i))
    if task.element.integer:
        yield "sign and magnitude in place of two's complement", lambda t, i: _sign_and_magnitude(_codes(t, i), sign)
    if task.element.bits < 8:
        yield "codes with their sign extended to 8 bits", lambda t, i: _extended(_codes(t, i), sign, 256)
    yield "codes as negative numbers", lambda t, i: _extended(_codes(t, i), sign, 0)


def _with(**modes: object) -> Answer:
    return lambda task, inputs: _codes(replace(task, **modes), inputs)  # type: ignore[arg-type]


def _random_bits(task: Task) -> Iterator[tuple[str, Answer]]:
    low = np.uint32((1 << task.sr_bits) - 1)

    def drawn(change: Callable[[Array], Array]) -> Answer:
        return lambda t, i: _codes(t, {**i, "random": change(i["random"])})

    if task.sr_bits < 30:
        yield "sr_fraction", _nearest_fraction
        yield "sr_fraction (ties to even)", _nearest_fraction_to_even
    for r in sorted(range(1, 31), key=lambda r: abs(r - task.sr_bits)):
        if r != task.sr_bits:
            yield f"sr_bits ({r})", _with(sr_bits=r)
    high = np.uint32(32 - task.sr_bits)
    yield "the highest bits of the random words", drawn(lambda words: words >> high)
    yield "`>` for `>=` where random bits are added", drawn(lambda words: (words & low) - ((words & low) > 0))
    yield "random bits taken away from all ones", drawn(lambda words: low - (words & low))
    if task.operation == "quantize":
        yield "the random word of its first element for a whole block", drawn(lambda words: words[:, :1] + 0 * words)


def _nearest_fraction(task: Task, inputs: Columns) -> Array:
    """Return the codes if floor(F + 1/2) + R >= 2^r rounds away, where F is the fraction times 2^r.

    This equals the rule for r + 1 bits with the random word 2 R + 1.
    """
    words = (inputs["random"] & np.uint32((1 << task.sr_bits) - 1)) * np.uint32(2) + np.uint32(1)
    return _codes(replace(task, sr_bits=task.sr_bits + 1), {**inputs, "random": words})


def _nearest_fraction_to_even(task: Task, inputs: Columns) -> Array:
    """Return the codes of the nearest-fraction rule with ties of F, the fraction times 2^r, going to even."""
    y = scaled(task, inputs["x"], inputs.get("scale"), tensor_scales(inputs))
    known = np.where(np.isfinite(y), y, 0.0)
    below, above = neighbours(known, task.element)
    share = (known - below) / (above - below) * 2.0**task.sr_bits
    down = (share - np.floor(share) == 0.5) & (np.floor(share) % 2 == 0)
    return np.where(down, _codes(task, inputs), _nearest_fraction(task, inputs))


def _inputs_read_otherwise(task: Task, answer: Answer) -> Iterator[tuple[str, Answer]]:
    """Yield names of mistakes in reading inputs, and functions that give the right answers for what was read.

    Inputs lose their subnormals or are narrowed to another type.
    """

    def flushed(task: Task, inputs: Columns) -> Array:
        x = as_floats(inputs["x"], task.source)
        with np.errstate(all="ignore"):
            small = np.where(np.abs(x) < task.source.min_normal, x * x.dtype.type(0), x)
        return answer(task, {**inputs, "x": as_bits(small, task.source)})

    def narrowed(name: str) -> Answer:
        def narrow(task: Task, inputs: Columns) -> Array:
            x = as_floats(inputs["x"], task.source)
            with np.errstate(all="ignore"):
                rounded = x.astype(numpy_dtype(FLOATS[name])).astype(x.dtype)
            return answer(task, {**inputs, "x": as_bits(rounded, task.source)})

        return narrow

    def cut(task: Task, inputs: Columns) -> Array:
        return answer(task, {**inputs, "x": inputs["x"] & np.uint32(0xFFFF0000)})

    yield "reading subnormal inputs as zero", flushed
    if task.source.name == "float32":
        yield "cutting to bfloat16 first (the upper 16 bits)", cut
    for name in {"float64": ["float32"], "float32": ["bfloat16", "float16"]}.get(task.source.name, []):
        yield f"rounding to {name} first", narrowed(name)


def _moved(answer: Answer, step: int) -> Answer:
    """Return `moved(task, inputs)`, which gives the answers for numbers `step` ulps farther from zero.

    These are the answers of an implementation whose thresholds are `step` ulps too low.
    """

    def moved(task: Task, inputs: Columns) -> Array:
        x, most = inputs["x"], task.source.max_code
        magnitude = (x & x.dtype.type((1 << (task.source.bits - 1)) - 1)).astype(np.int64)
        finite = (magnitude > 0) & (magnitude <= most)
        near = np.where(finite, np.clip(magnitude + step, 1, most), magnitude).astype(x.dtype)
        return answer(task, {**inputs, "x": near | (x & x.dtype.type(1 << (task.source.bits - 1)))})

    return moved


def _without_sticky(bits: int) -> Answer:
    """Return `answer(task, inputs)`, which cuts numbers `bits` bits below the element's last place and rounds them."""

    def answer(task: Task, inputs: Columns) -> Array:
        scale = inputs.get("scale")
        y = scaled(task, inputs["x"], scale, tensor_scales(inputs))
        finite = np.isfinite(y)
        below, above = neighbours(np.where(finite, y, 0), task.element)
        unit = (above - below) / (1 << bits)
        with np.errstate(invalid="ignore"):
            kept = np.floor(y / unit) * unit
        kept = kept if scale is None else np.ldexp(kept, scale.astype(np.int64) - E8M0.bias)
        x = as_floats(inputs["x"], task.source)
        with np.errstate(all="ignore"):
            cut = np.where(finite, np.copysign(kept, x.astype(np.float64)).astype(x.dtype), x)
        return _codes(task, {**inputs, "x": as_bits(cut, task.source)})

    return answer


def _with_ties(mode: Rounding) -> Answer:
    def answer(task: Task, inputs: Columns) -> Array:
        y = scaled(task, inputs["x"], inputs.get("scale"), tensor_scales(inputs))
        tie = places(y, task.element) == PLACES.index("tie")
        return np.where(tie, _codes(replace(task, rounding=mode), inputs), _codes(task, inputs))

    return answer


def _first_of_table(task: Task, inputs: Columns) -> Array:
    """Return the codes of a search for the first nearest entry in a table of values.

    Ties go toward zero, and -0 becomes 0. So does infinity, which is infinitely far from every
    entry.
    """
    code = _with_ties(Rounding.RTZ)(task, inputs)
    no_nearest = np.isinf(as_magnitudes(inputs["x"], task.source))
    return np.where(no_nearest | (code == 1 << (task.element.bits - 1)), 0, code)


def _flushed(task: Task, code: Array) -> Array:
    e = task.element
    sign = 1 << (e.bits - 1)
    return np.where((code & (sign - 1)) < (1 << e.mantissa_bits), code & sign, code).astype(code.dtype)


def _magnitudes(task: Task, inputs: Columns) -> Columns:
    x = inputs["x"]
    return {**inputs, "x": x & x.dtype.type((1 << (task.source.bits - 1)) - 1)}


def _negated(task: Task, inputs: Columns) -> Columns:
    x = inputs["x"]
    return {**inputs, "x": x ^ x.dtype.type(1 << (task.source.bits - 1))}


def _sign_and_magnitude(codes: Array, sign: int) -> Array:
    return np.where(codes >= sign, sign | (2 * sign - codes.astype(np.int64)), codes)


def _extended(codes: Array, sign: int, full: int) -> Array:
    """Return codes as two's complement numbers, of eight bits if `full` is 256, or signed if it is 0."""
    wide = codes.astype(np.int64)
    return np.where(wide >= sign, wide - 2 * sign + full, wide)


def _at_other_scales(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield names of mistakes in reading scales, and functions that give the codes at the scales as read."""

    def read_as(code: int) -> Answer:
        def answer(task: Task, inputs: Columns) -> Array:
            scale = inputs["scale"]
            return _codes(task, {**inputs, "scale": np.where(scale == 0, np.uint8(code), scale)})

        return answer

    yield "reading scale 0x00 as 2^-126", read_as(1)
    yield "reading scale 0x00 as 1", read_as(E8M0.bias)


def _orders(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield names of orders, and functions that give the right codes in that order within their block."""
    for name, change in orders(task.block, task.element.bits):
        yield name, _ordered(change, _codes)


def _scales(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield names of mistakes in scale codes, and functions that give the resulting codes."""

    def scale(task: Task, inputs: Columns) -> Array:
        return right(task, {name: column for name, column in inputs.items() if name != "scale"}, "scale")

    def shifted(step: int) -> Answer:
        def shift(task: Task, inputs: Columns) -> Array:
            code = scale(task, inputs).astype(np.int64)
            return np.where(code == E8M0.nan_code, code, np.clip(code + step, 0, 254))

        return shift

    def by_rule(rule: ScaleRule) -> Answer:
        return lambda t, i: scale(replace(t, scale_rule=rule), i)

    def compared_otherwise(rule: ScaleRule) -> Answer:
        return lambda t, i: _compared_otherwise(replace(t, scale_rule=rule), i, scale)

    def at_least(low: int) -> Answer:
        return lambda t, i: np.maximum(scale(t, i), low)

    others = [rule for rule in ScaleRule if rule != task.scale_rule]
    for rule in others:
        if rule not in _SELDOM:
            yield f"scale rule {rule}", by_rule(rule)
    for rule in ScaleRule:
        if rule not in (ScaleRule.FLOOR, ScaleRule.FLOOR_PLUS_ONE):  # these two rules have no comparison
            written, meant = (">", ">=") if rule in _FROM_THEIR_THRESHOLD else (">=", ">")
            name = f"`{written}` for `{meant}` in scale rule {rule}"
            yield name, compared_otherwise(rule)
    if task.scale_rule not in (ScaleRule.FLOOR, ScaleRule.FLOOR_PLUS_ONE):
        for step, where in ((1, "one ulp too low"), (-1, "one ulp too high"), (2, "two ulps too low")):
            yield f"a threshold of scale rule {task.scale_rule} that is {where}", _moved(scale, step)
    for rule in others:
        if rule in _SELDOM:  # after the comparisons: a wrong comparison is likelier
            yield f"scale rule {rule}", by_rule(rule)
    yield "an exponent from a logarithm in float32", _by_logarithm
    yield "a logarithm in float32 of the maximum over the largest element", _by_logarithm_of_quotient
    yield "the largest scale for a block with infinity", lambda t, i: _of_infinity(t, i, scale, E8M0.bias)
    yield "infinity taken for 2^128", lambda t, i: _of_infinity(t, i, scale, 128 - t.element.emax)
    yield "a smallest scale code of 0x01", at_least(1)
    if task.source.emax - task.element.emax >= E8M0.bias:  # else no scale code reaches 0xFE
        yield "a largest scale code of 0xFD", lambda t, i: np.where(scale(t, i) == 254, 253, scale(t, i))
    yield "a scale code that is 1 higher", shifted(1)
    yield "a scale code that is 1 lower", shifted(-1)
    if task.element.emax:
        yield "a scale of the maximum alone, without emax", shifted(task.element.emax)
    yield from _scales_of_others(task)


def _scales_of_others(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield names of mistakes in which elements count, and functions that give the scale codes of these elements."""

    def scale(task: Task, inputs: Columns) -> Array:
        return right(task, {name: column for name, column in inputs.items() if name != "scale"}, "scale")

    yield "a scale of the first element alone", lambda t, i: scale(t, _first_only(i))
    yield "a scale of all elements but the last", lambda t, i: scale(t, _all_but_last(i))
    yield "a scale of the largest element, negative ones left out", lambda t, i: scale(t, _positive(t, i))
    yield from _inputs_read_otherwise(task, scale)


def _maxima(task: Task, inputs: Columns) -> tuple[Array, Array, Array]:
    """Return for each block whether a finite nonzero maximum decides its scale, and its fraction and exponent."""
    magnitude = as_magnitudes(inputs["x"], task.source)
    largest = np.where(np.isfinite(magnitude), magnitude, 0).max(axis=1, initial=0)
    decides = np.isfinite(magnitude).all(axis=1) & (largest > 0)
    fraction, exponent = np.frexp(np.where(decides, largest, 1))
    return decides, 2 * fraction, exponent.astype(np.int64) - 1


def _compared_otherwise(task: Task, inputs: Columns, scale: Answer) -> Array:
    """Return the scale codes if a maximum exactly at the rule's threshold goes the other way."""
    assert isinstance(task.scale_rule, ScaleRule)
    decides, fraction, exponent = _maxima(task, inputs)
    at = decides & (fraction == threshold(task.element, task.scale_rule))
    wanted = exponent - task.element.emax + (task.scale_rule not in _FROM_THEIR_THRESHOLD)
    code = np.clip(wanted, -E8M0.bias, E8M0.bias) + E8M0.bias
    return np.where(at, code, scale(task, inputs)[:, 0]).reshape(-1, 1)


def _by_logarithm(task: Task, inputs: Columns) -> Array:
    """Return the scales of rule floor with a float32 logarithm, which takes some maxima for the next power of two."""
    decides, fraction, exponent = _maxima(task, inputs)
    with np.errstate(all="ignore"):
        logarithm = np.floor(np.log2(np.ldexp(fraction, exponent)).astype(np.float32))
    code = np.clip(np.where(decides, logarithm, 0) - task.element.emax, -E8M0.bias, E8M0.bias) + E8M0.bias
    plain = expected(replace(task, operation="scale", scale_rule=ScaleRule.FLOOR), inputs)["scale"][:, 0]
    return np.where(decides, code, plain).astype(np.int64).reshape(-1, 1)


def _by_logarithm_of_quotient(task: Task, inputs: Columns) -> Array:
    """Return the scales of rule rceil with a quotient and a logarithm that are rounded to float32.

    A block with infinity gets the largest scale.
    """
    decides, fraction, exponent = _maxima(task, inputs)
    with np.errstate(all="ignore"):
        quotient = (np.ldexp(fraction, exponent) / task.element.max).astype(np.float32).astype(np.float64)
        logarithm = np.ceil(np.log2(quotient).astype(np.float32))
    code = np.clip(np.where(decides, logarithm, 0), -E8M0.bias, E8M0.bias) + E8M0.bias
    others = _of_infinity(task, inputs, lambda t, i: right(t, i, "scale"), E8M0.bias)[:, 0]
    return np.where(decides, code, others).astype(np.int64).reshape(-1, 1)


def _of_infinity(task: Task, inputs: Columns, scale: Answer, exponent: int) -> Array:
    """Return the scale codes, with that exponent for blocks that have infinity but no NaN."""
    magnitude = as_magnitudes(inputs["x"], task.source)
    rows = np.isinf(magnitude).any(axis=1, keepdims=True) & ~np.isnan(magnitude).any(axis=1, keepdims=True)
    code = min(max(exponent, -E8M0.bias), E8M0.bias) + E8M0.bias
    return np.where(rows, code, scale(task, inputs))


def _first_only(inputs: Columns) -> Columns:
    return {**inputs, "x": np.repeat(inputs["x"][:, :1], inputs["x"].shape[1], axis=1)}


def _all_but_last(inputs: Columns) -> Columns:
    x = inputs["x"].copy()
    x[:, -1] = x[:, 0] if x.shape[1] > 1 else 0
    return {**inputs, "x": x}


def _positive(task: Task, inputs: Columns) -> Columns:
    x = inputs["x"]
    return {**inputs, "x": np.where(x >> (task.source.bits - 1), x.dtype.type(0), x)}

"""Mistakes in converting numbers to element codes, and in reading numbers and scales."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from mxnum.conformance.bits import as_bits, as_floats, magnitude_bits, sign_bits
from mxnum.conformance.cases.grid import PLACES, as_magnitudes, neighbours, places
from mxnum.conformance.hypotheses.arrangements import orders
from mxnum.conformance.judging.right import quotients, right, with_answers
from mxnum.conformance.task import Answer, Columns, Task
from mxnum.formats import E8M0, ELEMENTS, FLOATS
from mxnum.memory.dtypes import Array, numpy_dtype
from mxnum.modes import Overflow, Rounding

#: Uncommon rules for ties, each with the mode that rounds all numbers as the rule rounds ties.
_TIES = {
    "toward zero": Rounding.RTZ,
    "upward (floor(x + 1/2))": Rounding.RTP,
    "downward (ceil(x - 1/2))": Rounding.RTN,
    "to odd": Rounding.RTO,
}


def _codes(task: Task, inputs: Columns) -> Array:
    return right(task, inputs, task.outputs[-1].name)


def roundings(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield (name, function) for each mistake in rounding or in the handling of overflow."""
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
                yield f"rounding to nearest with ties {where}", partial(_with_ties, mode)
            if not task.element.integer:
                others: dict[str, Answer] = {"away": _with(rounding=Rounding.RNA)}
                others |= {where: partial(_with_ties, mode) for where, mode in _TIES.items()}
                for where, answer in others.items():
                    yield f"ties between subnormals {where}", partial(_where_subnormal, answer)
            if task.element.nan_code is None and not task.element.integer:
                yield "a table search that takes the first of two equally near values", _first_of_table
    else:
        yield from _random_bits(task)


def elements(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield (name, function) for each mistake in converting numbers to element codes."""
    yield from roundings(task)
    if not task.is_stochastic:
        for step, where in ((1, "low"), (-1, "high")):
            yield f"a table of thresholds that are one ulp too {where}", moved(_codes, step)
        if not task.has_scales or task.format.scale.power_of_two:
            for bits in (1, 2, 3):
                kept = f"{bits} bit{'s' * (bits > 1)} below the last place"
                yield f"a rounder with {kept} and no sticky bit", partial(_without_sticky, bits)
    yield from inputs_read_otherwise(task, _codes)
    yield from codes_written_otherwise(task)
    yield "losing all signs", read_as(lambda t, x: magnitude_bits(x, t.source), _codes)
    yield "the opposite signs", read_as(lambda t, x: magnitude_bits(x, t.source) | sign_bits(~x, t.source), _codes)


def conversions(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield (name, function) for each mistake in converting codes to another element format."""
    source = task.source
    yield from roundings(task)
    yield "the codes unchanged", lambda t, i: i["x"]
    for other in ELEMENTS.values():
        if other.bits == source.bits and other != source:
            yield f"reading codes as {other.name}", _with(source=other)
    if source.integer:
        yield "reading two's complement codes as sign and magnitude", read_as(_of_signs, _codes)
    else:
        yield "reading subnormal codes as zero", read_as(_without_subnormals, _codes)
        yield "losing all signs", read_as(lambda t, x: magnitude_bits(x, t.source), _codes)
    yield from codes_written_otherwise(task)


def _of_signs(task: Task, x: Array) -> Array:
    """Read codes as sign and magnitude; return the two's complement codes of the same numbers."""
    sign = 1 << (task.source.bits - 1)
    return np.where(x >= sign, (0 - (x & (sign - 1))) & (2 * sign - 1), x)


def _without_subnormals(task: Task, x: Array) -> Array:
    small = magnitude_bits(x, task.source) < (1 << task.source.mantissa_bits)
    return np.where(small, sign_bits(x, task.source), x)


def codes_written_otherwise(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield (name, function) for each mistake in writing codes."""
    sign = 1 << (task.element.bits - 1)
    if not task.element.integer:
        yield "flushing subnormal results to zero", lambda t, i: _flushed(t, _codes(t, i))
    if task.element.integer:
        yield "sign and magnitude in place of two's complement", lambda t, i: _in_signs(_codes(t, i), sign)
    if task.element.bits < 8:
        yield "codes with their sign extended to 8 bits", lambda t, i: _extended(_codes(t, i), sign, 256)
    yield "writing codes as signed numbers", lambda t, i: _extended(_codes(t, i), sign, 0)


def _where_subnormal(answer: Answer, task: Task, inputs: Columns) -> Array:
    """Return the codes of `answer` where the quotient is subnormal, and right codes elsewhere."""
    return np.where(quotients(task, inputs) < task.element.min_normal, answer(task, inputs), _codes(task, inputs))


def _with(**modes: object) -> Answer:
    return lambda task, inputs: _codes(replace(task, **modes), inputs)  # type: ignore[arg-type]


def choices_of_bits(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield (name, function) for each legitimate way to use random bits in rounding."""
    if not task.is_stochastic:
        return
    if task.sr_bits < 30:
        yield "sr_fraction", _nearest_fraction
        yield "sr_fraction (ties to even)", _nearest_fraction_to_even
    for r in sorted(range(1, 31), key=lambda r: abs(r - task.sr_bits)):
        if r != task.sr_bits:
            yield f"sr_bits ({r})", _with(sr_bits=r)


def _random_bits(task: Task) -> Iterator[tuple[str, Answer]]:
    low, high = np.uint32((1 << task.sr_bits) - 1), np.uint32(32 - task.sr_bits)

    def drawn(change: Callable[[Array], Array]) -> Answer:
        return lambda t, i: _codes(t, {**i, "random": change(i["random"])})

    yield from choices_of_bits(task)
    yield "random bits from the top of each random word", drawn(lambda words: words >> high)
    yield "`>` in place of `>=` for fraction plus random bits", drawn(lambda words: (words & low) - ((words & low) > 0))
    yield "the complement of the random bits", drawn(lambda words: low - (words & low))
    if task.has_scales:
        yield "the random word of the first element for a whole block", drawn(lambda words: words[:, :1] + 0 * words)


def _nearest_fraction(task: Task, inputs: Columns) -> Array:
    """Return codes by the nearest-fraction rule, which rounds up if floor(F + 1/2) + R >= 2^r.

    F is the fraction of the gap times 2^r, and R is the random word of r bits. The nearest-fraction
    rule equals the library's rule for r + 1 bits with the random word 2 R + 1.
    """
    words = (inputs["random"] & np.uint32((1 << task.sr_bits) - 1)) * np.uint32(2) + np.uint32(1)
    return _codes(replace(task, sr_bits=task.sr_bits + 1), {**inputs, "random": words})


def _nearest_fraction_to_even(task: Task, inputs: Columns) -> Array:
    """Return the codes of the nearest-fraction rule with ties to even.

    A number is a tie if its fraction of the gap is halfway between two multiples of 2^-r.
    """
    y = quotients(task, inputs)
    known = np.where(np.isfinite(y), y, 0.0)
    below, above = neighbours(known, task.element)
    share = (known - below) / (above - below) * 2.0**task.sr_bits
    down = (share - np.floor(share) == 0.5) & (np.floor(share) % 2 == 0)
    return np.where(down, _codes(task, inputs), _nearest_fraction(task, inputs))


def read_as(change: Callable[[Task, Array], Array], answer: Answer) -> Answer:
    """Return a function that replaces the input x by `change(task, x)` and then calls `answer`."""
    return lambda task, inputs: answer(task, {**inputs, "x": change(task, inputs["x"])})


def inputs_read_otherwise(task: Task, answer: Answer) -> Iterator[tuple[str, Answer]]:
    """Yield (name, function) for each mistake in reading inputs.

    A mistake either reads subnormal numbers as zero, or first converts the input x to a narrower
    type. The function computes `answer` for the misread number.
    """

    def flushed(task: Task, bits: Array) -> Array:
        x = as_floats(bits, task.source)
        with np.errstate(all="ignore"):
            return as_bits(np.where(np.abs(x) < task.source.min_normal, x * x.dtype.type(0), x), task.source)

    def narrowed(name: str) -> Answer:
        def narrow(task: Task, bits: Array) -> Array:
            x = as_floats(bits, task.source)
            with np.errstate(all="ignore"):
                return as_bits(x.astype(numpy_dtype(FLOATS[name])).astype(x.dtype), task.source)

        return read_as(narrow, answer)

    yield "reading subnormal inputs as zero", read_as(flushed, answer)
    if task.source.name == "float32":
        cut = read_as(lambda _, x: x & np.uint32(0xFFFF0000), answer)
        yield "truncating to bfloat16 first (the upper 16 bits)", cut
    for name in {"float64": ["float32"], "float32": ["bfloat16", "float16"]}.get(task.source.name, []):
        yield f"rounding to {name} first", narrowed(name)


def moved(answer: Answer, step: int) -> Answer:
    """Return a function that computes answers as if all thresholds were `step` ulps too low.

    The function moves each number `step` ulps away from zero, which has the same effect.
    """

    def move(task: Task, x: Array) -> Array:
        magnitude, most = magnitude_bits(x, task.source).astype(np.int64), task.source.max_code
        finite = (magnitude > 0) & (magnitude <= most)
        near = np.where(finite, np.clip(magnitude + step, 1, most), magnitude).astype(x.dtype)
        return near | sign_bits(x, task.source)

    return read_as(move, answer)


def _without_sticky(bits: int, task: Task, inputs: Columns) -> Array:
    """Return the codes of a rounder that drops all but `bits` bits below the last place."""
    scale = inputs.get("scale")
    y = quotients(task, inputs)
    finite = np.isfinite(y)
    below, above = neighbours(np.where(finite, y, 0), task.element)
    unit = (above - below) / (1 << bits)
    x = as_floats(inputs["x"], task.source)
    with np.errstate(all="ignore"):
        kept = np.floor(y / unit) * unit
        kept = kept if scale is None else np.ldexp(kept, scale.astype(np.int64) - E8M0.bias)
        cut = np.where(finite, np.copysign(kept, x.astype(np.float64)).astype(x.dtype), x)
    return _codes(task, {**inputs, "x": as_bits(cut, task.source)})


def _with_ties(mode: Rounding, task: Task, inputs: Columns) -> Array:
    y = quotients(task, inputs)
    tie = places(y, task.element) == PLACES.index("tie")
    return np.where(tie, _codes(replace(task, rounding=mode), inputs), _codes(task, inputs))


def _first_of_table(task: Task, inputs: Columns) -> Array:
    """Return the codes of a table search that takes the first of equally near values.

    The search rounds ties toward zero, and returns the code of 0 instead of -0. It also returns 0
    for infinity, which is equally far from all values.
    """
    code = _with_ties(Rounding.RTZ, task, inputs)
    no_nearest = np.isinf(as_magnitudes(inputs["x"], task.source))
    return np.where(no_nearest | (code == 1 << (task.element.bits - 1)), 0, code)


def _flushed(task: Task, code: Array) -> Array:
    e = task.element
    sign = 1 << (e.bits - 1)
    return np.where((code & (sign - 1)) < (1 << e.mantissa_bits), code & sign, code).astype(code.dtype)


def _in_signs(codes: Array, sign: int) -> Array:
    return np.where(codes >= sign, sign | (2 * sign - codes.astype(np.int64)), codes)


def _extended(codes: Array, sign: int, full: int) -> Array:
    """Return the values of two's complement codes, with `full` added to negative values."""
    wide = codes.astype(np.int64)
    return np.where(wide >= sign, wide - 2 * sign + full, wide)


def at_other_scales(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield (name, function) for each mistake in reading scales."""

    def read_as(code: int) -> Answer:
        def answer(task: Task, inputs: Columns) -> Array:
            scale = inputs["scale"]
            return _codes(task, {**inputs, "scale": np.where(scale == 0, np.uint8(code), scale)})

        return answer

    yield "reading scale 0x00 as 2^-126", read_as(1)
    yield "reading scale 0x00 as 1", read_as(E8M0.bias)


def in_other_orders(task: Task) -> Iterator[tuple[str, Answer]]:
    """Yield (name, function) for each wrong order; the function puts right codes in this order."""
    for name, change in orders(task.block, task.element.bits):
        yield name, ordered(change, _codes)


def ordered(change: Callable[[Array], Array], answer: Answer) -> Answer:
    """Return a function that computes `answer` and reorders its codes with `change`."""

    def ordered(task: Task, inputs: Columns) -> Array:
        places = change(np.arange(task.block)[None])[0]
        return change(answer(task, with_answers(inputs, inputs["answered"][:, np.argsort(places)])))

    return ordered

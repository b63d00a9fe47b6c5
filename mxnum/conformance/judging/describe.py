"""Describe one difference in words: inputs, answer, right answer, distance, and the rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum.conformance.calling import NO_CODE
from mxnum.conformance.explain import explain_element, explain_scale, number
from mxnum.conformance.judging.judge import nan_codes, wrong_elements
from mxnum.conformance.judging.right import as_floats, element_codes, is_nan_scale, tensor_scales
from mxnum.conformance.task import Columns, Task
from mxnum.formats import ElementFormat
from mxnum.memory.dtypes import Array


def describe(task: Task, inputs: Columns, got: Columns, want: Columns) -> str:
    """Return a sentence or two about one case, whose columns have one row."""
    match task.operation:
        case "encode":
            x, random = int(inputs["x"][0, 0]), _random(inputs, 0)
            return element(task, x, None, random, int(got["code"][0, 0]), int(want["code"][0, 0]))
        case "quantize":
            return _block(task, inputs, got, want)
        case "scale":
            return f"{given(task, inputs)}: {scale(task, inputs, got, want)}"
        case "dequantize":
            return f"{given(task, inputs)}: {value(task.source, got, want)}"
        case _:
            return f"{given(task, inputs)}: {value(task.source, got, want)} by accumulation {task.accumulate}"


def describe_unknown(task: Task, inputs: Columns, written: str, want: Columns) -> str:
    """Return a sentence about an answer with unknown bits, as it was written."""
    right = [f"{int(number):0{field.digits}X}" for field in task.outputs for number in want[field.name][0]]
    return f"{given(task, inputs)}: got {shortened(written.split())}, unknown bits (X or Z), want {shortened(right)}"


def given(task: Task, inputs: Columns) -> str:
    """Return the inputs of a case in words."""
    match task.operation:
        case "encode":
            return number_text(task, int(inputs["x"][0, 0]), _random(inputs, 0))
        case "quantize" | "scale":
            return block_text(task, _there(inputs)) + _of_tensor(inputs)
        case "dequantize":
            code, s = int(inputs["code"][0, 0]), int(inputs["scale"][0, 0])
            meaning = f"code {hexadecimal(code, task.element.bits)} ({plain(task.element.value(code))}) at scale "
            return meaning + f"{scale_text(task, s)}{_of_tensor(inputs)}"
        case _:
            digits = 2 * ((task.scale_bits + 7) // 8)
            scales = [[f"{int(s):0{digits}X}" for s in inputs[name][0]] for name in ("a_scale", "b_scale")]
            codes = [shortened([hexadecimal(int(c), task.element.bits)[2:] for c in inputs[n][0]]) for n in ("a", "b")]
            return f"a = {codes[0]} at scales {' '.join(scales[0])}, b = {codes[1]} at {' '.join(scales[1])}"


def number_text(task: Task, x: int, random: int) -> str:
    """Return the bits and the value of a number in words, with its random word if rounding is stochastic."""
    value = plain(float(as_floats(np.array([x], f"u{task.source.bits // 8}"), task.source)[0]))
    return f"x = bits:{hexadecimal(x, task.source.bits)[2:]} ({value})" + (
        f", random 0x{random:08X}" if task.is_stochastic else ""
    )


def element(
    task: Task, x: int, scale_code: int | None, random: int, got: int, want: int, tensor: float | None = None
) -> str:
    """Return a sentence about one element code."""
    e = task.element
    steps = explain_element(task, x, scale_code, random, tensor)
    given = number_text(task, x, random)
    wanted = f"want {hexadecimal(want, e.bits)} ({plain(e.value(want))})"
    if not 0 <= got < 1 << e.bits:
        return f"{given}: got {misfit(got, e.bits)}, {wanted}. {steps.sentence()}"
    if np.isnan(steps.x) and e.nan_code is None:
        named = ", ".join(nan_codes(e))
        return (
            f"{given}: got {hexadecimal(got, e.bits)} ({plain(e.value(got))}), want one of: {named}. {steps.sentence()}"
        )
    text = f"{given}: got {hexadecimal(got, e.bits)} ({plain(e.value(got))}), {wanted}"
    distance = ordinal(e, got) - ordinal(e, want)
    if np.isfinite(e.value(got)) and np.isfinite(e.value(want)) and distance:
        text += f", {abs(distance)} code{'s' * (abs(distance) > 1)} too {'high' if distance > 0 else 'low'}"
    elif np.isfinite(e.value(got)) and distance == 0 and got != want:
        text += ", the sign of zero"
    return f"{text}. {steps.sentence()}"


def scale(task: Task, inputs: Columns, got: Columns, want: Columns) -> str:
    """Return a sentence about a scale code."""
    g, w = int(got["scale"][0, 0]), int(want["scale"][0, 0])
    fits = 0 <= g < 1 << task.scale_bits
    text = f"got scale {scale_text(task, g) if fits else misfit(g, task.scale_bits)}, want {scale_text(task, w)}"
    if fits and not is_nan_scale(task, np.array([g, w])).any():
        text += f", {abs(g - w)} too {'high' if g > w else 'low'}"
    return f"{text}. {explain_scale(task, inputs['x'][0], _tensor(inputs)).sentence()}"


def scale_text(task: Task, code: int) -> str:
    """Return a scale code and its value in words."""
    fmt, shown = task.format.scale, f"0x{code:0{(task.scale_bits + 3) // 4}X}"
    if bool(is_nan_scale(task, np.array(code))):
        return f"{shown} (NaN)"
    return f"{shown} ({f'2^{code - fmt.bias}' if fmt.power_of_two else plain(fmt.value(code))})"


def _tensor(inputs: Columns) -> float | None:
    found = tensor_scales(inputs)
    return None if found is None else float(found[0, 0])


def _of_tensor(inputs: Columns) -> str:
    """Return the tensor scale of a block in words; an empty string if there is none."""
    found = _tensor(inputs)
    return "" if found is None else f" (tensor scale {plain(found)})"


def value(target: ElementFormat, got: Columns, want: Columns) -> str:
    """Return a phrase about a dequantized float or a dot product."""
    g, w = int(got["value"][0, 0]), int(want["value"][0, 0])
    values = [float(as_floats(columns["value"], target)[0, 0]) for columns in (got, want)]
    text = f"got {hexadecimal(g, target.bits)} ({plain(values[0])}), "
    text += f"want {hexadecimal(w, target.bits)} ({plain(values[1])})"
    if all(np.isfinite(values)) and g != w:
        apart = abs(ordinal(target, g) - ordinal(target, w))
        text += f", {apart} float{'s' * (apart > 1)} apart" if apart else ", the sign of zero"
    return text


def _block(task: Task, inputs: Columns, got: Columns, want: Columns) -> str:
    x = inputs["x"][0]
    start, scale_bits = given(task, inputs), task.scale_bits
    s = int(got["scale"][0, 0])
    wrong = wrong_elements(task, inputs, got)
    codes, right = got["codes"][0], want["codes"][0]
    has_meaning = 0 <= s < 1 << scale_bits and not bool(is_nan_scale(task, np.array(s)))
    if s != int(want["scale"][0, 0]):
        if not wrong.size or not has_meaning:
            return f"{start}: {scale(task, inputs, got, want)}"
        right = element_codes(task, inputs["x"], got["scale"], inputs.get("random"), tensor_scales(inputs))[0]
        start += " (not a block of NaN by choice)" if is_nan_scale(task, want["scale"])[0, 0] else " (scale by choice)"
    if not wrong.size:  # other codes by choice
        differing = np.flatnonzero(codes != right)
        wrong = differing[:1] if differing.size else np.zeros(1, np.int64)
    # An element with another value is a better example than one with the other zero.
    valued = [i for i in wrong if not {int(codes[i]), int(right[i])} <= {0, _minus_zero(task.element)}]
    place = int(valued[0] if valued else wrong[0])
    if has_meaning:
        both = int(codes[place]), int(right[place])
        about = element(task, int(x[place]), s, _random(inputs, place), *both, _tensor(inputs))
        at = f"element {place} at scale {scale_text(task, s)}, {about}"
    elif not 0 <= int(codes[place]) < 1 << task.element.bits:
        at = f"element {place}: got {misfit(int(codes[place]), task.element.bits)}, want 0x{int(right[place]):X}."
    else:
        at = f"element codes in a block of NaN, element {place} 0x{int(codes[place]):X}."
    several = f"{len(wrong)} of its {_there(inputs).size} codes are wrong; " if len(wrong) > 1 else ""
    return f"{start}: {several}{at}"


def _there(inputs: Columns) -> Array:
    """Return the elements of a block, without the fill of a short one."""
    x: Array = inputs["x"][0]
    return x[~inputs["padding"][0]] if "padding" in inputs else x


def misfit(code: int, bits: int) -> str:
    """Return why a number is no code of that many bits, in words."""
    if code == NO_CODE:
        return "a value that no code gives"
    return f"{code}, which is negative" if code < 0 else f"0x{code:X}, which does not fit in {bits} bits"


def _minus_zero(e: ElementFormat) -> int:
    return 0 if e.integer else 1 << (e.bits - 1)


def block_text(task: Task, x: Any) -> str:
    """Return a block in words, short if it has few different numbers."""
    values = [f"{float(v):.9g}" for v in as_floats(np.atleast_2d(x), task.source)[0]]
    return f"x = [{shortened(values)}]"


def shortened(texts: list[str]) -> str:
    """Return the entries as one text.

    Equal neighbours are written once, with their count. Long lists lose their middle.
    """
    runs: list[tuple[str, int]] = []
    for text in texts:
        if runs and runs[-1][0] == text:
            runs[-1] = text, runs[-1][1] + 1
        else:
            runs.append((text, 1))
    shown = [text if count == 1 else f"{text} x{count}" for text, count in runs]
    return " ".join(shown if len(shown) <= 8 else [*shown[:5], "...", *shown[-2:]])


def hexadecimal(code: int, bits: int) -> str:
    """Return a code in hexadecimal with as many digits as its width needs."""
    return f"0x{code:0{(bits + 3) // 4}X}"


def plain(x: float) -> str:
    """Return a value as text for users."""
    return number(x) if np.isfinite(x) else str(x)


def code_text(task: Task, code: int) -> str:
    """Return a code with its value, as text."""
    if code >= 1 << task.element.bits:
        return f"what is no code of {task.element.bits} bits"
    return f"{plain(task.element.value(code))} ({hexadecimal(code, task.element.bits)})"


def ordinal(fmt: ElementFormat, code: int) -> int:
    """Return the rank of a code in the order of values; 0 for both zeros."""
    sign = 1 << (fmt.bits - 1)
    if fmt.integer:
        return code - 2 * sign if code & sign else code
    return -(code & (sign - 1)) if code & sign else code


def _random(inputs: Columns, place: int) -> int:
    return int(inputs["random"][0, place]) if "random" in inputs else 0

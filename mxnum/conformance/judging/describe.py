"""Describe in words how an implementation's answer differs from the right answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum.conformance.bits import as_floats, ordinal
from mxnum.conformance.explain import explain_element, explain_scale, number
from mxnum.conformance.judging.judge import nan_codes
from mxnum.conformance.judging.right import is_nan_scale, tensor_scales
from mxnum.conformance.task import Columns, Task
from mxnum.formats import FLOATS, ElementFormat
from mxnum.memory.dtypes import Array, code_dtype

#: The number that takes the place of a code if a value has no code.
NO_CODE = -(1 << 40)


def describe_unknown(task: Task, inputs: Columns, written: str, want: Columns) -> str:
    """Return a sentence that quotes an answer with unknown bits (digits x or z)."""
    right = [f"{int(number):0{field.digits}X}" for field in task.outputs for number in want[field.name][0]]
    got, given = shortened(written.split()), task.operation.given(task, inputs)
    return f"{given}: got {got} with unknown bits (X or Z), want {shortened(right)}"


def number_text(task: Task, x: int, random: int) -> str:
    """Return a number's bits and value in words, and its random word if rounding is stochastic."""
    value = plain(float(as_floats(np.array([x], code_dtype(task.source.bits)), task.source)[0]))
    code = hexadecimal(x, task.source.bits)
    named = f"bits:{code[2:]}" if task.source.name in FLOATS else f"{task.source.name} code {code}"
    return f"x = {named} ({value})" + (f", random 0x{random:08X}" if task.is_stochastic else "")


def element(
    task: Task, x: int, scale_code: int | None, random: int, got: int, want: int, tensor: float | None = None
) -> str:
    """Return a sentence that compares an element code with the right code."""
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
    """Return a sentence that compares a scale code with the right code."""
    g, w = int(got["scale"][0, 0]), int(want["scale"][0, 0])
    fits = 0 <= g < 1 << task.scale_bits
    text = f"got scale {scale_text(task, g) if fits else misfit(g, task.scale_bits)}, want {scale_text(task, w)}"
    if fits and not is_nan_scale(task, np.array([g, w])).any():
        text += f", {abs(g - w)} too {'high' if g > w else 'low'}"
    return f"{text}. {explain_scale(task, inputs['x'][0], tensor_of(inputs)).sentence()}"


def scale_text(task: Task, code: int) -> str:
    """Return a scale code and its value in words."""
    fmt, shown = task.format.scale, f"0x{code:0{(task.scale_bits + 3) // 4}X}"
    if bool(is_nan_scale(task, np.array(code))):
        return f"{shown} (NaN)"
    return f"{shown} ({f'2^{code - fmt.bias}' if fmt.power_of_two else plain(fmt.value(code))})"


def tensor_of(inputs: Columns) -> float | None:
    """Return the tensor scale of a case, or None if the format has no tensor scale."""
    found = tensor_scales(inputs)
    return None if found is None else float(found[0, 0])


def of_tensor(inputs: Columns) -> str:
    """Return the tensor scale of a block as text, or "" if the format has no tensor scale."""
    found = tensor_of(inputs)
    return "" if found is None else f" (tensor scale {plain(found)})"


def float_text(target: ElementFormat, bits: Array) -> str:
    """Return the bits and the value of a float in words."""
    return f"{hexadecimal(int(bits[0, 0]), target.bits)} ({plain(float(as_floats(bits, target)[0, 0]))})"


def value(target: ElementFormat, got: Columns, want: Columns) -> str:
    """Return a phrase that compares a dequantized float or a dot product with the right float."""
    g, w = int(got["value"][0, 0]), int(want["value"][0, 0])
    values = [float(as_floats(columns["value"], target)[0, 0]) for columns in (got, want)]
    text = f"got {float_text(target, got['value'])}, want {float_text(target, want['value'])}"
    if all(np.isfinite(values)) and g != w:
        apart = abs(ordinal(target, g) - ordinal(target, w))
        text += f", {apart} float{'s' * (apart > 1)} apart" if apart else ", the sign of zero"
    return text


def without_padding(inputs: Columns) -> Array:
    """Return the elements of a block, without the padding of a short block."""
    x: Array = inputs["x"][0]
    return x[~inputs["padding"][0]] if "padding" in inputs else x


def misfit(code: int, bits: int) -> str:
    """Return a phrase that says why a number is not a code of `bits` bits."""
    if code == NO_CODE:
        return "a value without a code"
    return f"{code}, which is negative" if code < 0 else f"0x{code:X}, which does not fit in {bits} bits"


def block_text(task: Task, x: Any) -> str:
    """Return the numbers of a block as text, with repeats counted and long lists shortened."""
    values = [f"{float(v):.9g}" for v in as_floats(np.atleast_2d(x), task.source)[0]]
    return f"x = [{shortened(values)}]"


def shortened(texts: list[str]) -> str:
    """Return entries as one text; count repeats, and omit the middle of a long list."""
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
        return f"a value that is no code of {task.element.bits} bits"
    return f"{plain(task.element.value(code))} ({hexadecimal(code, task.element.bits)})"


def random_word(inputs: Columns, place: int) -> int:
    """Return the random word of one number of a case, or 0 if the case has no random words."""
    return int(inputs["random"][0, place]) if "random" in inputs else 0

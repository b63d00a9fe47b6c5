"""One difference in words: what went in, what came out, what is right, how far off it is, and by which rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum.conformance.expected import as_floats, element_codes
from mxnum.conformance.explain import explain_element, explain_scale, number
from mxnum.conformance.judge import nan_codes, wrong_elements
from mxnum.conformance.task import Columns, Task
from mxnum.formats import E8M0, ElementFormat


def describe(task: Task, inputs: Columns, got: Columns, want: Columns) -> str:
    """A sentence or two about one case, whose columns have one row."""
    match task.operation:
        case "encode":
            x, random = int(inputs["x"][0, 0]), _random(inputs, 0)
            return element(task, x, E8M0.bias, random, int(got["code"][0, 0]), int(want["code"][0, 0]))
        case "quantize":
            return _block(task, inputs, got, want)
        case "scale":
            return f"{block_text(task, inputs['x'])}: {scale(task, inputs, got, want)}"
        case "dequantize":
            code, s = int(inputs["code"][0, 0]), int(inputs["scale"][0, 0])
            meaning = f"code {hexadecimal(code, task.element.bits)} ({plain(task.element.value(code))}) at scale "
            return meaning + f"0x{s:02X} ({_scale_value(s)}): {value(task.source, got, want)}"
        case _:
            scales = [[f"{int(s):02X}" for s in inputs[name][0]] for name in ("a_scale", "b_scale")]
            codes = [shortened([hexadecimal(int(c), task.element.bits)[2:] for c in inputs[n][0]]) for n in ("a", "b")]
            factors = f"a = {codes[0]} at scales {' '.join(scales[0])}, b = {codes[1]} at {' '.join(scales[1])}"
            return f"{factors}: {value(task.source, got, want)} by accumulation {task.accumulate}"


def element(task: Task, x: int, scale_code: int, random: int, got: int, want: int) -> str:
    """About one element code."""
    e = task.element
    steps = explain_element(task, x, scale_code, random)
    given = f"x = {hexadecimal(x, task.source.bits)} ({plain(steps.x)})"
    if task.is_stochastic:
        given += f", random 0x{random:08X}"
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
    """About a scale code."""
    g, w = int(got["scale"][0, 0]), int(want["scale"][0, 0])
    shown = f"0x{g:02X} ({_scale_value(g)})" if 0 <= g <= E8M0.nan_code else misfit(g, 8)
    text = f"got scale {shown}, want 0x{w:02X} ({_scale_value(w)})"
    if 0 <= g < E8M0.nan_code != w:
        text += f", {abs(g - w)} too {'high' if g > w else 'low'}"
    return f"{text}. {explain_scale(task, inputs['x'][0]).sentence()}"


def value(target: ElementFormat, got: Columns, want: Columns) -> str:
    """About a float that came out."""
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
    start = block_text(task, inputs["x"])
    s = int(got["scale"][0, 0])
    wrong = wrong_elements(task, inputs, got)
    codes, right = got["codes"][0], want["codes"][0]
    if s != int(want["scale"][0, 0]):
        if not wrong.size or not 0 <= s < E8M0.nan_code:
            return f"{start}: {scale(task, inputs, got, want)}"
        right = element_codes(task, inputs["x"], got["scale"].astype(np.uint8), inputs.get("random"))[0]
        start += (
            " (not a block of NaN by choice)" if int(want["scale"][0, 0]) == E8M0.nan_code else " (scale by choice)"
        )
    if not wrong.size:  # other codes by choice
        differing = np.flatnonzero(codes != right)
        wrong = differing[:1] if differing.size else np.zeros(1, np.int64)
    # An element with another value tells more than one with another zero.
    valued = [i for i in wrong if not {int(codes[i]), int(right[i])} <= {0, _minus_zero(task.element)}]
    place = int(valued[0] if valued else wrong[0])
    if 0 <= s < E8M0.nan_code:
        about = element(task, int(x[place]), s, _random(inputs, place), int(codes[place]), int(right[place]))
        at = f"element {place} at scale 0x{s:02X} ({_scale_value(s)}), {about}"
    elif not 0 <= int(codes[place]) < 1 << task.element.bits:
        at = f"element {place}: got {misfit(int(codes[place]), task.element.bits)}, want 0x{int(right[place]):X}."
    else:
        at = f"element codes in a block of NaN, element {place} 0x{int(codes[place]):X}."
    several = f"{len(wrong)} of its {len(x)} codes are wrong; " if len(wrong) > 1 else ""
    return f"{start}: {several}{at}"


def misfit(code: int, bits: int) -> str:
    """A number that is no code of so many bits, and why."""
    return f"{code}, which is negative" if code < 0 else f"0x{code:X}, which does not fit in {bits} bits"


def _minus_zero(e: ElementFormat) -> int:
    return 0 if e.integer else 1 << (e.bits - 1)


def block_text(task: Task, x: Any) -> str:
    """A block of few different numbers, shortly."""
    values = [f"{float(v):.9g}" for v in as_floats(np.atleast_2d(x), task.source)[0]]
    return f"x = [{shortened(values)}]"


def shortened(texts: list[str]) -> str:
    """Runs of equal entries are written once, with their count; long lists lose their middle."""
    runs: list[tuple[str, int]] = []
    for text in texts:
        if runs and runs[-1][0] == text:
            runs[-1] = text, runs[-1][1] + 1
        else:
            runs.append((text, 1))
    shown = [text if count == 1 else f"{text} x{count}" for text, count in runs]
    return " ".join(shown if len(shown) <= 8 else [*shown[:5], "...", *shown[-2:]])


def hexadecimal(code: int, bits: int) -> str:
    """A code with as many digits as its width needs."""
    return f"0x{code:0{(bits + 3) // 4}X}"


def plain(x: float) -> str:
    """A value for people."""
    return number(x) if np.isfinite(x) else str(x)


def ordinal(fmt: ElementFormat, code: int) -> int:
    """Codes in the order of their values; both zeros are 0."""
    sign = 1 << (fmt.bits - 1)
    if fmt.integer:
        return code - 2 * sign if code & sign else code
    return -(code & (sign - 1)) if code & sign else code


def _scale_value(code: int) -> str:
    return "NaN" if code == E8M0.nan_code else f"2^{code - E8M0.bias}"


def _random(inputs: Columns, place: int) -> int:
    return int(inputs["random"][0, place]) if "random" in inputs else 0

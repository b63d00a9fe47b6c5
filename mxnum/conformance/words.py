"""One difference in words: what went in, what came out, what is right, how far off it is, and by which rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxnum.conformance.expected import as_floats
from mxnum.conformance.explain import explain_element, explain_scale, number
from mxnum.conformance.judge import first_wrong_element
from mxnum.conformance.task import Columns, Task
from mxnum.formats import E8M0, ElementFormat


def describe(task: Task, inputs: Columns, got: Columns, want: Columns, line: int, part: str | None) -> str:
    """A sentence or two about one case, whose columns have one row."""
    where = f"line {line}" + (f" [{part}]" if part else "")
    match task.operation:
        case "encode":
            x, random = int(inputs["x"][0, 0]), _random(inputs, 0)
            body = element(task, x, E8M0.bias, random, int(got["code"][0, 0]), int(want["code"][0, 0]))
        case "quantize":
            body = _block(task, inputs, got, want)
        case "scale":
            body = f"{block_text(task, inputs['x'])}: {scale(task, inputs, got, want)}"
        case "dequantize":
            code, s = int(inputs["code"][0, 0]), int(inputs["scale"][0, 0])
            meaning = f"code {hexadecimal(code, task.element.bits)} ({plain(task.element.value(code))}) at scale "
            body = meaning + f"0x{s:02X} ({_scale_value(s)}): {value(task.source, got, want)}"
        case _:
            scales = [[f"{int(s):02X}" for s in inputs[name][0]] for name in ("a_scale", "b_scale")]
            codes = [shortened([hexadecimal(int(c), task.element.bits)[2:] for c in inputs[n][0]]) for n in ("a", "b")]
            body = f"a = {codes[0]} at scales {' '.join(scales[0])}, b = {codes[1]} at {' '.join(scales[1])}: "
            body += f"{value(task.source, got, want)} by accumulation {task.accumulate}"
    return f"{where}: {body}"


def element(task: Task, x: int, scale_code: int, random: int, got: int, want: int) -> str:
    """About one element code."""
    e = task.element
    steps = explain_element(task, x, scale_code, random)
    given = f"x = {hexadecimal(x, task.source.bits)} ({plain(steps.x)})"
    if task.is_stochastic:
        given += f", random 0x{random:08X}"
    text = (
        f"{given}: got {hexadecimal(got, e.bits)} ({plain(e.value(got))}), want {hexadecimal(want, e.bits)} "
        f"({plain(e.value(want))})"
    )
    distance = ordinal(e, got) - ordinal(e, want)
    if np.isfinite(e.value(got)) and np.isfinite(e.value(want)) and distance:
        text += f", {abs(distance)} code{'s' * (abs(distance) > 1)} too {'high' if distance > 0 else 'low'}"
    elif np.isfinite(e.value(got)) and distance == 0 and got != want:
        text += ", the sign of zero"
    return f"{text}. {steps.sentence()}"


def scale(task: Task, inputs: Columns, got: Columns, want: Columns) -> str:
    """About a scale code."""
    g, w = int(got["scale"][0, 0]), int(want["scale"][0, 0])
    text = f"got scale 0x{g:02X} ({_scale_value(g)}), want 0x{w:02X} ({_scale_value(w)})"
    if E8M0.nan_code not in (g, w):
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
    if not np.array_equal(got["scale"], want["scale"]):
        return f"{start}: {scale(task, inputs, got, want)}"
    s = int(got["scale"][0, 0])
    place = first_wrong_element(task, inputs, got)
    if place is None:
        differing = np.flatnonzero(got["codes"][0] != want["codes"][0])
        place = int(differing[0]) if differing.size else 0
    codes = int(got["codes"][0, place]), int(want["codes"][0, place])
    about = element(task, int(x[place]), s, _random(inputs, place), *codes)
    return f"{start}: element {place} at scale 0x{s:02X} ({_scale_value(s)}), {about}"


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

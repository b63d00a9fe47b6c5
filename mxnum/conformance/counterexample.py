"""Describe counterexamples in words, with a command that explains each of them."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import replace

from mxnum.conformance.explain import explain_element
from mxnum.conformance.operations import OPERATIONS
from mxnum.conformance.task import Task
from mxnum.formats import FLOATS, ElementFormat
from mxnum.prove.claims import Claim, Quantity
from mxnum.prove.verdict import Counterexample


def described(
    claim: Claim, inputs: Mapping[str, int], right: Mapping[str, int], found: Mapping[str, int | None]
) -> Counterexample:
    """Return a counterexample with a text that describes it and a command that explains it."""
    taken = [each for each in claim.inputs if each.name in inputs]
    said = ", ".join(f"{each.name} = {_text(each, inputs[each.name])}" for each in taken)
    answers = []
    for output in claim.outputs:
        answer = found[output.name]
        unknown = f"an answer that is undefined or does not fit in {output.bits} bits"
        given = unknown if answer is None else _text(output, answer)
        answers.append(f"{output.name} must be {_text(output, right[output.name])}, not {given}")
    lines = [f"For {said}: {'; '.join(answers)}."]
    explained = _of_float(claim, inputs)
    if claim.operation == "encode":
        lines.append(_steps(*explained))
    lines += _nan_settings(claim, inputs, right, found)
    return Counterexample(dict(inputs), dict(right), dict(found), "\n".join(lines), _command(*explained))


def _of_float(claim: Claim, inputs: Mapping[str, int]) -> tuple[Claim, Mapping[str, int]]:
    """Return the claim and its inputs; an element code as the input of `encode` becomes a float."""
    if claim.operation != "encode" or claim.source.name in FLOATS:
        return claim, inputs
    (x,) = struct.unpack("<I", struct.pack("<f", claim.source.value(inputs["x"])))
    number = Quantity("x", 32, FLOATS["float32"])
    return replace(claim, source=FLOATS["float32"], inputs=(number, *claim.inputs[1:])), {**inputs, "x": x}


def _nan_settings(
    claim: Claim, inputs: Mapping[str, int], right: Mapping[str, int], found: Mapping[str, int | None]
) -> list[str]:
    """Return advice for a counterexample with NaN: a list with one sentence, or an empty list.

    The sentence names the setting that accepts the answer or leaves out NaN inputs.
    """
    if claim.operation not in ("encode", "decode"):
        return []
    (output,) = claim.outputs
    number, answer = output.number, found[output.name]
    if number is None or answer is None:
        return []
    if math.isnan(number.value(right[output.name])) and math.isnan(number.value(answer)):
        return ["To count any NaN as a right answer, accept the choice nan_code."]
    if claim.operation == "encode" and number.specials == "none" and math.isnan(claim.source.value(inputs["x"])):
        return ["To leave out NaN inputs, assume not_nan."]
    return []


def _text(quantity: Quantity, bits: int) -> str:
    """Return the numbers of a quantity as text, each in decimal and in hexadecimal."""
    return " ".join(_one(quantity.number, each, quantity.bits) for each in quantity.parts(bits))


def _one(number: ElementFormat | None, bits: int, width: int) -> str:
    if number is None:
        return str(bits)
    value = number.value(bits)
    shown = "NaN" if math.isnan(value) else f"{value:.9g}"
    return f"{shown} (0x{bits:0{(width + 3) // 4}X})"


def _steps(claim: Claim, inputs: Mapping[str, int]) -> str:
    """Return the sentence with which `mxnum explain` explains the right answer."""
    encode = OPERATIONS["encode"]
    task = Task(encode, claim.format, claim.source, claim.rounding, overflow=claim.overflow, sr_bits=claim.sr_bits)
    return explain_element(task, inputs["x"], inputs.get("scale", 127), inputs.get("random", 0)).sentence()


def _command(claim: Claim, inputs: Mapping[str, int]) -> str:
    """Return a shell command that shows how the right answer is computed."""
    if claim.operation in ("decode", "dot"):
        scales = "".join(f" * E8M0.value({inputs.get(q.name, 127)})" for q in claim.inputs if q.number is None)
        value = f"value({inputs['code']:#x})" if "code" in inputs else ""
        if claim.operation == "dot":
            a, b = (each.parts(inputs[each.name]) for each in claim.inputs[:2])
            value = f"sum(value(a) * value(b) for a, b in zip({a}, {b}))"
        imports = f"from mxnum.formats import E8M0, element; value = element('{claim.format.element.name}').value"
        return f'python -c "{imports}; print({value}{scales})"'
    numbers = claim.inputs[0].parts(inputs[claim.inputs[0].name])
    values = " ".join(f"bits:{each:0{claim.source.bits // 4}X}" for each in numbers)
    words = ["mxnum explain", values, f"--format {claim.format.notation}"]
    if claim.operation == "encode":
        words.append(f"--scale {inputs.get('scale', 127)}")
    else:
        words.append(f"--scale-rule {claim.scale_rule}")
    if claim.source.name != "float32":
        words.append(f"--source {claim.source.name}")
    if claim.operation != "scale":
        words += [f"--rounding {claim.rounding}", f"--overflow {claim.overflow}"]
    if claim.operation == "quantize":
        words.append(f"--nonfinite {claim.nonfinite}")
    elif claim.rounding.is_stochastic and claim.operation == "encode":
        words += [f"--random {inputs['random']:X}", f"--sr-bits {claim.sr_bits}"]
    return " ".join(words)

"""The explorer: one HTML page that shows how numbers and blocks become codes.

The page contains the emitted JavaScript functions of all formats, rounding modes and scale rules,
each function once. The files in `web` draw the results of the JavaScript functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from importlib import resources
from itertools import product
from typing import Any
from urllib.parse import urlencode

import numpy as np

from mxnum import __version__, errors, formats
from mxnum.definition.by_hand import goes_away
from mxnum.definition.float_scale import WORD, make_float_scale, make_tensor_scale
from mxnum.definition.pack import limits, make_pack
from mxnum.definition.random import make_align_random
from mxnum.definition.unpack import make_unpack
from mxnum.emit.in_javascript import JavaScript
from mxnum.emit.model import CLAUSES, definition_of, make_is_finite, make_larger, settings_of
from mxnum.emit.program import Function, Program
from mxnum.formats import FLOATS, ElementFormat, MXFormat
from mxnum.modes import FloatScaleRule, Nonfinite, Overflow, Rounding, ScaleRule, scale_rule_of, scale_rules
from mxnum.output import palette

SOURCE = FLOATS["float32"]
#: The position of the leading bit in the significand of a number that a reader types. The last bit
#: of the significand is a sticky bit: 1 if the number does not fit in the bits before it, else 0.
TYPED_WIDTH = 40
#: The E2M1 code of 4. The four-over-six rules try two scales: one maps the largest number of a
#: block to 6, the other to 4.
_FOUR = 6
#: Functions that are the same for every format, under the names that the files in `web` use.
_SHARED = {
    "unpackFloat": (make_unpack(SOURCE, SOURCE.mantissa_bits), "unpack_float32", 32),
    "packFloat": (make_pack(SOURCE, Rounding.RNE, Overflow.IEEE, TYPED_WIDTH, WORD), "pack_float32", WORD),
    "larger": (make_larger(SOURCE), "larger", 32),
    "isFinite": (make_is_finite(SOURCE), "is_finite", 32),
    "alignRandom": (make_align_random(30), "align_random", 32),
}


class _Script(JavaScript):
    """A printer of JavaScript for the page's script, which exports no function."""

    def __init__(self) -> None:
        self.program = Program(CLAUSES)

    def is_exported(self, function: Function) -> bool:
        """Return False."""
        return False

    def functions(self) -> Iterator[str]:
        """Yield the lines of all functions."""
        for each in self.program.functions:
            yield from self.function(each)

    def closure(self, function: Function, *parameters: str) -> str:
        """Return a JavaScript arrow function that takes numbers and calls a program's function.

        The arrow function accepts all `parameters`, but passes only the parameters that the
        program's function reads.
        """
        wide = function.word == 64
        call = self.use(function, **{each: f"BigInt({each})" if wide else each for each in parameters})
        return f"({', '.join(parameters)}) => {f'Number({call})' if wide else call}"


def first_state(
    x: Any,
    format: str | MXFormat,
    rounding: str | Rounding,
    scale_rule: Any,
    overflow: str | Overflow,
    nonfinite: str | Nonfinite,
) -> tuple[MXFormat, dict[str, str]]:
    """Return the format, and the first state of the page as fields of a URL fragment."""
    fmt = formats.get(format)
    rule = scale_rule_of(fmt, scale_rule)
    policy = errors.choose_member("nonfinite", nonfinite, Nonfinite)
    errors.require(not policy.by_error, "nonfinite", "'block' or 'element' for a page", str(policy))
    state = {
        "format": fmt.name, "rule": str(rule), "rounding": str(errors.choose_member("rounding", rounding, Rounding)),
        "overflow": str(errors.choose_member("overflow", overflow, Overflow)), "nonfinite": str(policy),
    }  # fmt: skip
    if x is not None:
        numbers = np.asarray(x, np.float32).ravel()
        errors.require(0 < numbers.size <= fmt.block, "x", f"1 to {fmt.block} numbers for {fmt.name}", numbers.size)
        state["x"] = ".".join(f"{bits:08X}" for bits in numbers.view(np.uint32).tolist())
    return fmt, state


def explorer_page(start: Mapping[str, str], format: MXFormat) -> str:
    """Return the page; `start` is the first state of the page, as fields of a URL fragment.

    The page offers all named formats, and also `format` if it is not a named format.
    """
    script = _Script()
    named = [formats.get(name) for name in formats.names()]
    offered = named if format in named else [format, *(each for each in named if each.name != format.name)]
    shared = [f"{key}: {script.program.add(*given).name}" for key, given in _SHARED.items()]
    entries = [_entry(script, each) for each in offered]
    colours = {
        "sign": palette.VERMILION, "exponent": palette.BLUE, "mantissa": palette.GREEN, "largest": palette.ORANGE,
        "zero": palette.PURPLE, "sky": palette.SKY, "gray": palette.GRAY,
    }  # fmt: skip
    parts = {
        "MODELS": "\n".join(script.functions()),
        "SHARED": ", ".join(shared),
        "FORMATS": ",\n".join(entries),
        "MODES": json.dumps(_definitions()),
        "ROUNDINGS": json.dumps({str(mode): _decisions(mode) for mode in Rounding}),
        "START": json.dumps(urlencode(start)).replace("<", "\\u003c"),
        "TYPED_WIDTH": str(TYPED_WIDTH),
        "VERSION": __version__,
        "COLOURS": " ".join(f"--{name}: {colour};" for name, colour in colours.items()),
    }
    web = resources.files("mxnum.emit") / "web"
    text = (web / "page.html").read_text(encoding="utf-8")
    for name in ("style.css", "exact.js", "quantize.js", "explain.js", "page.js"):
        text = text.replace(f"/*{name}*/", (web / name).read_text(encoding="utf-8"))
    for name, value in parts.items():
        text = text.replace(f"/*{name}*/", value)
    return text


def _definitions() -> dict[str, str]:
    """Return a dictionary from the name of each mode to the mode's definition.

    The name of a rule for float scales gets the prefix "float ".
    """
    modes = {str(mode): str(mode.__doc__) for kind in (Rounding, ScaleRule, Overflow) for mode in kind}
    rules = {f"float {rule}": str(rule.__doc__) for rule in FloatScaleRule}
    absolute, squared = (f"float {rule}" for rule in FloatScaleRule if rule.error_power)
    return modes | rules | {squared: rules[absolute].replace("|x - value|", "(x - value)**2")}


def _decisions(mode: Rounding) -> dict[str, Any]:
    """Return a rounding mode's properties for the page; page.html describes the keys."""
    decisions = {"staysAtLargest": limits(mode)}
    if mode.is_stochastic:
        return decisions
    cases = product((False, True), (0, 1), (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)))
    away = [goes_away(rest, code, negative, mode, 0) for negative, code, rest in cases]
    return decisions | {"away": "".join(str(int(each)) for each in away)}


def _entry(script: _Script, fmt: MXFormat) -> str:
    """Return a format as a JavaScript object: values that the page shows, and functions."""
    element, has_tensor = fmt.element, fmt.tensor_scale is not None
    facts = {
        "name": fmt.name, "block": fmt.block, "element": _facts(element), "scaleName": fmt.scale.name,
        "scaleBits": fmt.scale.bits, "scaleNaN": fmt.scale.nan_code, "scaleMax": fmt.scale.max_code,
        "bias": fmt.scale.bias, "power": fmt.scale.power_of_two, "hasTensor": has_tensor,
        "bitsPerElement": fmt.bits_per_element, "rules": [str(rule) for rule in scale_rules(fmt)],
        "scaleNumber": None if fmt.scale.number is None else _facts(fmt.scale.number),
    }  # fmt: skip
    add, settings = script.program.add, settings_of(fmt, SOURCE.name, SOURCE.name, "rne", None, "saturate", "block", 30)
    _, decode, _, words = definition_of(settings)
    found = {
        "unpack": add(make_unpack(element, element.mantissa_bits), f"unpack_{element.name}", 32).name,
        "decode": script.closure(add(decode, f"decode_{_key(fmt)}", words[1]), "code", "scale", "tensor"),
        "encode": f"{{{', '.join(_encoders(script, fmt))}}}",
        "findScale": f"{{{', '.join(_scale_rules(script, fmt))}}}",
    }
    if has_tensor:
        made = add(make_tensor_scale(SOURCE, element, fmt.scale), f"tensor_scale_{_key(fmt)}", WORD)
        found["tensorScale"] = script.closure(made, "amax")
    number = fmt.scale.number
    if number is not None:
        unpack = add(make_unpack(number, number.mantissa_bits), f"unpack_scale_{fmt.scale.name}", 32)
        found["unpackScale"] = unpack.name
    functions = ",\n  ".join(f"{name}: {text}" for name, text in found.items())
    return f"{json.dumps(facts)[:-1]},\n  {functions}}}"


def _key(fmt: MXFormat) -> str:
    """Return the part of a function's name that identifies the format."""
    text = fmt.element.name if fmt.scale.power_of_two else fmt.name
    return "".join(letter if letter.isalnum() else "_" for letter in text)


def _facts(number: ElementFormat) -> dict[str, object]:
    """Return the facts about an element that the page shows."""
    return {
        "name": number.name, "bits": number.bits, "exponentBits": number.exponent_bits,
        "mantissaBits": number.mantissa_bits, "integer": number.integer, "specials": number.specials,
        "maxCode": number.max_code, "nanCode": number.nan_code, "emin": number.emin, "emax": number.emax,
    }  # fmt: skip


def _encoders(script: _Script, fmt: MXFormat) -> Iterator[str]:
    """Yield, for each overflow mode of the element, the encoders of all rounding modes."""
    for overflow in Overflow:
        if overflow.of(fmt.element.specials) != overflow:
            continue
        closures = []
        for rounding in Rounding:
            settings = settings_of(fmt, SOURCE.name, SOURCE.name, rounding, None, overflow, Nonfinite.BLOCK, 30)
            encode, _, _, (word, _) = definition_of(settings)
            suffix = "" if overflow.saturates else f"_{overflow}"
            made = script.program.add(encode, f"encode_{_key(fmt)}_{rounding}{suffix}", word)
            closures.append(f"{rounding}: {script.closure(made, 'x', 'scale', 'tensor', 'random')}")
        yield f"{overflow}: {{{', '.join(closures)}}}"


def _scale_rules(script: _Script, fmt: MXFormat) -> Iterator[str]:
    """Yield, for each scale rule, the functions that find a scale.

    A rule that tries two scales has two functions. The first finds the scale that maps the block's
    maximum to 6; the second finds the scale that maps the maximum to 4.
    """

    def closure(rule: ScaleRule | FloatScaleRule, aim: int | None = None) -> str:
        name = f"scale_{_key(fmt)}_{rule}{'' if aim is None else '_aiming_at_4'}"
        if isinstance(rule, FloatScaleRule):
            made = make_float_scale(SOURCE, fmt.element, fmt.scale, rule, aim)
            return script.closure(script.program.add(made, name, WORD), "amax", "tensor")
        settings = settings_of(fmt, SOURCE.name, SOURCE.name, "rne", rule, "saturate", "block", 30)
        _, _, found, (word, _) = definition_of(settings)
        return script.closure(script.program.add(found, name, word), "amax", "tensor")

    for rule in scale_rules(fmt):
        if isinstance(rule, FloatScaleRule) and rule.error_power:
            pair = closure(FloatScaleRule.NEAREST), closure(FloatScaleRule.NEAREST, _FOUR)
            yield f"{rule}: {{power: {rule.error_power}, candidates: [{', '.join(pair)}]}}"
        else:
            yield f"{rule}: {{candidates: [{closure(rule)}]}}"

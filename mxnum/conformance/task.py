"""The task of a check: an operation, a format and the modes; and the fields of one case."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import mxnum
from mxnum import errors, formats
from mxnum.formats import FLOATS, ElementFormat, MXFormat
from mxnum.memory.dtypes import Array
from mxnum.modes import Accumulate, FloatScaleRule, Nonfinite, Overflow, Rounding, ScaleRule, scale_rule_of

OPERATIONS = {
    "encode": "a number to an element code, at scale 1",
    "quantize": "a block of numbers to a scale code and element codes",
    "dequantize": "a scale code and an element code to a number",
    "scale": "a block of numbers to its scale code",
    "dot": "two rows of blocks to their dot product in float32",
}

#: For each setting, the operations whose answers it decides.
DECIDES = {
    "source": ("encode", "quantize", "dequantize", "scale"),
    "rounding": ("encode", "quantize"),
    "scale_rule": ("quantize", "scale"),
    "overflow": ("encode", "quantize"),
    "nonfinite": ("quantize", "scale"),
    "sr_bits": ("encode", "quantize"),
    "accumulate": ("dot",),
    "dot_blocks": ("dot",),
    "block": ("quantize", "scale", "dot"),
}

#: The keys that a header of vectors may state; other lines are comments.
HEADER = (
    *("operation", "format", "block", "source", "result", "rounding", "scale_rule", "overflow", "nonfinite", "sr_bits"),
    *("accumulate", "dot_blocks", "inputs", "outputs", "mxnum", "level", "seed", "cases", "answers"),
)

#: The fields of many cases: for each field name an array (cases, numbers) of unsigned integers.
Columns = dict[str, Array]


@dataclass(frozen=True)
class Field:
    """A field of each case: `count` numbers of one kind, written in hexadecimal."""

    name: str
    bits: int
    count: int
    #: ``float`` (a bit pattern of the float type), ``element``, ``scale``, ``tensor`` or
    #: ``random``.
    kind: str

    @property
    def digits(self) -> int:
        return (self.bits + 3) // 4


@dataclass(frozen=True)
class Task:
    """An operation with everything that decides its answers."""

    operation: str
    format: MXFormat
    #: The type of the input numbers; for dequantize, of the output numbers.
    source: ElementFormat = FLOATS["float32"]
    rounding: Rounding = Rounding.RNE
    scale_rule: ScaleRule | FloatScaleRule = ScaleRule.FLOOR
    overflow: Overflow = Overflow.SATURATE
    nonfinite: Nonfinite = Nonfinite.BLOCK
    sr_bits: int = 30
    accumulate: Accumulate = Accumulate.BLOCK
    #: Number of blocks in each operand of a dot product. Four blocks show the order in which they
    #: are added.
    dot_blocks: int = 4

    @property
    def element(self) -> ElementFormat:
        return self.format.element

    @property
    def block(self) -> int:
        return self.format.block

    @property
    def scale_bits(self) -> int:
        """Width of a scale code. Float scales are never negative, so their sign bit does not count."""
        scale = self.format.scale
        return scale.bits if scale.number is None else scale.number.bits - 1

    @property
    def has_tensor(self) -> bool:
        """True if each case is a part of a tensor with a tensor scale. In dot products all tensor scales are 1."""
        return self.format.tensor_scale is not None and self.operation not in ("encode", "dot")

    @property
    def is_stochastic(self) -> bool:
        return self.rounding.is_stochastic and self.operation in DECIDES["rounding"]

    @property
    def takes_nan(self) -> bool:
        """True if a NaN among the inputs has a defined answer."""
        by_element = self.operation == "encode" or self.nonfinite.by_element
        return not by_element or self.element.nan_code is not None or self.operation == "scale"

    @property
    def inputs(self) -> tuple[Field, ...]:
        """The fields that an implementation receives."""
        element, width, k = self.element.bits, self.source.bits, self.block
        length = k * self.dot_blocks
        match self.operation:
            case "encode":
                fields = [Field("x", width, 1, "float")]
            case "quantize" | "scale":
                fields = [Field("x", width, k, "float")]
            case "dequantize":
                fields = [Field("scale", self.scale_bits, 1, "scale"), Field("code", element, 1, "element")]
            case _:
                sides = [(f"{side}_scale", side) for side in ("a", "b")]
                fields = []
                for scale, codes in sides:
                    scales = Field(scale, self.scale_bits, self.dot_blocks, "scale")
                    fields += [scales, Field(codes, element, length, "element")]
        if self.is_stochastic:
            fields.append(Field("random", 32, fields[0].count, "random"))
        if self.has_tensor:
            fields += [Field("largest", width, 1, "tensor"), Field("tensor_scale", 32, 1, "tensor")]
        return tuple(fields)

    @property
    def outputs(self) -> tuple[Field, ...]:
        """The fields that an implementation answers."""
        code = Field("code", self.element.bits, 1, "element")
        match self.operation:
            case "encode":
                return (code,)
            case "quantize":
                return Field("scale", self.scale_bits, 1, "scale"), replace(code, name="codes", count=self.block)
            case "scale":
                return (Field("scale", self.scale_bits, 1, "scale"),)
            case _:
                return (Field("value", self.source.bits, 1, "float"),)

    def header(self) -> dict[str, str]:
        """Return the keys and values in the header of a file of vectors, in order."""
        known = self.format.name in formats.names() and formats.get(self.format.name).element == self.element
        name = self.format.name if known else self.format.notation
        facts = {"operation": self.operation, "format": name, "block": str(self.block)}
        if self.operation in DECIDES["source"]:
            facts["source" if self.operation != "dequantize" else "result"] = self.source.name
        if self.operation in DECIDES["rounding"]:
            facts |= {"rounding": self.rounding.value, "overflow": self.overflow.value}
        if self.operation in DECIDES["scale_rule"]:
            facts |= {"scale_rule": self.scale_rule.value, "nonfinite": self.nonfinite.value}
        if self.is_stochastic:
            facts["sr_bits"] = str(self.sr_bits)
        if self.operation in DECIDES["accumulate"]:
            facts |= {"accumulate": self.accumulate.value, "dot_blocks": str(self.dot_blocks)}
        facts["inputs"] = " ".join(f"{field.name}[{field.count}]" for field in self.inputs)
        facts["outputs"] = " ".join(f"{field.name}[{field.count}]" for field in self.outputs)
        facts["mxnum"] = mxnum.__version__
        return facts

    @classmethod
    def from_header(cls, facts: Mapping[str, str]) -> Task:
        """Return the task that the header of a file of vectors states."""
        for key in ("operation", "format"):
            if key not in facts:
                raise ValueError(f"The header of the vectors must have a line '# {key}: ...'.")
        for key in facts.keys() - set(HEADER):
            if close := difflib.get_close_matches(key.lower().replace("-", "_"), HEADER, n=1, cutoff=0.8):
                raise ValueError(
                    f"The header of the vectors has a line '# {key}: ...'; did you mean '# {close[0]}: ...'?"
                )
        given: dict[str, Any] = {key: facts[key] for key in DECIDES if key in facts and key != "block"}
        if "result" in facts:
            given["source"] = facts["result"]
        task = make_task(facts["operation"], in_blocks(facts["format"], facts.get("block")), **given)
        if task.is_stochastic and "sr_bits" not in facts:
            raise ValueError("The header of the vectors must have a line '# sr_bits: ...' under '# rounding: sr'.")
        return task


def make_task(
    operation: str,
    format: str | MXFormat,
    *,
    source: str | None = None,
    rounding: str | None = None,
    scale_rule: str | None = None,
    overflow: str | None = None,
    nonfinite: str | None = None,
    sr_bits: int | str | None = None,
    accumulate: str | None = None,
    dot_blocks: int | str | None = None,
    block: int | str | None = None,
) -> Task:
    """Make a task from strings and numbers as users write them. `format` may also be the name of an element.

    Missing settings have the defaults of `Task`, except that `scale_rule` has the default of
    `mxnum.quantize` and `accumulate` is ``"exact"`` if scales are floats. A setting that has no
    effect on the answers raises ValueError.
    """
    given: dict[str, Any] = {key: value for key, value in locals().items() if key in DECIDES and value is not None}
    operation = errors.choose("operation", operation, tuple(OPERATIONS))
    for name in given:
        if operation not in DECIDES[name]:
            accepted = errors.joined(DECIDES[name])
            raise ValueError(f"Argument {name!r} must be left out for {operation!r}; it is for {accepted}.")
    fmt = in_blocks(format, block)
    rule = scale_rule_of(fmt, given.get("scale_rule"))
    ways = Accumulate.BLOCK, Accumulate.EXACT, Accumulate.SEQUENTIAL
    mode = errors.choose_member("accumulate", given.get("accumulate", _of_kind(fmt)[0]), ways)
    if operation == "dot":
        names = " or ".join(repr(str(each)) for each in _of_kind(fmt))
        accepted = f"{names} for {fmt.name}, whose scales are {formats.scale_names(fmt)}"
        errors.require(mode in _of_kind(fmt), "accumulate", accepted, str(mode))
    checks: dict[str, Callable[[Any], Any]] = {
        "source": lambda value: FLOATS[errors.choose("source", value, tuple(FLOATS))],
        "rounding": lambda value: errors.choose_member("rounding", value, Rounding),
        "overflow": lambda value: errors.choose_member("overflow", value, Overflow),
        "nonfinite": lambda value: errors.choose_member("nonfinite", value, (Nonfinite.BLOCK, Nonfinite.ELEMENT)),
        "sr_bits": lambda value: _integer("sr_bits", value, 1, 30),
        "dot_blocks": lambda value: _integer("dot_blocks", value, 1, 64),
    }
    checked = {name: check(given[name]) for name, check in checks.items() if name in given}
    task = Task(operation, fmt, scale_rule=rule, accumulate=mode, **checked)
    if "sr_bits" in given and not task.is_stochastic:
        raise ValueError(without_bits("sr_bits", task.rounding))
    return task


def without_bits(argument: str, rounding: Rounding) -> str:
    """Return the error message for an argument about random bits if the rounding draws none."""
    return f"Argument {argument!r} must be left out for rounding='{rounding}', which draws no random bits."


def in_blocks(format: str | MXFormat, block: int | str | None) -> MXFormat:
    """Return the format, or an element's default format, with blocks of `block` elements if `block` is given."""
    fmt = formats.of_element(format) if isinstance(format, str) and format in formats.ELEMENTS else formats.get(format)
    if block is None or _integer("block", block, 1, 4096) == fmt.block:
        return fmt
    name = fmt.name if fmt.name in formats.names() else ""
    return MXFormat(fmt.element, fmt.scale, int(block), name, fmt.tensor_scale)


def known(modes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the keywords of a call that go to `make_task`. Raise if one of them is unknown."""
    for name in modes:
        errors.choose("modes", name, tuple(make_task.__kwdefaults__ or ()))
    return modes


def _of_kind(fmt: MXFormat) -> tuple[Accumulate, ...]:
    """Return the accumulations that are possible with a format's scales. The first is the default."""
    exact = Accumulate.EXACT, Accumulate.SEQUENTIAL
    return (Accumulate.BLOCK, *exact) if fmt.scale.power_of_two else exact


def _integer(argument: str, value: int | str, low: int, high: int) -> int:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return errors.integer(argument, value, low, high)

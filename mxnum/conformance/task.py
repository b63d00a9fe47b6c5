"""What is tested: an operation, a format, and the modes; and the fields of one case."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import mxnum
from mxnum import errors, formats
from mxnum.dtypes import Array
from mxnum.formats import FLOATS, ElementFormat, MXFormat
from mxnum.modes import Accumulate, FloatScaleRule, Nonfinite, Overflow, Rounding, ScaleRule, scale_rules

OPERATIONS = {
    "encode": "a number to an element code, at scale 1",
    "quantize": "a block of numbers to a scale code and element codes",
    "dequantize": "a scale code and an element code to a number",
    "scale": "a block of numbers to its scale code",
    "dot": "two rows of blocks to their dot product in float32",
}

#: The operations whose answers a setting decides.
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

#: What a header of vectors may say; other lines are comments.
HEADER = (
    *("operation", "format", "block", "source", "result", "rounding", "scale_rule", "overflow", "nonfinite", "sr_bits"),
    *("accumulate", "dot_blocks", "inputs", "outputs", "mxnum", "level", "seed", "cases", "answers"),
)

#: Columns of one kind, many cases: an array (cases, fields) of unsigned integers for each name.
Columns = dict[str, Array]


@dataclass(frozen=True)
class Field:
    """So many numbers of one kind in each case, written in hexadecimal."""

    name: str
    bits: int
    count: int
    #: ``float`` (a bit pattern of the float type), ``element``, ``scale``, ``tensor`` or ``random``.
    kind: str

    @property
    def digits(self) -> int:
        return (self.bits + 3) // 4


@dataclass(frozen=True)
class Task:
    """An operation with everything that decides its answers."""

    operation: str
    format: MXFormat
    #: The type of the numbers that go in, or for dequantize that come out.
    source: ElementFormat = FLOATS["float32"]
    rounding: Rounding = Rounding.RNE
    scale_rule: ScaleRule | FloatScaleRule = ScaleRule.FLOOR
    overflow: Overflow = Overflow.SATURATE
    nonfinite: Nonfinite = Nonfinite.BLOCK
    sr_bits: int = 30
    accumulate: Accumulate = Accumulate.BLOCK
    #: Blocks in each operand of a dot product.
    dot_blocks: int = 2

    @property
    def element(self) -> ElementFormat:
        return self.format.element

    @property
    def block(self) -> int:
        return self.format.block

    @property
    def scale_bits(self) -> int:
        """Width of a scale code; floats have no sign."""
        scale = self.format.scale
        return scale.bits if scale.number is None else scale.number.bits - 1

    @property
    def has_tensor(self) -> bool:
        """Whether each case is a part of a tensor that has a scale of its own; in dot products these are 1."""
        return self.format.tensor_scale is not None and self.operation not in ("encode", "dot")

    @property
    def is_stochastic(self) -> bool:
        return self.rounding.is_stochastic and self.operation in DECIDES["rounding"]

    @property
    def takes_nan(self) -> bool:
        """Whether a NaN among the inputs has a defined answer."""
        by_element = self.operation == "encode" or self.nonfinite.by_element
        return not by_element or self.element.nan_code is not None or self.operation == "scale"

    @property
    def inputs(self) -> tuple[Field, ...]:
        """The fields an implementation is given."""
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
        """The fields an implementation answers."""
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
        """What the head of a file of vectors says, in order."""
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
        """The task that a file of vectors states."""
        for key in ("operation", "format"):
            if key not in facts:
                raise ValueError(f"The header of the vectors must have a line '# {key}: ...'.")
        for key in facts.keys() - set(HEADER):
            if close := difflib.get_close_matches(key.lower().replace("-", "_"), HEADER, n=1, cutoff=0.8):
                raise ValueError(
                    f"The header of the vectors has a line '# {key}: ...'; did you mean '# {close[0]}: ...'?"
                )
        given: dict[str, Any] = {
            key: facts[key]
            for key in ("rounding", "scale_rule", "overflow", "nonfinite", "accumulate", "source", "block")
            if key in facts
        }
        given |= {key: facts[key] for key in ("sr_bits", "dot_blocks") if key in facts}
        if "result" in facts:
            given["source"] = facts["result"]
        task = make_task(facts["operation"], facts["format"], **given)
        if task.is_stochastic and "sr_bits" not in facts:
            raise ValueError("The header of the vectors must have a line '# sr_bits: ...' under '# rounding: sr'.")
        return task


def make_task(
    operation: str,
    format: str | MXFormat,
    *,
    source: str = "float32",
    rounding: str = "rne",
    scale_rule: str | None = None,
    overflow: str = "saturate",
    nonfinite: str = "block",
    sr_bits: int | str = 30,
    accumulate: str | None = None,
    dot_blocks: int | str = 2,
    block: int | str | None = None,
) -> Task:
    """A task from strings and numbers as users write them, checked. `format` may also be the name of an element.

    The default of `scale_rule` is that of `mxnum.quantize`, of `accumulate` ``"block"``, or ``"exact"`` where scales
    are floats.
    """
    operation = errors.choose("operation", operation, tuple(OPERATIONS))
    if isinstance(format, str) and format in formats.ELEMENTS:
        format = formats.of_element(format)
    fmt = formats.get(format)
    if block is not None and _integer("block", block, 1, 4096) != fmt.block:
        name = fmt.name if fmt.name in formats.names() else ""
        fmt = MXFormat(fmt.element, fmt.scale, int(block), name, fmt.tensor_scale)
    rules = scale_rules(fmt.scale.power_of_two)
    rule = rules[0] if scale_rule is None else errors.choose_member("scale_rule", scale_rule, rules)
    if isinstance(rule, FloatScaleRule) and rule.error_power:
        accepted = f"'nearest' or 'rceil' for {fmt.element.name} elements"
        errors.require(fmt.element.name == "e2m1", "scale_rule", accepted, str(rule))
    ways = Accumulate.BLOCK, Accumulate.EXACT, Accumulate.SEQUENTIAL
    mode = _of_kind(fmt)[0] if accumulate is None else errors.choose_member("accumulate", accumulate, ways)
    if operation == "dot":
        names = " or ".join(repr(str(each)) for each in _of_kind(fmt))
        accepted = f"{names} for {fmt.name}, whose scales are {fmt.scales}"
        errors.require(mode in _of_kind(fmt), "accumulate", accepted, str(mode))
    return Task(
        operation=operation,
        format=fmt,
        source=FLOATS[errors.choose("source", source if operation != "dot" else "float32", tuple(FLOATS))],
        rounding=errors.choose_member("rounding", rounding, Rounding),
        scale_rule=rule,
        overflow=errors.choose_member("overflow", overflow, Overflow),
        nonfinite=errors.choose_member("nonfinite", nonfinite, (Nonfinite.BLOCK, Nonfinite.ELEMENT)),
        sr_bits=_integer("sr_bits", sr_bits, 1, 30),
        accumulate=mode,
        dot_blocks=_integer("dot_blocks", dot_blocks, 1, 64),
    )


def known(modes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keywords of a call that go to `make_task`; an error if it has no such."""
    for name in modes:
        errors.choose("modes", name, tuple(make_task.__kwdefaults__ or ()))
    return modes


def _of_kind(fmt: MXFormat) -> tuple[Accumulate, ...]:
    """The accumulations that the scales of a format leave; the first is the default."""
    exact = Accumulate.EXACT, Accumulate.SEQUENTIAL
    return (Accumulate.BLOCK, *exact) if fmt.scale.power_of_two else exact


def _integer(argument: str, value: int | str, low: int, high: int) -> int:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return errors.integer(argument, value, low, high)

"""List the operations by name, and make tasks from the strings and numbers that users write."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from mxnum import errors, formats, products, units
from mxnum.conformance.operations.dot import Dot
from mxnum.conformance.operations.mma import unit_products
from mxnum.conformance.operations.rounding import Convert, Encode, Quantize, Scale
from mxnum.conformance.operations.values import Decode, Dequantize
from mxnum.conformance.task import ArrayFormat, Operation, Task
from mxnum.formats import ELEMENTS, FLOATS, MXFormat
from mxnum.modes import Accumulate, Nonfinite, Overflow, Rounding, scale_rule_of
from mxnum.units import MatrixUnit

OPERATIONS: dict[str, Operation] = {
    each.name: each
    for each in (Encode(), Decode(), Quantize(), Dequantize(), Scale(), Dot(), unit_products("mma", False))
}

#: The operation `encode` for a source that is an element format: the inputs are element codes, not
#: floats.
_CONVERT = Convert()

#: The keys that a header of vectors may have; lines with another key are comments.
HEADER = (
    *("operation", "format", "block", "source", "result", "rounding", "scale_rule", "overflow", "nonfinite", "sr_bits"),
    *("accumulate", "dot_blocks", "k", "inputs", "outputs", "mxnum", "level", "seed", "cases", "answers"),
)


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
    accumulate: str | MatrixUnit | None = None,
    dot_blocks: int | str | None = None,
    k: int | str | None = None,
    block: int | str | None = None,
) -> Task:
    """Make a task from strings and numbers as users write them.

    `format` may also be the name of an element. If `accumulate` is a matrix unit, `format` may be
    the type of the unit's operands, by name. For ``"encode"``, `source` may be an element, whose
    codes are then converted. Missing settings have the defaults of `Task`, with two exceptions:
    `scale_rule` has the default of `mxnum.quantize`, and `accumulate` is ``"exact"`` if scales are
    floats. A setting that has no effect on the answers raises ValueError.
    """
    given: dict[str, Any] = {key: value for key, value in locals().items() if key in DECIDES and value is not None}
    asked = OPERATIONS[errors.choose("operation", operation, tuple(OPERATIONS))]
    unit = _unit_of(given.get("accumulate")) if "accumulate" in asked.settings else None
    if isinstance(unit, MatrixUnit):
        asked = unit_products(asked.name, False)
    accepted = "a matrix unit or its name (mxnum.units.names()) for 'mma'"
    errors.require(isinstance(unit, MatrixUnit) or asked.name != "mma", "accumulate", accepted, unit and str(unit))
    for name in given:
        if name not in asked.settings:
            is_known = isinstance(unit, MatrixUnit) and asked.name in DECIDES[name]
            why = "a matrix unit takes k" if is_known else f"it is for {errors.joined(DECIDES[name])}"
            raise ValueError(f"Argument {name!r} must be left out for {asked.name!r}; {why}.")
    if isinstance(unit, MatrixUnit):
        return _unit_task(asked.name, format, unit, k, block)
    sources = tuple(FLOATS)
    if asked.name == "encode":
        sources = *FLOATS, *ELEMENTS
        asked = _CONVERT if given.get("source") in ELEMENTS else asked
    fmt = in_blocks(format, block)
    rule = scale_rule_of(fmt, given.get("scale_rule"))
    mode = unit or (Accumulate.BLOCK if fmt.scale.power_of_two else Accumulate.EXACT)
    errors.choose_member("accumulate", mode, (Accumulate.BLOCK, Accumulate.EXACT, Accumulate.SEQUENTIAL))
    checks: dict[str, Callable[[Any], Any]] = {
        "source": lambda value: (FLOATS | ELEMENTS)[errors.choose("source", value, sources)],
        "rounding": lambda value: errors.choose_member("rounding", value, Rounding),
        "overflow": lambda value: errors.choose_member("overflow", value, Overflow),
        "nonfinite": lambda value: errors.choose_member("nonfinite", value, (Nonfinite.BLOCK, Nonfinite.ELEMENT)),
        "sr_bits": lambda value: _integer("sr_bits", value, 1, 30),
        "dot_blocks": lambda value: _integer("dot_blocks", value, 1, 64),
    }
    checked = {name: check(given[name]) for name, check in checks.items() if name in given}
    task = Task(asked, fmt, scale_rule=rule, accumulate=mode, **checked)
    if "sr_bits" in given and not task.is_stochastic:
        raise ValueError(without_bits("sr_bits", task.rounding))
    return task


def _unit_of(accumulate: Any) -> MatrixUnit | Accumulate | None:
    """Return the matrix unit or accumulation mode for a value of `accumulate`."""
    if isinstance(accumulate, str) and accumulate.startswith("{"):
        return units.read(accumulate)
    return None if accumulate is None else products.accumulation(accumulate)


def _unit_task(
    operation: str, format: str | MXFormat, unit: MatrixUnit, k: int | str | None, block: int | str | None
) -> Task:
    """Return the task for single instructions (mma) or for dot products of a matrix unit."""
    fmt, instruction = _operand_format(format, unit, block), unit.k[-1]
    if operation == "mma":
        unit = unit.but(promotion=0, evidence=unit.evidence) if unit.promotion else unit
        length = instruction if k is None else _integer("k", k, 1, 4096)
        errors.require(length in unit.k, "k", f"{errors.joined(unit.k)} for one instruction of {unit.name!r}", length)
    else:
        usual = 2 * unit.promotion + instruction if unit.promotion else 3 * instruction
        length = -(-usual // fmt.block) * fmt.block if k is None else _integer("k", k, 1, 4096)
    errors.require(length % fmt.block == 0, "k", f"a multiple of {fmt.block}, the block length", length)
    has_scales = not isinstance(fmt, ArrayFormat)
    return Task(unit_products(operation, has_scales), fmt, FLOATS[unit.accumulator], unit=unit, k=length)


def _operand_format(format: str | MXFormat, unit: MatrixUnit, block: int | str | None) -> MXFormat:
    """Return the format of a unit's operands: an MX format, or an `ArrayFormat` without scales."""
    accepted = f"the format of {unit.takes} for unit {unit.name!r}"
    if isinstance(format, str) and format in unit.operands and not unit.scales and block is None:
        return ArrayFormat(FLOATS["float32"] if format == "tf32" else unit.formats[format], format)
    errors.require(not isinstance(format, str) or format not in (*FLOATS, "tf32"), "format", accepted, format)
    fmt = in_blocks(format, block)
    kind = fmt.scale.name, fmt.block
    taken = kind in unit.scales or (unit.promotion and kind == ("float32", unit.promotion))
    errors.require(bool(taken) and fmt.element in unit.formats.values(), "format", accepted, fmt.name)
    return fmt


#: For each setting, the names of the operations that it affects.
DECIDES = {
    setting: tuple(each.name for each in OPERATIONS.values() if setting in each.settings)
    for setting in make_task.__kwdefaults__ or ()
}


def task_of(header: Mapping[str, str]) -> Task:
    """Return the task that the header of a vector file describes."""
    for key in ("operation", "format"):
        if key not in header:
            raise ValueError(f"The header of the vectors must have a line '# {key}: ...'.")
    for key in header.keys() - set(HEADER):
        if close := difflib.get_close_matches(key.lower().replace("-", "_"), HEADER, n=1, cutoff=0.8):
            raise ValueError(f"The header of the vectors has a line '# {key}: ...'; did you mean '# {close[0]}: ...'?")
    given: dict[str, Any] = {key: header[key] for key in DECIDES if key in header and key != "block"}
    if "result" in header:
        given["source"] = header["result"]
    if header["operation"] == "mma" or isinstance(_unit_of(header.get("accumulate")), MatrixUnit):
        return make_task(header["operation"], header["format"], block=header.get("block"), **given)
    task = make_task(header["operation"], in_blocks(header["format"], header.get("block")), **given)
    if task.is_stochastic and "sr_bits" not in header:
        raise ValueError("The header of the vectors must have a line '# sr_bits: ...' if it has '# rounding: sr'.")
    return task


def without_bits(argument: str, rounding: Rounding) -> str:
    """Return the error message for a random-bits argument under a rounding that draws no bits."""
    return f"Argument {argument!r} must be left out for rounding='{rounding}', which draws no random bits."


def in_blocks(format: str | MXFormat, block: int | str | None) -> MXFormat:
    """Return the format with blocks of `block` elements, if `block` is given.

    If `format` is the name of an element, use the element's default format.
    """
    fmt = formats.of_element(format) if isinstance(format, str) and format in formats.ELEMENTS else formats.get(format)
    if block is None or _integer("block", block, 1, 4096) == fmt.block:
        return fmt
    name = fmt.name if fmt.name in formats.names() else ""
    return MXFormat(fmt.element, fmt.scale, int(block), name, fmt.tensor_scale)


def known(modes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `modes`, the keywords for `make_task`; raise an error if one is unknown."""
    for name in modes:
        errors.choose("modes", name, tuple(DECIDES))
    return modes


def _integer(argument: str, value: int | str, low: int, high: int) -> int:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return errors.integer(argument, value, low, high)

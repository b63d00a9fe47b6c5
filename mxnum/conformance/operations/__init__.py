"""The operations by name, and tasks made from the strings and numbers that users write."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from mxnum import errors, formats
from mxnum.conformance.operations.dot import Dot
from mxnum.conformance.operations.rounding import Encode, Quantize, Scale
from mxnum.conformance.operations.values import Decode, Dequantize
from mxnum.conformance.task import Operation, Task
from mxnum.formats import FLOATS, MXFormat
from mxnum.modes import Accumulate, Nonfinite, Overflow, Rounding, scale_rule_of

OPERATIONS: dict[str, Operation] = {
    each.name: each for each in (Encode(), Decode(), Quantize(), Dequantize(), Scale(), Dot())
}

#: The keys that a header of vectors may state; other lines are comments.
HEADER = (
    *("operation", "format", "block", "source", "result", "rounding", "scale_rule", "overflow", "nonfinite", "sr_bits"),
    *("accumulate", "dot_blocks", "inputs", "outputs", "mxnum", "level", "seed", "cases", "answers"),
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
    accumulate: str | None = None,
    dot_blocks: int | str | None = None,
    block: int | str | None = None,
) -> Task:
    """Make a task from strings and numbers as users write them.

    `format` may also be the name of an element. Missing settings have the defaults of `Task`,
    except that `scale_rule` has the default of `mxnum.quantize` and `accumulate` is ``"exact"`` if
    scales are floats. A setting that has no effect on the answers raises ValueError.
    """
    given: dict[str, Any] = {key: value for key, value in locals().items() if key in DECIDES and value is not None}
    asked = OPERATIONS[errors.choose("operation", operation, tuple(OPERATIONS))]
    for name in given:
        if name not in asked.settings:
            accepted = errors.joined(DECIDES[name])
            raise ValueError(f"Argument {name!r} must be left out for {asked.name!r}; it is for {accepted}.")
    fmt = in_blocks(format, block)
    rule = scale_rule_of(fmt, given.get("scale_rule"))
    ways = Accumulate.BLOCK, Accumulate.EXACT, Accumulate.SEQUENTIAL
    possible = ways if fmt.scale.power_of_two else ways[1:]
    mode = errors.choose_member("accumulate", given.get("accumulate", possible[0]), ways)
    if "accumulate" in asked.settings:
        names = " or ".join(repr(str(each)) for each in possible)
        accepted = f"{names} for {fmt.name}, whose scales are {formats.scale_names(fmt)}"
        errors.require(mode in possible, "accumulate", accepted, str(mode))
    checks: dict[str, Callable[[Any], Any]] = {
        "source": lambda value: FLOATS[errors.choose("source", value, tuple(FLOATS))],
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


#: For each setting, the operations whose answers it decides.
DECIDES = {
    setting: tuple(each.name for each in OPERATIONS.values() if setting in each.settings)
    for setting in make_task.__kwdefaults__ or ()
}


def task_of(header: Mapping[str, str]) -> Task:
    """Return the task that the header of a file of vectors states."""
    for key in ("operation", "format"):
        if key not in header:
            raise ValueError(f"The header of the vectors must have a line '# {key}: ...'.")
    for key in header.keys() - set(HEADER):
        if close := difflib.get_close_matches(key.lower().replace("-", "_"), HEADER, n=1, cutoff=0.8):
            raise ValueError(f"The header of the vectors has a line '# {key}: ...'; did you mean '# {close[0]}: ...'?")
    given: dict[str, Any] = {key: header[key] for key in DECIDES if key in header and key != "block"}
    if "result" in header:
        given["source"] = header["result"]
    task = make_task(header["operation"], in_blocks(header["format"], header.get("block")), **given)
    if task.is_stochastic and "sr_bits" not in header:
        raise ValueError("The header of the vectors must have a line '# sr_bits: ...' under '# rounding: sr'.")
    return task


def without_bits(argument: str, rounding: Rounding) -> str:
    """Return the error message for an argument about random bits if the rounding draws none."""
    return f"Argument {argument!r} must be left out for rounding='{rounding}', which draws no random bits."


def in_blocks(format: str | MXFormat, block: int | str | None) -> MXFormat:
    """Return the format with blocks of `block` elements, if `block` is given.

    An element stands for its default format.
    """
    fmt = formats.of_element(format) if isinstance(format, str) and format in formats.ELEMENTS else formats.get(format)
    if block is None or _integer("block", block, 1, 4096) == fmt.block:
        return fmt
    name = fmt.name if fmt.name in formats.names() else ""
    return MXFormat(fmt.element, fmt.scale, int(block), name, fmt.tensor_scale)


def known(modes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the keywords of a call that go to `make_task`. Raise if one of them is unknown."""
    for name in modes:
        errors.choose("modes", name, tuple(DECIDES))
    return modes


def _integer(argument: str, value: int | str, low: int, high: int) -> int:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return errors.integer(argument, value, low, high)

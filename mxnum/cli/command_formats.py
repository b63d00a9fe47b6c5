"""``mxnum formats``."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from mxnum import errors
from mxnum import formats as known
from mxnum.cli import options
from mxnum.formats import ELEMENTS, ElementFormat, MXFormat


def formats(
    name: Annotated[
        str | None,
        typer.Argument(
            help="An MX format (mxfp8_e4m3), an element format (e4m3) or a format of your own (e3m4:bias=3,block=16)."
        ),
    ] = None,
    values: Annotated[bool, typer.Option("--values", help="List every code and its value.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """List all formats, describe a format, or list its values.

    Examples: `mxnum formats`; `mxnum formats mxfp4_e2m1 --values`; `mxnum formats e4m3 --json`;
    `mxnum formats e3m4:bias=3,block=16`.
    """
    from mxnum.cli.console import print_json, print_table

    if name is None:
        errors.require(not values, "values", "used with the name of a format", values)
        rows = [_row(known.get(each)) for each in known.names()]
        if as_json:
            print_json(rows)
        else:
            print_table("", [_HEADINGS.get(name, name) for name in rows[0]], [_cells(row) for row in rows])
        return
    if ":" not in name:
        name = known.meant("name", name, (*known.names(), *ELEMENTS), "block=32")
    fmt = known.get(name) if name in known.names() or ":" in name else None
    element = fmt.element if fmt else ELEMENTS[name]
    if as_json:
        description: dict[str, Any] = _row(fmt) if fmt else _element_row(element)
        print_json({**description, **({"values": element.values()} if values else {})})
        return
    print(known.describe(fmt or element))
    if values:
        digits = (element.bits + 3) // 4
        listed = [
            (f"0x{code:0{digits}X}", f"{code:0{element.bits}b}", f"{value:.10g}")
            for code, value in enumerate(element.values())
        ]
        print_table("", ["code", "bits", "value"], listed)


#: Replacements of column names. A narrow terminal can break the new names at their spaces.
_HEADINGS = {"bits/element": "bits per element"}


def _cells(row: dict[str, Any]) -> list[str]:
    """Return the cells of a row as text. The smallest magnitudes are written as powers of two."""
    powers = {name: f"2^{int(math.log2(row[name]))}" for name in ("min normal", "min positive")}
    shown = row | powers | {"tensor scale": row["tensor scale"] or "none"}
    return [f"{value:.9g}" if isinstance(value, float) else str(value) for value in shown.values()]


def _row(fmt: MXFormat) -> dict[str, Any]:
    return {
        "format": fmt.name,
        "block": fmt.block,
        "scale": fmt.scale.name,
        "tensor scale": fmt.tensor_scale,
        "bits/element": fmt.bits_per_element,
        **_element_row(fmt.element),
    }


def _element_row(e: ElementFormat) -> dict[str, Any]:
    smallest = e.min_subnormal if e.min_subnormal is not None else e.min_normal
    return {
        "element": e.name,
        "bits": e.bits,
        "max": e.max,
        "min normal": e.min_normal,
        "min positive": smallest,
        "specials": e.specials,
    }

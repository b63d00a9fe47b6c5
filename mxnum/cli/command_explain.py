"""``mxnum explain``."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mxnum.cli import options

if TYPE_CHECKING:
    from mxnum.conformance.explain import BlockSteps, ElementSteps, FloatScaleSteps
    from mxnum.conformance.task import Task


def explain(
    context: typer.Context,
    values: Annotated[
        list[str],
        typer.Argument(help="A number, or the numbers of a block: 0.1, -3e-5, 0x1.8p3, inf, bits:3DCCCCCD."),
    ],
    format: options.Format = "mxfp8_e4m3",
    scale: Annotated[
        int | None, typer.Option(help="The scale's code, instead of a scale rule (E8M0: 0 to 255, where 127 means 1).")
    ] = None,
    tensor_scale: Annotated[
        str | None,
        typer.Option(
            help="The tensor scale, a float32 number, for formats such as nvfp4 (default: computed from the "
            "given values)."
        ),
    ] = None,
    source: Annotated[str, typer.Option(help="float32, float64, bfloat16 or float16.")] = "float32",
    rounding: options.Rounding = "rne",
    scale_rule: options.FormatsScaleRule = None,
    overflow: options.Overflow = "saturate",
    nonfinite: Annotated[str, typer.Option(help="block or element.")] = "block",
    random: Annotated[str, typer.Option(help="The random word that stochastic rounding uses, in hexadecimal.")] = "0",
    sr_bits: options.SrBits = 30,
    as_json: options.AsJson = False,
    html: Annotated[
        Path | None, typer.Option(help="Write an interactive HTML page that starts with the given numbers.")
    ] = None,
    force: options.Force = False,
) -> None:
    """Show bit by bit how a number or a block is quantized.

    The output shows the maximum and the scale of the block. For each number, the output shows the
    two nearest element values, their midpoint and the code.

    The command computes each step in exact rationals. Before it prints the steps, the command
    compares their result with the result of the compiled kernel.

    Examples: `mxnum explain 0.1 --format mxfp4_e2m1`;
    `mxnum explain 17 --scale 127 --rounding rna`;
    `mxnum explain -f mxfp8_e4m3 --scale-rule even -- 1 -500 0.3`;
    `mxnum explain 9 1 -f nvfp4 --tensor-scale 0x1p-8`;
    `mxnum explain 0.3 5 -f mxfp4_e2m1 --html explorer.html`.
    """
    from mxnum import errors
    from mxnum.cli.console import print_json
    from mxnum.cli.naming import asked, given
    from mxnum.conformance import make_task
    from mxnum.conformance.explain import explain_block, explain_element
    from mxnum.conformance.operations import DECIDES, without_bits

    task = make_task("quantize", format, **asked(context, DECIDES))
    if given(context, "random") and not task.is_stochastic:
        raise ValueError(without_bits("random", task.rounding))
    for argument in ("scale_rule", "nonfinite"):
        if scale is not None and given(context, argument):
            raise ValueError(f"Argument {argument!r} must be left out with --scale, which sets the scale.")
    for value in values:
        # Negative numbers look like options, so typer passes unknown options on as arguments.
        if value.startswith("--"):
            raise ValueError(f"No such option: {value}. `mxnum explain --help` lists the options.")
    bits = [parsed(value, task.source) for value in values]
    word = _hexadecimal("random", random, 32)
    tensor = _tensor_scale(task, tensor_scale)
    if scale is not None:
        errors.integer("scale", scale, 0, (1 << task.scale_bits) - 1)
        errors.require(tensor is not None or not task.has_tensor, "tensor_scale", "given with --scale", tensor_scale)
    if html is not None:
        if as_json:
            raise ValueError("Option --json must be left out with --html.")
        _write_page(html, force, task, bits, scale, tensor, word)
        return
    if scale is not None:
        elements = [explain_element(task, each, scale, word, tensor) for each in bits]
        block = None
    else:
        block = explain_block(task, bits_array(bits, task.source), [word] * len(bits), tensor)
        elements = block.elements
    if as_json:
        print_json(_as_dict(block, elements, bits))
        return
    if block is not None:
        _show_scale(block)
    for step, each in zip(elements, bits, strict=True):
        _show_element(step, each, task, word)


def _write_page(
    path: Path, force: bool, task: Task, bits: list[int], scale: int | None, tensor: float | None, word: int
) -> None:
    """Write the interactive explorer page, which starts with the given numbers and settings."""
    import numpy as np

    from mxnum import errors
    from mxnum.cli.outputs import check_output
    from mxnum.emit.page import explorer_page, first_state
    from mxnum.output.files import written_whole

    check_output("Option --html", path, force)
    errors.require(task.source.name == "float32", "source", "float32 with --html", task.source.name)
    errors.require(task.sr_bits == 30, "sr_bits", "left out with --html", task.sr_bits)
    block = task.format.block
    errors.require(len(bits) <= block, "values", f"at most {block} numbers with --html", len(bits))
    numbers = np.array(bits, np.uint32).view(np.float32)
    fmt, start = first_state(numbers, task.format, task.rounding, task.scale_rule, task.overflow, task.nonfinite)
    if scale is not None:
        start["scale"] = str(scale)
    if tensor is not None:
        start["tensor"] = f"{int(np.float32(tensor).view(np.uint32)):08X}"
    if task.is_stochastic:
        start["random"] = f"{word:08X}"
    with written_whole(path) as partial:
        partial.write_text(explorer_page(start, fmt), encoding="utf-8")


def _tensor_scale(task: Task, text: str | None) -> float | None:
    """Return the tensor scale that the user typed: a positive float32 number."""
    import numpy as np

    from mxnum import errors
    from mxnum.formats import FLOATS

    if text is None:
        return None
    accepted = f"left out for {task.format.name}, which has no tensor scale"
    errors.require(task.has_tensor, "tensor_scale", accepted, text)
    found = parsed(text, FLOATS["float32"], "tensor_scale")
    value = float(np.array(found, np.uint32).view(np.float32))
    errors.require(0 < value < float("inf"), "tensor_scale", "positive and finite", text)
    return value


def bits_array(bits: list[int], source: Any) -> Any:
    """Return bit patterns as an array of unsigned integers as wide as the float type."""
    import numpy as np

    return np.array(bits, f"u{source.bits // 8}")


def parsed(text: str, source: Any, argument: str = "values") -> int:
    """Return the bit pattern of the number in `text`, rounded once to the float type `source`.

    The text is a decimal number, a hexadecimal float, or ``bits:`` and hexadecimal digits.
    """
    from mxnum import reference

    if text.startswith("bits:"):
        return _hexadecimal(argument, text[5:], source.bits)
    if "0x" in text.lower() and "p" not in text.lower():
        raise ValueError(f"Argument {argument!r} must be like bits:3E800001 or 0x1p3 in hexadecimal, not {text!r}.")
    try:
        value = float.fromhex(text) if "0x" in text.lower() else float(text)
    except (ValueError, OverflowError):
        raise ValueError(f"Argument {argument!r} must be numbers, not {text!r}.") from None
    if value != value:
        negative = text.strip().startswith("-")
        code: int = reference.encode(float("nan"), source, overflow="ieee")
        return code | (1 << (source.bits - 1)) if negative else code
    is_named = "inf" in text.lower()
    exact = value if is_named or value in (0, math.inf, -math.inf) else _exactly(text)
    found = int(reference.encode(exact, source, overflow="ieee"))
    magnitude = found % (1 << (source.bits - 1))
    is_zero = re.fullmatch(r"[0.]*", re.split("[ep]", _digits(text))[0]) is not None
    if not is_named and (magnitude == source.infinity_code or (magnitude == 0 and not is_zero)):
        accepted = f"numbers in the range of {source.name}, or {'inf' if magnitude else '0'}"
        raise ValueError(f"Argument {argument!r} must be {accepted}, not {text!r}.")
    return found


def _digits(text: str) -> str:
    """Return `text` in lower case, without sign, outer spaces, underscores and ``0x``."""
    return text.strip().lower().lstrip("+-").removeprefix("0x").replace("_", "")


def _exactly(text: str) -> Fraction:
    """Return the exact value of the number in `text`, without rounding to float64."""
    if "0x" not in text.lower():
        return Fraction(Decimal(text))
    significand, _, power = _digits(text).partition("p")
    whole, _, part = significand.partition(".")
    exact = int(whole + part, 16) * Fraction(2) ** (int(power) - 4 * len(part))
    return -exact if text.strip().startswith("-") else exact


def _hexadecimal(argument: str, text: str, bits: int) -> int:
    try:
        value = int(text, 16)
    except ValueError:
        value = -1
    if not 0 <= value < 1 << bits:
        raise ValueError(f"Argument {argument!r} must be hexadecimal digits of at most {bits} bits, not {text!r}.")
    return value


def fields(code: int, fmt: Any) -> str:
    """Return a code in binary. In floats, spaces separate sign, exponent and mantissa."""
    text = f"{code:0{fmt.bits}b}"
    if fmt.integer:
        return text
    cut = 1 + fmt.exponent_bits
    return " ".join(part for part in (text[0], text[1:cut], text[cut:]) if part)


def _show_scale(block: BlockSteps) -> None:
    from mxnum.conformance.explain import ScaleSteps, number
    from mxnum.formats import E8M0

    s, fmt = block.scale, block.task.format
    print(f"{fmt.name}, {len(block.elements)} element{'s' * (len(block.elements) > 1)} in the block")
    if not isinstance(s, ScaleSteps):
        _show_float_scale(s)
        return
    if s.place is not None:
        print(f"  amax      {s.amount}   (element {s.place})")
        print(f"  emax      {s.emax}   (the largest {fmt.element.name} is {number(fmt.element.max)})")
    print(f"  rule      {s.rule}")
    if s.place is not None and s.wanted != s.code - E8M0.bias:
        print(f"  limited   {s.wanted} to {s.code - E8M0.bias}")
    meaning = "NaN" if s.code == E8M0.nan_code else f"2^{s.code - E8M0.bias}"
    print(f"  scale     0x{s.code:02X} = {s.code:08b} = {meaning}")


def _show_float_scale(s: FloatScaleSteps) -> None:
    from mxnum.conformance.explain import fraction_text, number

    number_format = s.scale.number
    assert number_format is not None
    if s.task.has_tensor:
        print(f"  tensor    {number(s.tensor_scale)}   (the tensor scale, float32)")
    if s.place is not None:
        print(f"  amax      {number(s.maximum)}   (element {s.place})")
        print(f"  quotient  {s.divided} = {number(s.quotient)}")
        print(f"  below     {s.named(s.below)}")
        print(f"  above     {'past the largest' if s.above is None else s.named(s.above)}")
        if s.fraction:
            print(f"  position  {fraction_text(s.fraction)} of the gap" + (": a tie" if s.fraction == 1 / 2 else ""))
    print(f"  rule      {s.rule}")
    value = number(s.scale.value(s.code))
    print(f"  scale     0x{s.code:0{(s.task.scale_bits + 3) // 4}X} = {fields(s.code, number_format)[2:]} = {value}")


def _show_element(step: ElementSteps, bits: int, task: Any, word: int) -> None:
    from mxnum.conformance.explain import fraction_text, number

    e, source = step.element, task.source
    print()
    print(f"x = {number(step.x)}")
    print(f"  bits      {fields(bits, source)}   (0x{bits:0{source.bits // 4}X}, {source.name})")
    if step.magnitude is not None and step.below is not None and step.above is not None:
        if step.factor != 1:
            label = f"x / {step.divisor}"
            print(f"  {label:<9}{' =' * (len(label) > 9)} {number(step.signed)}")
        names = ("above", "below") if step.negative else ("below", "above")
        for name, neighbour in zip(names, (step.below, step.above), strict=True):
            shown = "past the largest" if neighbour.code is None else fields(neighbour.code, e)
            print(f"  {name:<9} {number(step.value_of(neighbour)):<14} {shown}")
        _show_line(step)
        at = fraction_text(step.fraction or 0 * step.magnitude)
        side = ", counted from zero" if step.negative and not step.is_tie else ""
        print(f"  position  {at} of the gap{side}" + (": a tie" if step.is_tie else ""))
        if task.is_stochastic:
            print(f"  R         {word % (1 << task.sr_bits)}   (the low {task.sr_bits} bits of 0x{word:08X})")
    print(f"  rule      {step.rule}")
    digits = (e.bits + 3) // 4
    value = f"{number(step.value)}"
    if step.factor != 1 and step.magnitude is not None:
        from fractions import Fraction

        value += f", times {step.divisor} = {number(Fraction(step.value) * step.factor)}"
    print(f"  result    {fields(step.code, e)}   (0x{step.code:0{digits}X} = {value})")


def _show_line(step: ElementSteps) -> None:
    """Draw the interval between the two nearest element values, with an x at the number."""
    width = 48
    position = round(float(step.fraction or 0) * width)
    if 0 < (step.fraction or 0) < 1:
        position = min(max(position, 1), width - 1)
    line = ["-"] * (width + 1)
    line[0] = line[-1] = "|"
    line[width // 2] = "+"
    line[position] = "x"
    print(f"            {''.join(line)}")


def _neighbours(step: ElementSteps) -> dict[str, str | None]:
    if step.below is None or step.above is None:
        return {"below": None, "above": None}
    ends = sorted((step.value_of(step.below), step.value_of(step.above)))
    return {"below": str(ends[0]), "above": str(ends[1])}


def _as_dict(block: BlockSteps | None, elements: list[ElementSteps], bits: list[int]) -> dict[str, Any]:
    from mxnum.conformance.explain import ScaleSteps, number

    facts: dict[str, Any] = {}
    if block is not None:
        s = block.scale
        facts["scale"] = {"code": s.code, "rule": s.rule, "amax": number(s.maximum), "place": s.place}
        if isinstance(s, ScaleSteps):
            of_power = {"exponent": s.exponent, "fraction": number(s.fraction), "wanted exponent": s.wanted}
            facts["scale"] |= of_power
        else:
            at = None if s.fraction is None else str(s.fraction)
            facts["scale"] |= {"value": s.scale.value(s.code), "quotient": str(s.quotient), "position": at}
            if block.tensor_scale is not None:
                facts["tensor scale"] = block.tensor_scale
    facts["elements"] = [
        {
            "x": step.x, "bits": f"0x{each:X}", "code": step.code, "value": step.value, "rule": step.rule,
            "scaled": None if step.magnitude is None else str(step.signed),
            **_neighbours(step),
            "position": None if step.fraction is None else str(step.fraction), "tie": step.is_tie,
        }
        for step, each in zip(elements, bits, strict=True)
    ]  # fmt: skip
    return facts

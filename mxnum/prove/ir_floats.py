"""Float instructions of LLVM IR, expressed in z3's IEEE 754 floats.

Arithmetic and conversions to floats round to nearest even. A NaN result may have any NaN bit
pattern, as the LLVM language reference says.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

import z3

from mxnum.prove.execution import UnsupportedCode

RNE, RTZ = z3.RNE(), z3.RTZ()
#: The width of each float type in bits, and its sort in z3.
WIDTHS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
SORTS = {"half": z3.Float16(), "bfloat": z3.FPSort(8, 8), "float": z3.Float32(), "double": z3.Float64()}
_LITERAL = re.compile(r"(?<![\w.%])(-?\d+\.\d+e[+-]\d+|0x[HR]?[0-9A-F]+)(?![\w.])")

_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "fadd": z3.fpAdd, "fsub": z3.fpSub, "fmul": z3.fpMul, "fdiv": z3.fpDiv,
}  # fmt: skip
_ROUNDINGS = {
    "rint": z3.RNE(), "nearbyint": z3.RNE(), "roundeven": z3.RNE(), "trunc": z3.RTZ(), "floor": z3.RTN(),
    "ceil": z3.RTP(), "round": z3.RNA(),
}  # fmt: skip
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": z3.fpEQ, "gt": z3.fpGT, "ge": z3.fpGEQ, "lt": z3.fpLT, "le": z3.fpLEQ,
    "ne": lambda a, b: z3.Not(z3.fpEQ(a, b)),
}  # fmt: skip


def as_integers(line: str) -> str:
    """Return a line with its float types and float constants replaced by integers of the same bits.

    The returned line is valid only for an instruction that moves floats and does not compute.
    """
    for name, width in WIDTHS.items():
        if re.search(rf"\b{name}\b(?! \()", line):
            line = _LITERAL.sub(lambda found, name=name: str(constant(found[1], name)), line)  # type: ignore[misc]
            line = re.sub(rf"\b{name}\b", f"i{width}", line)
    return line


def constant(text: str, type_: str) -> int:
    """Return the bits of a float constant that is given in LLVM's notation."""
    if text.startswith(("0xH", "0xR")):
        return int(text[3:], 16)
    value = struct.unpack("<d", struct.pack("<Q", int(text, 16)))[0] if text.startswith("0x") else float(text)
    if type_ == "bfloat":
        return int(struct.unpack("<I", struct.pack("<f", value))[0]) >> 16
    integer, number = {"half": ("H", "e"), "float": ("I", "f"), "double": ("Q", "d")}[type_]
    return int(struct.unpack(f"<{integer}", struct.pack(f"<{number}", value))[0])


def number(bits: Any, type_: str) -> Any:
    """Return the z3 float that has the given bits."""
    return z3.fpBVToFP(bits, SORTS[type_])


class Floats:
    """The float operations of one symbolic execution.

    A fresh symbol represents the bits of each result. For each symbol, an equation in
    `definitions` says which z3 float the bits encode.
    """

    def __init__(self) -> None:
        self.definitions: list[z3.BoolRef] = []

    def bits(self, value: Any, type_: str) -> Any:
        """Return the bits of a z3 float as a fresh symbol; a NaN may have any NaN bits."""
        found = z3.FreshConst(z3.BitVecSort(WIDTHS[type_]), "float")
        self.definitions.append(number(found, type_) == value)
        return found

    def arithmetic(self, opcode: str, type_: str, a: Any, b: Any) -> Any:
        """Return the bits of a sum, difference, product or quotient."""
        return self.bits(_ARITHMETIC[opcode](RNE, number(a, type_), number(b, type_)), type_)

    def compare(self, relation: str, type_: str, a: Any, b: Any) -> Any:
        """Return the condition under which a comparison holds."""
        x, y = number(a, type_), number(b, type_)
        unordered = z3.Or(z3.fpIsNaN(x), z3.fpIsNaN(y))
        if relation in ("ord", "uno", "true", "false"):
            return {"ord": z3.Not(unordered), "uno": unordered}.get(relation, z3.BoolVal(relation == "true"))
        kind, name = relation[0], relation[1:]
        holds = _COMPARE[name](x, y)
        return z3.Or(unordered, holds) if kind == "u" else z3.And(z3.Not(unordered), holds)

    def cast(self, opcode: str, a: Any, from_: str, to: str) -> tuple[Any, Any]:
        """Return the result of a conversion as bits, and the condition for a poison result."""
        never = z3.BoolVal(False)
        if opcode in ("fpext", "fptrunc"):
            return self.bits(z3.fpFPToFP(RNE, number(a, from_), SORTS[to]), to), never
        if opcode in ("sitofp", "uitofp"):
            convert = z3.fpSignedToFP if opcode == "sitofp" else z3.fpUnsignedToFP
            return self.bits(convert(RNE, a, SORTS[to]), to), never
        width, value = int(to[1:]), z3.fpRoundToIntegral(RTZ, number(a, from_))
        signed = opcode == "fptosi"
        low = -(2.0 ** (width - 1)) if signed else 0.0
        high = 2.0 ** (width - 1 if signed else width)
        sort = SORTS[from_]
        inside = z3.And(z3.fpGEQ(value, z3.FPVal(low, sort)), z3.fpLT(value, z3.FPVal(high, sort)))
        convert = z3.fpToSBV if signed else z3.fpToUBV
        return convert(RTZ, value, z3.BitVecSort(width)), z3.Not(inside)

    def intrinsic(self, name: str, type_: str, operands: list[Any]) -> Any:
        """Return the bits of an intrinsic's result."""
        sign = 1 << (WIDTHS[type_] - 1)
        match name, operands:
            case "fabs", [a]:
                return a & (sign - 1)
            case "copysign", [a, b]:
                return (a & (sign - 1)) | (b & sign)
            case (("fma" | "fmuladd"), [a, b, c]) if name == "fma":
                return self.bits(z3.fpFMA(RNE, *(number(each, type_) for each in (a, b, c))), type_)
            case _, [a] if name in _ROUNDINGS:
                return self.bits(z3.fpRoundToIntegral(_ROUNDINGS[name], number(a, type_)), type_)
            case (("maxnum" | "minnum"), [a, b]):
                x, y = number(a, type_), number(b, type_)
                first = z3.fpGT(x, y) if name == "maxnum" else z3.fpLT(x, y)
                # If the operands are +0 and -0, minnum and maxnum may return either of them.
                either = z3.FreshConst(z3.BoolSort(), "either")
                chosen = z3.If(z3.fpEQ(x, y), z3.If(either, x, y), z3.If(first, x, y))
                return self.bits(z3.If(z3.fpIsNaN(x), y, z3.If(z3.fpIsNaN(y), x, chosen)), type_)
        raise UnsupportedCode(f"llvm.{name} of floats")

"""A symbolic executor of PTX: it runs the integer code of a device function on bit-vectors.

PTX defines the result of each integer instruction for all operands: shift amounts are clamped, and
no result is poison. No PTX result is undefined, so a proof only has to show that the result equals
the expected result. The executor raises UnsupportedCode for unknown instructions.

A float operation must have an explicit rounding mode, because tools may fuse operations without
one. The solver knows only that a float operation gives equal results for equal operands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import z3

from mxnum.prove.execution import Execution, UnsupportedCode
from mxnum.prove.sym import Sym


class Floats:
    """The float operations of an execution, with operands and results.

    The solver knows only that an operation with equal operands gives equal results.
    """

    def __init__(self) -> None:
        self.met: list[tuple[str, z3.BitVecRef, z3.BitVecRef, z3.BitVecRef]] = []

    def of_function(self, operation: str, a: Any, b: Any) -> Sym:
        """Return the result of an operation on symbolic words (`Sym`), and record the operation."""
        word = a if isinstance(a, Sym) else b
        return Sym(self.apply(operation, word.lift(a), word.lift(b)), word.obligations)

    def apply(self, operation: str, a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BitVecRef:
        """Return a fresh symbol for the result of an operation, and record the operation."""
        result = z3.FreshConst(z3.BitVecSort(32), operation)
        self.met.append((operation, a, b, result))
        return result

    @property
    def congruent(self) -> list[z3.BoolRef]:
        """The premises that equal operations on equal operands have equal results.

        If the operation commutes, the order of the operands does not matter.
        """
        found = []
        for (f, a, b, first), (g, c, d, second) in combinations(self.met, 2):
            if f == g:
                same = z3.And(a == c, b == d)
                if f != "subtract":
                    same = z3.Or(same, z3.And(a == d, b == c))
                found.append(z3.Implies(same, first == second))
        return found


# --- A whole function

_FUNCTION = re.compile(
    r"\.func\s+\(\.param \.b(?P<bits>\d+) (?P<slot>\w+)\)\s*"
    r"\w+\((?P<parameters>[^)]*)\)\s*\{(?P<body>.*?)\n\}",
    re.S,
)


def execute(text: str, arguments: Sequence[z3.BitVecRef], floats: Floats | None = None) -> Execution:
    """Return the result of the only function of a module.

    `floats` records the float operations. A float operation raises UnsupportedCode if `floats` is
    None.
    """
    functions = list(_FUNCTION.finditer(text))
    if len(functions) != 1:
        raise UnsupportedCode(f"the module must have one function that returns a result, not {len(functions)}")
    (function,) = functions
    parameters = re.findall(r"\.param \.b\d+ (\w+)", function["parameters"])
    machine = _Machine(dict(zip(parameters, arguments, strict=True)), function["slot"], int(function["bits"]), floats)
    *statements, rest = re.sub(r"//[^\n]*", "", function["body"]).split(";")
    lines = [" ".join(statement.split()) for statement in statements]
    if rest.strip() or lines[-1:] != ["ret"]:
        raise UnsupportedCode("the last instruction of the function is not ret")
    for line in lines[:-1]:
        try:
            machine.step(line)
        except (UnsupportedCode, KeyError, z3.Z3Exception) as problem:
            raise UnsupportedCode(f"{line!r}: {problem}") from problem
    if machine.result is None:
        raise UnsupportedCode("the function returns without a result")
    return Execution(machine.result)


# --- The meaning of instructions

#: `_WIDTHS` maps the name prefix of a register to the register's width in bits. `_DECLARATIONS`
#: lists the register declarations that NVVM writes, as pairs of type and name prefix.
_WIDTHS = {"%p": 1, "%rs": 16, "%r": 32, "%rd": 64, "%f": 32}
_DECLARATIONS = {("pred", "%p"), ("b16", "%rs"), ("b32", "%r"), ("b64", "%rd"), ("f32", "%f")}
#: Float operations with an explicit rounding mode, which tools never fuse.
_FLOAT = {"add.rn": "add", "sub.rn": "subtract", "mul.rn": "multiply"}

_UNARY: dict[str, Callable[[Any], Any]] = {
    "mov": lambda a: a,
    "not": lambda a: ~a,
    "neg": lambda a: -a,
    "abs": lambda a: z3.If(a < 0, -a, a),
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
}
#: The kinds of types that each operation accepts: "b" for bits, "s" signed, "u" unsigned.
_KINDS = {"and": "b", "or": "b", "xor": "b", "not": "b", "neg": "s", "abs": "s", "mov": "bsu"}
_COMPARE: dict[str, Callable[[Any, Any, Callable[[Any, Any], Any]], z3.BoolRef]] = {
    "eq": lambda a, b, less: a == b,
    "ne": lambda a, b, less: a != b,
    "lt": lambda a, b, less: less(a, b),
    "le": lambda a, b, less: z3.Not(less(b, a)),
    "gt": lambda a, b, less: less(b, a),
    "ge": lambda a, b, less: z3.Not(less(a, b)),
}


def _type(name: str, kinds: str) -> tuple[str, int]:
    """Return the kind ("b", "s" or "u") and the width of an instruction's type."""
    if name == "pred" and "b" in kinds:
        return "b", 1
    found = re.fullmatch(rf"([{kinds}])(8|16|32|64)", name)
    if found is None:
        raise UnsupportedCode(f"type {name}")
    return found[1], int(found[2])


def _less(kind: str) -> Callable[[Any, Any], z3.BoolRef]:
    less: Callable[[Any, Any], z3.BoolRef] = (lambda a, b: a < b) if kind == "s" else z3.ULT
    return less


def _extend(kind: str, bits: z3.BitVecRef, width: int) -> z3.BitVecRef:
    """Return `bits` truncated or extended to `width` bits; kind "s" is extended with its sign."""
    change = width - bits.size()
    if change < 0:
        return z3.Extract(width - 1, 0, bits)
    return z3.SignExt(change, bits) if kind == "s" else z3.ZeroExt(change, bits)


def _shift(direction: str, kind: str, value: z3.BitVecRef, amount: z3.BitVecRef) -> z3.BitVecRef:
    """Return `value` shifted by `amount` bits, but at most by the width of `value`."""
    width = value.size()
    by = _extend("u", z3.If(z3.UGT(amount, width), z3.BitVecVal(width, 32), amount), width)
    if direction == "shl":
        return value << by
    return value >> by if kind == "s" else z3.LShR(value, by)


def _insert(a: z3.BitVecRef, b: z3.BitVecRef, position: z3.BitVecRef, length: z3.BitVecRef) -> z3.BitVecRef:
    """Return `b` with `length` bits from `position` on replaced by the low bits of `a` (``bfi``).

    Only the low byte of `position` and the low byte of `length` are used.
    """
    at, count = (_extend("u", number & 0xFF, a.size()) for number in (position, length))
    replaced = ~(z3.BitVecVal(-1, a.size()) << count) << at
    return (b & ~replaced) | ((a << at) & replaced)


@dataclass
class _Machine:
    """The state of the execution of a function."""

    parameters: dict[str, z3.BitVecRef]
    slot: str
    result_bits: int
    floats: Floats | None = None
    env: dict[str, z3.BitVecRef] = field(default_factory=dict)
    result: z3.BitVecRef | None = None

    def operand(self, text: str, width: int) -> z3.BitVecRef:
        """Return a register of `width` bits, or an immediate."""
        if found := re.fullmatch(r"0f([0-9A-F]{8})", text):
            return z3.BitVecVal(int(found[1], 16), width)
        if not text.startswith("%"):
            if not re.fullmatch(r"-?\d+", text):
                raise UnsupportedCode(f"operand {text}")
            return z3.BitVecVal(int(text), width)
        if self.env[text].size() != width:
            raise UnsupportedCode(f"{text} is not {width} bits wide")
        return self.env[text]

    def step(self, line: str) -> None:
        """Execute a line."""
        if found := re.fullmatch(r"\.reg \.(\w+) (%\w+)<\d+>", line):
            if found.groups() not in _DECLARATIONS:
                raise UnsupportedCode("unexpected names of registers")
        elif found := re.fullmatch(r"st\.param\.b(\d+) \[(\w+)(?:\+0)?\], (\S+)", line):
            if (int(found[1]), found[2]) != (self.result_bits, self.slot):
                raise UnsupportedCode("not the whole result")
            self.result = self.operand(found[3], self.result_bits)
        elif found := re.fullmatch(r"([a-z][\w.]*) ((%[a-z]+)\d+), (.*)", line):
            opcode, register, prefix, operands = found.groups()
            name, _, type_ = opcode.rpartition(".")
            bits = self.value(name, type_, operands.split(", "), _WIDTHS[prefix])
            if bits.size() != _WIDTHS[prefix]:
                raise UnsupportedCode(f"{bits.size()} bits for {register}")
            self.env[register] = bits
        else:
            raise UnsupportedCode("no such instruction")

    def float_value(self, name: str, operands: list[str]) -> z3.BitVecRef:
        """Return the bits that an instruction on floats computes or moves."""
        match name, operands:
            case "mov", [a]:
                return self.operand(a, 32)
            case "ld.param", [address] if self.parameters[address.strip("[]")].size() == 32:
                return self.parameters[address.strip("[]")]
            case "selp", [a, b, p]:
                return z3.If(self.operand(p, 1) == 1, self.operand(a, 32), self.operand(b, 32))
            case _, [a, b] if name in _FLOAT and self.floats is not None:
                return self.floats.apply(_FLOAT[name], self.operand(a, 32), self.operand(b, 32))
        raise UnsupportedCode("no such operation on floats")

    def value(self, name: str, type_: str, operands: list[str], width: int) -> z3.BitVecRef:
        """Return the `width` bits that an instruction writes to its destination."""
        if type_ == "f32":
            return self.float_value(name, operands)
        match name.split("."), operands:
            case ["ld", "param"], [address]:
                kind, size = _type(type_, "bsu")
                value = self.parameters[address.strip("[]")]
                if size > value.size():
                    raise UnsupportedCode(f"a load of more than the argument's {value.size()} bits")
                # Memory is little-endian, so a load of fewer bits reads the argument's low bits.
                return _extend(kind, z3.Extract(size - 1, 0, value), width)
            case ["cvt", to], [a]:
                (to_kind, to_size), (from_kind, from_size) = _type(to, "su"), _type(type_, "su")
                # The registers may be wider than the types that the instruction names.
                chopped = z3.Extract(from_size - 1, 0, self.env[a])
                return _extend(to_kind, _extend(from_kind, chopped, to_size), width)
            case ["setp", relation], [a, b]:
                kind, size = _type(type_, "bsu" if relation in ("eq", "ne") else "su")
                holds = _COMPARE[relation](self.operand(a, size), self.operand(b, size), _less(kind))
                return z3.If(holds, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1))
            case ["selp"], [a, b, p]:
                _, size = _type(type_, "bsu")
                return z3.If(self.operand(p, 1) == 1, self.operand(a, size), self.operand(b, size))
            case [("shl" | "shr") as direction], [a, amount]:
                kind, size = _type(type_, "b" if direction == "shl" else "bsu")
                return _shift(direction, kind, self.operand(a, size), self.operand(amount, 32))
            case ["bfi"], [a, b, position, length]:
                _, size = _type(type_, "b")
                field_of = self.operand(position, 32), self.operand(length, 32)
                return _insert(self.operand(a, size), self.operand(b, size), *field_of)
            case [("min" | "max") as which], [a, b]:
                kind, size = _type(type_, "su")
                left, right = self.operand(a, size), self.operand(b, size)
                less = _less(kind)(left, right)
                return z3.If(less, left, right) if which == "min" else z3.If(less, right, left)
            case ["mul", "wide"], [a, b]:
                kind, size = _type(type_, "su")
                left, right = (_extend(kind, self.operand(factor, size), 2 * size) for factor in (a, b))
                return left * right
            case _, [a] if name in _UNARY:
                _, size = _type(type_, _KINDS[name])
                return _UNARY[name](self.operand(a, size))
            case _, [a, b] if name in _BINARY:
                _, size = _type(type_, _KINDS.get(name, "su"))
                return _BINARY[name](self.operand(a, size), self.operand(b, size))
        raise UnsupportedCode("no such instruction")

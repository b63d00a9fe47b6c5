"""Read device functions in PTX from nvcc or NVRTC, with branches, predicates and floats.

The module `ptx` defines the meaning of integer instructions. Branches must go forward. Where paths
join, a register has its value from the path that control took. Float operations must name their
rounding (``.rn``), as nvcc writes them under ``-fmad=false``. Otherwise, ptxas may fuse a
multiplication and an addition, so the proof would not hold for the compiled code.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import z3

from mxnum import errors
from mxnum.prove import ptx
from mxnum.prove.circuit import Answer, Circuit
from mxnum.prove.execution import UnsupportedCode
from mxnum.prove.ir_floats import Floats

_FUNCTION = re.compile(
    r"\.func\s+\(\.param \.(?:align \d+ \.)?b(?P<bits>\d+) (?P<slot>\w+)\)\s*(?P<name>[\w$]+)\s*"
    r"\((?P<parameters>[^)]*)\)\s*\{",
    re.S,
)
_TYPES = {"f16": "half", "bf16": "bfloat", "f32": "float", "f64": "double"}
_TRUE = z3.BoolVal(True)


def read_ptx(file: Path, function: str | None, ports: Collection[str] = ()) -> Circuit:
    """Return the circuit of a device function or a kernel in a PTX file."""
    from mxnum.prove.cuda_kernel import KERNEL, read_kernel

    text = file.read_text()
    found = {match["name"]: match for pattern in (_FUNCTION, KERNEL) for match in pattern.finditer(text)}
    if function is None and len(found) == 1:
        (function,) = found
    if function not in found:
        known = errors.joined(found) or "none"
        raise ValueError(f"Argument 'function' must name one of the functions of {file.name}: {known}.")
    match = found[function]
    if match.re is KERNEL:
        return read_kernel(match, file, ports)
    parameters = re.findall(r"\.param \.b(\d+) (\w+)", match["parameters"])
    inputs = {re.sub(r".*_(?=param_\d+$)", "", name): int(bits) for bits, name in parameters}
    result = int(match["bits"])

    def run(values: Mapping[str, z3.BitVecRef]) -> Answer:
        given = {name: value for (_, name), value in zip(parameters, values.values(), strict=True)}
        machine = Machine(given, match["slot"], result)
        try:
            machine.run(blocks_of(match))
        except UnsupportedCode as problem:
            raise unread(match, file, problem) from problem
        return Answer({"return": machine.result}, premises=machine.numbers.definitions)

    notes = ("The proof is about the PTX. It assumes that ptxas and the device execute the PTX correctly.",)
    return Circuit(f"{function} in {file.name}", inputs, {"return": result}, run, notes, by_order=True)


def unread(match: re.Match[str], file: Path, problem: UnsupportedCode) -> UnsupportedCode:
    """Return the error for a function that cannot be read; its message names the line."""
    statement = re.compile(r"\s*".join(map(re.escape, problem.line.split())))
    found = statement.search(match.string, match.end()) if problem.line else None
    number = match.string.count("\n", 0, found.start() if found else match.start("name")) + 1
    return UnsupportedCode(f"Cannot read {match['name']!r} in line {number} of {file.name}: {problem}.")


def blocks_of(match: re.Match[str]) -> list[tuple[str, list[str]]]:
    """Return the label and the statements of each block, in the order of the text.

    The body of the function begins at the end of `match` and ends at its closing brace.
    """
    text = re.sub(r"//[^\n]*", "", match.string[match.end() :])
    depth = itertools.accumulate((each == "{") - (each == "}") for each in text)
    text = text[: next((i for i, each in enumerate(depth) if each < 0), len(text))]
    text = re.sub(r"(^|[;\n])\s*[{}](?=\s)", r"\1", text)  # drop the braces of inline assembly
    blocks: list[tuple[str, list[str]]] = [("", [])]
    for raw in re.split(r"[;\n]\s*(?=\S)|;", re.sub(r"^\s*([\w$]+):\s*$", r"\1:;", text, flags=re.M)):
        statement = " ".join(raw.split())
        if statement.endswith(":"):
            blocks.append((statement[:-1], []))
        elif statement and not statement.startswith((".loc", ".pragma")):
            blocks[-1][1].append(statement)
    return blocks


@dataclass
class Machine(ptx._Machine):
    """The state of the execution of a function with branches."""

    widths: dict[str, int] = field(default_factory=dict)
    numbers: Floats = field(default_factory=Floats)
    #: The condition under which control reaches the current statement.
    reached: z3.BoolRef = _TRUE
    #: For each label: the condition of each branch to it, and the registers at the branch.
    coming: dict[str, list[tuple[z3.BoolRef, dict[str, z3.BitVecRef]]]] = field(default_factory=dict)

    def run(self, blocks: Sequence[tuple[str, list[str]]]) -> None:
        """Execute all blocks; raise UnsupportedCode for a backward branch."""
        done: set[str] = set()
        falls = True
        for label, statements in blocks:
            ways = self.coming.pop(label, []) + ([(self.reached, self.env)] if falls else [])
            falls = bool(ways)
            if ways:
                self.reached, self.env = _merged(ways)
            done.add(label)
            for line in statements if falls else []:
                try:
                    falls = self.execute(line, done)
                except (UnsupportedCode, KeyError, z3.Z3Exception) as problem:
                    raise UnsupportedCode(f"{line!r}: {problem}", line) from problem
                if not falls:
                    break
        self.check()

    def check(self) -> None:
        """Raise UnsupportedCode for a function without a result."""
        if self.result is None:
            raise UnsupportedCode("the function returns without a result")

    def execute(self, line: str, done: set[str]) -> bool:
        """Execute a statement; return False if control never goes on to the next statement."""
        guard = _TRUE
        if found := re.fullmatch(r"@(!?)(%\w+) (.*)", line):
            line = found[3]
            guard = self.env[found[2]] == (0 if found[1] else 1)
        if found := re.fullmatch(r"bra(?:\.uni)? ([\w$]+)", line):
            if found[1] in done:
                raise UnsupportedCode("a loop")
            self.coming.setdefault(found[1], []).append((z3.And(self.reached, guard), dict(self.env)))
            self.reached = z3.And(self.reached, z3.Not(guard))
            return not z3.is_true(guard)
        if line == "ret":
            self.reached = z3.And(self.reached, z3.Not(guard))
            return not z3.is_true(guard)
        before, stored = dict(self.env), self.result
        self.step(line)
        if not z3.is_true(guard):
            for name, value in self.env.items():
                if value is not before.get(name):
                    self.env[name] = z3.If(guard, value, before.get(name, _unwritten(value)))
        if self.result is not stored and stored is not None and self.result is not None:
            self.result = z3.If(z3.And(self.reached, guard), self.result, stored)
        return True

    def step(self, line: str) -> None:
        """Execute a statement whose guard (``@%p``) has been removed."""
        if found := re.fullmatch(r"\.reg \.(\w+) (%\w+)<\d+>", line):
            kind = found[1]
            self.widths[found[2]] = 1 if kind == "pred" else int(kind.lstrip("bsuf"))
        elif found := re.fullmatch(r"st\.param\.[bfsu](\d+) \[(\w+)(?:\+0)?\], (\S+)", line):
            value = self.sized(found[3], int(found[1]))
            if found[2] != self.slot or value.size() > self.result_bits:
                raise UnsupportedCode("not the whole result")
            self.result = z3.ZeroExt(self.result_bits - value.size(), value)
        elif found := re.fullmatch(r"mov\.b(\d+) (%\w+), \{(%\w+), ?(%\w+)\}", line):
            self.env[found[2]] = z3.Concat(self.env[found[4]], self.env[found[3]])
        elif found := re.fullmatch(r"mov\.b(\d+) \{(%\w+|_), ?(%\w+|_)\}, (%\w+)", line):
            whole, half = self.env[found[4]], int(found[1]) // 2
            self.env[found[2]] = z3.Extract(half - 1, 0, whole)
            self.env[found[3]] = z3.Extract(2 * half - 1, half, whole)
        elif found := re.fullmatch(r"([a-z][\w.]*) ((%[a-z]+)\d+)(?:\|%\w+)?, (.*)", line):
            opcode, register, prefix, operands = found.groups()
            name, _, type_ = opcode.rpartition(".")
            width = self.widths[prefix]
            bits = self.value(name, type_, re.split(r", *", operands), width)
            if bits.size() != width:
                raise UnsupportedCode(f"{bits.size()} bits for {register}")
            self.env[register] = bits
        else:
            raise UnsupportedCode("no such instruction")

    def sized(self, text: str, width: int) -> Any:
        """Return the low `width` bits of a register, or an immediate of `width` bits."""
        if text.startswith("%") and self.env[text].size() > width:
            return z3.Extract(width - 1, 0, self.env[text])
        return self.operand(text, width)

    def operand(self, text: str, width: int) -> Any:
        """Return a register of `width` bits, or an immediate."""
        if found := re.fullmatch(r"0[fFdD]([0-9A-Fa-f]{8}(?:[0-9A-Fa-f]{8})?)", text):
            return z3.BitVecVal(int(found[1], 16), width)
        if re.fullmatch(r"-?0x[0-9A-Fa-f]+U?", text):
            return z3.BitVecVal(int(text.rstrip("U"), 16), width)
        if (prefix := text.rstrip("0123456789")) in self.widths and text not in self.env:
            self.env[text] = z3.FreshConst(z3.BitVecSort(self.widths[prefix]), "unwritten")
        return super().operand(text, width)

    def value(self, name: str, type_: str, operands: list[str], width: int) -> Any:
        """Return the `width` bits that an instruction writes to its destination."""
        parts = name.split(".")
        if type_ in _TYPES or (parts[0] == "cvt" and _TYPES.keys() & set(parts)):
            return self.of_floats(parts, type_, operands, width)
        match parts, operands:
            case ["ld", "param"], [address]:
                return super().value(name, type_, [address.replace("+0", "")], width)
            case ["mad", "lo"], [a, b, c]:
                x, y, z = (self.operand(each, width) for each in (a, b, c))
                return x * y + z
            case ["mad", "wide"], [a, b, c]:
                return super().value("mul.wide", type_, [a, b], width) + self.operand(c, width)
            case ["mul", "hi"], [a, b]:
                extend = z3.SignExt if type_[0] == "s" else z3.ZeroExt
                x, y = (extend(width, self.operand(each, width)) for each in (a, b))
                return z3.Extract(2 * width - 1, width, x * y)
            case ["clz"], [a]:
                return _leading_zeros(self.operand(a, int(type_[1:])), width)
            case ["popc"], [a]:
                bits = self.operand(a, int(type_[1:]))
                return sum(z3.ZeroExt(width - 1, z3.Extract(i, i, bits)) for i in range(bits.size()))
            case ["prmt"], [a, b, selector] if not selector.startswith("%"):
                return _permuted(self.operand(a, 32), self.operand(b, 32), int(selector.rstrip("U"), 0))
            case ["lop3"], [a, b, c, table]:
                x, y, z = (self.operand(each, width) for each in (a, b, c))
                return _lop3(x, y, z, int(table, 0))
            case ["setp", relation, ("and" | "or") as joined], [a, b, p]:
                first = super().value(f"setp.{relation}", type_, [a, b], width)
                other = self.env[p.lstrip("!")] ^ int(p.startswith("!"))
                return first & other if joined == "and" else first | other
            case ["bfe"], [a, at, count] if re.fullmatch(r"\d+", at) and re.fullmatch(r"\d+", count):
                low, many = int(at), int(count)
                taken = z3.Extract(low + many - 1, low, self.operand(a, width))
                return (z3.SignExt if type_[0] == "s" else z3.ZeroExt)(width - many, taken)
        return super().value(name, type_, operands, width)

    def of_floats(self, parts: list[str], type_: str, operands: list[str], width: int) -> Any:
        """Return the result of an instruction on floats."""
        kind, size = _TYPES.get(type_, ""), int(type_.lstrip("bsuf"))
        match parts, operands:
            case ["mov"], [a]:
                return self.operand(a, width)
            case ["ld", "param"], [address]:
                return self.parameters[address.strip("[]").replace("+0", "")]
            case ["selp"], [a, b, p]:
                return z3.If(self.operand(p, 1) == 1, self.operand(a, size), self.operand(b, size))
            case [("abs" | "neg") as which], [a]:
                bits, sign = self.operand(a, size), 1 << (size - 1)
                return bits & (sign - 1) if which == "abs" else bits ^ sign
            case [("add" | "sub" | "mul" | "div") as which, "rn"], [a, b]:
                x, y = self.operand(a, size), self.operand(b, size)
                return self.numbers.arithmetic(f"f{which}", kind, x, y)
            case ["fma", "rn"], [a, b, c]:
                return self.numbers.intrinsic("fma", kind, [self.operand(each, size) for each in (a, b, c)])
            case [("min" | "max") as which], [a, b]:
                return self.numbers.intrinsic(f"{which}num", kind, [self.operand(each, size) for each in (a, b)])
            case ["setp", relation], [a, b]:
                named = {"nan": "uno", "num": "ord"}.get(relation)
                named = named or (relation if len(relation) == 3 else f"o{relation}")
                named = f"u{named[:2]}" if len(relation) == 3 and named.endswith("u") else named
                if relation == "ne":
                    named = "one"
                holds = self.numbers.compare(named, kind, self.operand(a, size), self.operand(b, size))
                return z3.If(holds, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1))
            case ["cvt", *how, to], [a]:
                return self.converted(how, to, type_, a)
        raise UnsupportedCode("no such operation on floats")

    def converted(self, how: list[str], to: str, from_: str, a: str) -> Any:
        """Return the result of a conversion from or to a float."""
        bits = self.sized(a, int(from_.lstrip("bsuf")))
        if to in _TYPES and from_ in _TYPES:
            widens = int(to.lstrip("bf")) > int(from_.lstrip("bf"))
            if how not in ([["rn"], []][widens], []) or (not widens and how != ["rn"]):
                raise UnsupportedCode(f"rounding {'.'.join(how)}")
            return self.numbers.cast("fpext", bits, _TYPES[from_], _TYPES[to])[0]
        if to in _TYPES and how == ["rn"]:
            return self.numbers.cast("sitofp" if from_[0] == "s" else "uitofp", bits, "", _TYPES[to])[0]
        raise UnsupportedCode("no such conversion from or to a float")


def _merged(ways: list[tuple[z3.BoolRef, dict[str, z3.BitVecRef]]]) -> tuple[z3.BoolRef, dict[str, z3.BitVecRef]]:
    """Merge paths: return the condition that control takes one of them, and the merged registers.

    A register that a path does not write has an arbitrary value on this path.
    """
    *others, (reached, registers) = ways
    merged = dict(registers)
    for condition, env in others:
        for name in env.keys() | merged.keys():
            value, old = env.get(name), merged.get(name)
            if value is not old:
                either: Any = old if value is None else value
                value, old = (_unwritten(either) if each is None else each for each in (value, old))
                merged[name] = z3.If(condition, value, old)
        reached = z3.Or(reached, condition)
    return reached, merged


def _unwritten(like: Any) -> Any:
    return z3.FreshConst(like.sort(), "unwritten")


def _leading_zeros(bits: Any, width: int) -> Any:
    count = z3.BitVecVal(bits.size(), width)
    for i in range(bits.size()):
        count = z3.If(z3.Extract(i, i, bits) == 1, z3.BitVecVal(bits.size() - 1 - i, width), count)
    return count


def _permuted(a: Any, b: Any, selector: int) -> Any:
    """Return the four bytes that `selector` chooses from `a` and `b` (``prmt``).

    A byte may be replaced by eight copies of its top bit.
    """
    both, found = z3.Concat(b, a), []
    for nibble in (selector >> at & 15 for at in (12, 8, 4, 0)):
        byte = z3.Extract(8 * (nibble & 7) + 7, 8 * (nibble & 7), both)
        found.append(byte >> 7 if nibble & 8 else byte)
    return z3.Concat(*found)


def _lop3(a: Any, b: Any, c: Any, table: int) -> Any:
    """Combine three words bit by bit, by the function with the truth table `table` (``lop3``)."""
    result = z3.BitVecVal(0, a.size())
    for i in range(8):
        if table >> i & 1:
            result = result | ((a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c))
    return result

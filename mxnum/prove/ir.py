"""A symbolic executor of LLVM IR text that has only integers, forward branches and one result slot.

The executor raises UnsupportedCode for code that it does not support. The executor tracks for each
value whether it is poison, as the LLVM language reference defines. A flag such as `nsw` or `exact`,
or a declared range, is a promise about values. If the values break the promise, the result is
poison. An instruction with a poison operand has a poison result, with two exceptions. `select` and
`phi` ignore the poison of a value that they do not choose, and `freeze` turns poison into an
arbitrary value.

If inputs violate an obligation, the behaviour of the code is undefined. Two of the obligations are
that no branch depends on poison and that the returned value is not poison. The executor treats
`undef` as poison, which is stricter than LLVM.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import z3

from mxnum.prove.execution import Execution, UnsupportedCode

# --- Text


@dataclass(frozen=True)
class Function:
    """A function that follows numba's calling convention.

    The function returns a status, and stores its result at the address in its first parameter.
    """

    #: The width, the name and the permitted range of each parameter that carries an argument. The
    #: range is None if the code declares no range.
    parameters: tuple[tuple[int, str, tuple[str, str] | None], ...]
    #: The lines of each block, by label. The function starts in the first block. The last line of a
    #: block is a branch, a return or `unreachable`.
    blocks: dict[str, list[str]]


_RANGE = r"range\(i\d+ (-?\d+), (-?\d+)\)"


def parse(text: str, name: str) -> Function:
    """Return the function `name` of a module in textual IR."""
    header = re.search(rf'^define [^\n]*@"?{re.escape(name)}"?\((?P<rest>.*)\{{$', text, re.M)
    if header is None:
        raise UnsupportedCode(f"the module does not define {name}")
    slot, status, *parameters = _comma_separated(_until_closed(header["rest"]))
    if not re.fullmatch(r"ptr .*%retptr", slot) or not re.fullmatch(r"ptr .*%excinfo", status):
        raise UnsupportedCode(f"the function does not follow numba's calling convention: {header.group()}")
    blocks: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for raw in text[header.end() : text.index("\n}", header.end())].splitlines():
        # Remove only `!prof`: other metadata may make a value poison.
        line = re.sub(r", !prof !\d+$", "", re.sub(r"\s*;.*", "", raw)).strip()
        if found := re.fullmatch(r'([-\w.$]+|"[^"]*"):', line):
            lines = blocks[found[1]] = []
        elif line:
            if lines is None:
                raise UnsupportedCode(f"a block without a label starts at: {line}")
            lines.append(line)
    return Function(tuple(map(_parameter, parameters)), blocks)


def _until_closed(text: str) -> str:
    """Return the part of `text` before its first unmatched closing parenthesis."""
    depth = 1
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[:i]
    raise UnsupportedCode(f"unbalanced parentheses: {text}")


def _comma_separated(text: str) -> Iterator[str]:
    """Yield the comma-separated parts of a text; commas inside brackets do not separate parts."""
    depth, start = 0, 0
    for i, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()


def _parameter(text: str) -> tuple[int, str, tuple[str, str] | None]:
    type_, _, low, high, name = _match(rf"(i\d+)(?: noundef| signext| zeroext)*( {_RANGE})? (%\S+)", text)
    return _width(type_), name, (low, high) if low else None


def _match(pattern: str, text: str) -> tuple[Any, ...]:
    found = re.fullmatch(pattern, text)
    if found is None:
        raise UnsupportedCode(text)
    return found.groups()


def _width(type_: str) -> int:
    (digits,) = _match(r"i(\d+)", type_)
    return int(digits)


# --- Values


class Value(NamedTuple):
    """The bits of a register, and the condition under which they are poison."""

    bits: z3.BitVecRef
    poison: z3.BoolRef


_NEVER, _ALWAYS = z3.BoolVal(False), z3.BoolVal(True)


def _any(*conditions: z3.BoolRef) -> z3.BoolRef:
    """Return the disjunction of the conditions, without conditions that are constant False."""
    live = [condition for condition in conditions if not z3.is_false(condition)]
    return z3.Or(*live) if len(live) > 1 else live[0] if live else _NEVER


def _both(a: z3.BoolRef, b: z3.BoolRef) -> z3.BoolRef:
    return b if z3.is_true(a) else z3.And(a, b)


def _choose(condition: z3.BoolRef, a: Value, b: Value) -> Value:
    """Return `a` if the condition holds, otherwise `b`.

    The result is poison only if the chosen value is poison.
    """
    clean = z3.is_false(a.poison) and z3.is_false(b.poison)
    return Value(z3.If(condition, a.bits, b.bits), _NEVER if clean else z3.If(condition, a.poison, b.poison))


def _bit(condition: z3.BoolRef) -> z3.BitVecRef:
    return z3.If(condition, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1))


def _arbitrary(width: int) -> z3.BitVecRef:
    return z3.FreshConst(z3.BitVecSort(width), "arbitrary")


def _outside(bits: z3.BitVecRef, low: str, high: str) -> z3.BoolRef:
    """Return the condition that bits lie outside the range [low, high), which may wrap around."""
    size = (int(high) - int(low)) % (1 << bits.size())
    return z3.UGE(bits - z3.BitVecVal(int(low), bits.size()), z3.BitVecVal(size, bits.size()))


# --- The meaning of instructions

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "lshr": z3.LShR,
    "ashr": lambda a, b: a >> b,
}


def _exact(operation: str, extend: Callable[[int, Any], Any]) -> Callable[[Any, Any], z3.BoolRef]:
    """Return `fits`; `fits(a, b)` is the condition that the operation on a and b does not overflow.

    The condition holds if extending the result of the operation gives the same number as applying
    the operation to extended operands.
    """
    apply = _BINARY[operation]

    def fits(a: Any, b: Any) -> z3.BoolRef:
        more = a.size() if operation == "mul" else 1
        return apply(extend(more, a), extend(more, b)) == extend(more, apply(a, b))

    return fits


#: The condition that a flag of an operation promises about the operands. If the operands break the
#: promise, the result is poison.
_PROMISES: dict[tuple[str, str], Callable[[Any, Any], z3.BoolRef]] = {
    **{(operation, "nsw"): _exact(operation, z3.SignExt) for operation in ("add", "sub", "mul")},
    **{(operation, "nuw"): _exact(operation, z3.ZeroExt) for operation in ("add", "sub", "mul")},
    ("shl", "nsw"): lambda a, b: (a << b) >> b == a,
    ("shl", "nuw"): lambda a, b: z3.LShR(a << b, b) == a,
    ("lshr", "exact"): lambda a, b: z3.LShR(a, b) << b == a,
    ("ashr", "exact"): lambda a, b: (a >> b) << b == a,
    ("or", "disjoint"): lambda a, b: a & b == 0,
    ("icmp", "samesign"): lambda a, b: (a < 0) == (b < 0),
}

_COMPARE: dict[str, Callable[[Any, Any], z3.BoolRef]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "slt": lambda a, b: a < b,
    "sle": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b,
    "sge": lambda a, b: a >= b,
    "ult": z3.ULT,
    "ule": z3.ULE,
    "ugt": z3.UGT,
    "uge": z3.UGE,
}

_INTRINSICS: dict[str, Callable[[Any, Any], Any]] = {
    "umin": lambda a, b: z3.If(z3.ULT(a, b), a, b),
    "umax": lambda a, b: z3.If(z3.ULT(a, b), b, a),
    "smin": lambda a, b: z3.If(a < b, a, b),
    "smax": lambda a, b: z3.If(a < b, b, a),
    "usub.sat": lambda a, b: z3.If(z3.ULT(a, b), 0, a - b),
}

_FLAGS = "nuw|nsw|exact|disjoint|nneg|samesign"
_ASSIGNMENT = rf"(%\S+) = (?:tail )?(\w+)((?: (?:{_FLAGS}))*) (.*)"
_CALL = rf"(?:noundef )?(?:{_RANGE} )?(i\d+) @llvm\.([a-z.]+?)(?:\.i\d+)+\((.*)\)(?: #\d+)?"


def _broken(opcode: str, flags: list[str], a: Any, b: Any) -> list[z3.BoolRef]:
    """Return the condition, for each flag, under which the operands break the flag's promise."""
    for flag in flags:
        if (opcode, flag) not in _PROMISES:
            raise UnsupportedCode(f"{opcode} {flag}")
    return [z3.Not(_PROMISES[opcode, flag](a, b)) for flag in flags]


@dataclass
class _Machine:
    """The state of the execution of a function."""

    env: dict[str, Value] = field(default_factory=dict)
    block: str = ""
    #: `reached` has the condition under which control reaches each block, and `edges` the condition
    #: under which control takes each edge. `stored` has the content of the result slot at the end
    #: of each block.
    reached: dict[str, z3.BoolRef] = field(default_factory=dict)
    edges: dict[tuple[str, str], z3.BoolRef] = field(default_factory=dict)
    stored: dict[str, Value] = field(default_factory=dict)
    obligations: list[z3.BoolRef] = field(default_factory=list)
    returned: list[tuple[z3.BoolRef, Value]] = field(default_factory=list)

    def operand(self, text: str, width: int) -> Value:
        """Return a register of `width` bits, or a constant."""
        if text.startswith("%"):
            value = self.env[text]
            if value.bits.size() != width:
                raise UnsupportedCode(f"{text} has {value.bits.size()} bits, not {width}")
            return value
        if text in ("undef", "poison"):
            return Value(_arbitrary(width), _ALWAYS)
        (number,) = _match(r"(-?\d+|true|false)", text)
        return Value(z3.BitVecVal({"true": 1, "false": 0}.get(number, number), width), _NEVER)

    def operands(self, type_: str, *texts: str) -> list[Value]:
        """Return the values of several operands of one type."""
        return [self.operand(text, _width(type_)) for text in texts]

    def require(self, condition: z3.BoolRef) -> None:
        """Add the obligation that a condition holds whenever control reaches the current block."""
        self.obligations.append(z3.Implies(self.reached[self.block], condition))

    def enter(self, label: str) -> None:
        """Begin the block `label`: merge the conditions and stored results of all edges to it."""
        sources = [source for source, target in self.edges if target == label]
        if sources:
            self.reached[label] = _any(*(self.edges[source, label] for source in sources))
            self.stored[label] = self.merge([(source, self.stored[source]) for source in sources], label)
        else:
            self.reached[label], self.stored[label] = _ALWAYS, Value(_arbitrary(64), _ALWAYS)
        self.block = label

    def merge(self, values: list[tuple[str, Value]], label: str) -> Value:
        """Return the value of the edge through which control enters the block `label`.

        `values` has a pair for each edge to the block: the label of the block where the edge
        starts, and the value.
        """
        *others, (_, result) = values
        for source, value in others:
            result = _choose(self.edges[source, label], value, result)
        return result

    def step(self, line: str) -> None:
        """Execute one line of a block; `leave` executes the last line."""
        if found := re.fullmatch(r"store (i\d+) (\S+), ptr %retptr(?:, align \d+)?", line):
            (self.stored[self.block],) = self.operands(*found.groups())
        elif found := re.fullmatch(r"(?:tail )?call void @llvm\.assume\(i1 (?:noundef )?(\S+)\)(?: #\d+)?", line):
            truth = self.operand(found[1], 1)
            self.require(z3.And(z3.Not(truth.poison), truth.bits == 1))
        else:
            name, opcode, flags, rest = _match(_ASSIGNMENT, line)
            self.env[name] = self.value(opcode, flags.split(), rest)

    def leave(self, line: str) -> None:
        """Execute the last line of a block."""
        label, reached = self.block, self.reached[self.block]
        if line == "ret i32 0":
            self.returned.append((reached, self.stored[label]))
        elif line == "unreachable":
            self.require(_NEVER)
        elif found := re.fullmatch(r"br label %(\S+)", line):
            self.edges[label, found[1]] = reached
        else:
            name, if_true, if_false = _match(r"br i1 (\S+), label %(\S+), label %(\S+)", line)
            condition = self.operand(name, 1)
            self.require(z3.Not(condition.poison))
            if if_true == if_false:
                raise UnsupportedCode("both targets of the branch are the same block")
            self.edges[label, if_true] = _both(reached, condition.bits == 1)
            self.edges[label, if_false] = _both(reached, condition.bits == 0)

    def value(self, opcode: str, flags: list[str], rest: str) -> Value:
        """Return the value that an instruction computes."""
        if opcode in _BINARY or opcode == "icmp":
            relation, rest = rest.split(" ", 1) if opcode == "icmp" else ("", rest)
            (a, poison_a), (b, poison_b) = self.operands(*_match(r"(i\d+) (\S+), (\S+)", rest))
            broken = _broken(opcode, flags, a, b)
            if opcode in ("shl", "lshr", "ashr"):
                broken.append(z3.UGE(b, b.size()))
            bits = _bit(_COMPARE[relation](a, b)) if opcode == "icmp" else _BINARY[opcode](a, b)
            return Value(bits, _any(poison_a, poison_b, *broken))
        if opcode in ("zext", "sext", "trunc"):
            return self.cast(opcode, flags, *_match(r"(i\d+) (\S+) to (i\d+)", rest))
        if flags:
            raise UnsupportedCode(f"{opcode} {flags}")
        if opcode == "bitcast":  # LLVM's constant hoisting inserts bitcasts that keep the type
            type_, name, to = _match(r"(i\d+) (\S+) to (i\d+)", rest)
            if type_ != to:
                raise UnsupportedCode(rest)
            return self.operand(name, _width(type_))
        if opcode == "select":
            name, type_, if_true, type_again, if_false = _match(r"i1 (\S+), (i\d+) (\S+), (i\d+) (\S+)", rest)
            condition = self.operand(name, 1)
            a, b = self.operand(if_true, _width(type_)), self.operand(if_false, _width(type_again))
            chosen = _choose(condition.bits == 1, a, b)
            return Value(chosen.bits, _any(condition.poison, chosen.poison))
        if opcode == "freeze":
            type_, name = _match(r"(i\d+) (\S+)", rest)
            frozen = self.operand(name, _width(type_))
            return Value(_choose(frozen.poison, Value(_arbitrary(_width(type_)), _NEVER), frozen).bits, _NEVER)
        if opcode == "phi":
            type_, arms = _match(r"(i\d+) (\[.*\])", rest)
            pairs = [_match(r"\[ (\S+), %(\S+) \]", arm) for arm in _comma_separated(arms)]
            return self.merge([(source, self.operand(name, _width(type_))) for name, source in pairs], self.block)
        if opcode == "call":
            low, high, type_, name, listed = _match(_CALL, rest)
            values = [self.argument(item) for item in _comma_separated(listed)]
            bits, broken = _intrinsic(name, _width(type_), [value.bits for value in values])
            outside = _outside(bits, low, high) if low else _NEVER
            return Value(bits, _any(*(value.poison for value in values), broken, outside))
        raise UnsupportedCode(opcode)

    def argument(self, text: str) -> Value:
        """Return a call's argument; a value outside the argument's declared range is poison."""
        type_, _, low, high, name = _match(rf"(i\d+)(?: noundef)?( {_RANGE})? (\S+)", text)
        value = self.operand(name, _width(type_))
        return Value(value.bits, _any(value.poison, _outside(value.bits, low, high))) if low else value

    def cast(self, opcode: str, flags: list[str], from_: str, name: str, to: str) -> Value:
        """Return the value of an instruction that changes the width of an integer."""
        a, poison = self.operand(name, _width(from_))
        change = _width(to) - _width(from_)
        if opcode == "trunc":
            bits = z3.Extract(_width(to) - 1, 0, a)
            promises = {"nuw": z3.ZeroExt(-change, bits) == a, "nsw": z3.SignExt(-change, bits) == a}
        else:
            bits = (z3.ZeroExt if opcode == "zext" else z3.SignExt)(change, a)
            promises = {"nneg": a >= 0} if opcode == "zext" else {}
        if not promises.keys() >= set(flags):
            raise UnsupportedCode(f"{opcode} {flags}")
        return Value(bits, _any(poison, *(z3.Not(promises[flag]) for flag in flags)))


def _intrinsic(name: str, width: int, operands: list[z3.BitVecRef]) -> tuple[z3.BitVecRef, z3.BoolRef]:
    """Return an intrinsic's result, and the condition under which the intrinsic returns poison."""
    match name, operands:
        case _, [a, b] if name in _INTRINSICS:
            return _INTRINSICS[name](a, b), _NEVER
        case "scmp" | "ucmp", [a, b]:
            less, greater = (a < b, a > b) if name == "scmp" else (z3.ULT(a, b), z3.UGT(a, b))
            return z3.If(less, z3.BitVecVal(-1, width), z3.If(greater, z3.BitVecVal(1, width), 0)), _NEVER
        case "abs", [a, strict]:
            return z3.If(a < 0, -a, a), z3.And(strict == 1, a == 1 << (width - 1))
        case "ctlz", [a, strict]:
            count = z3.BitVecVal(width, width)
            for i in range(width):
                count = z3.If(z3.Extract(i, i, a) == 1, z3.BitVecVal(width - 1 - i, width), count)
            return count, z3.And(strict == 1, a == 0)
        case "cttz", [a, strict]:
            count = z3.BitVecVal(width, width)
            for i in reversed(range(width)):
                count = z3.If(z3.Extract(i, i, a) == 1, z3.BitVecVal(i, width), count)
            return count, z3.And(strict == 1, a == 0)
        case "ctpop", [a]:
            return sum(z3.ZeroExt(width - 1, z3.Extract(i, i, a)) for i in range(width)), _NEVER
        case "fshl" | "fshr", [a, b, amount]:
            by = z3.ZeroExt(width, z3.URem(amount, z3.BitVecVal(width, width)))
            if name == "fshl":
                return z3.Extract(2 * width - 1, width, z3.Concat(a, b) << by), _NEVER
            return z3.Extract(width - 1, 0, z3.LShR(z3.Concat(a, b), by)), _NEVER
    raise UnsupportedCode(f"llvm.{name} with {len(operands)} operands")


# --- A whole function


def execute(function: Function, arguments: Sequence[z3.BitVecRef]) -> Execution:
    """Return the result that a function stores, and the conditions under which it is defined."""
    machine = _Machine()
    for (width, name, bounds), argument in zip(function.parameters, arguments, strict=True):
        if argument.size() != width:
            raise UnsupportedCode(f"{name} has {width} bits, not {argument.size()}")
        machine.env[name] = Value(argument, _outside(argument, *bounds) if bounds else _NEVER)
    for label in _forward_order(function.blocks):
        machine.enter(label)
        *lines, last = function.blocks[label]
        for line in lines:
            _attempt(machine.step, line)
        _attempt(machine.leave, last)
    if not machine.returned:
        raise UnsupportedCode("the function never returns")
    *others, (_, result) = machine.returned
    for reached, value in others:
        result = _choose(reached, value, result)
    return Execution(result.bits, [*machine.obligations, z3.Not(result.poison)])


def _attempt(action: Callable[[str], None], line: str) -> None:
    """Apply an action to a line; if it fails, raise UnsupportedCode with the line."""
    try:
        action(line)
    except (UnsupportedCode, KeyError, z3.Z3Exception) as problem:
        said = "no such instruction" if str(problem) in line else problem
        raise UnsupportedCode(f"{line!r}: {said}", line) from problem


def _forward_order(blocks: dict[str, list[str]]) -> list[str]:
    """Return the labels of the reachable blocks, each after all blocks that branch to it."""
    order: list[str] = []
    active: list[str] = []

    def visit(label: str) -> None:
        if label in active:
            raise UnsupportedCode(f"a loop through {label} whose number of iterations varies", blocks[label][-1])
        if label not in order:
            active.append(label)
            for target in re.findall(r"label %([^\s,]+)", blocks[label][-1]):
                visit(target)
            active.remove(label)
            order.insert(0, label)

    visit(next(iter(blocks)))
    return order

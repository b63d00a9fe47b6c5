"""A symbolic executor of clang's LLVM IR with branches, floats, constant tables and arrays.

The module `ir` defines the meaning of integer instructions and of poison. A pointer consists of an
object and an offset in bytes. An object is a constant or variable of the module, or an array of
fixed length to which a parameter points. Different parameters point to different objects. The
executor executes each block after all blocks that branch to it. A store changes memory only under
the condition that control reaches the block of the store.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import z3

from mxnum.prove import ir
from mxnum.prove.execution import UnsupportedCode
from mxnum.prove.ir import Value
from mxnum.prove.ir_floats import WIDTHS, Floats, as_integers

_NEVER, _ALWAYS = z3.BoolVal(False), z3.BoolVal(True)
_FLOAT = "half|bfloat|float|double"
_TYPE = rf"i\d+|{_FLOAT}"
_CONSTANT = r"^@(\S+) = [^\n]*?\bconstant (\[[^\]]*\]+) (c\".*?\"|\[.*\]|zeroinitializer)"
_FLOAT_CALL = rf"(%\S+) = (?:tail )?call (?:noundef )?({_FLOAT}) @llvm\.(\w+)\.\w+\((.*)\)(?: #\d+)?"


class Pointer(NamedTuple):
    """The name of an object, and a 64-bit offset into the object in bytes."""

    object: str
    offset: Value


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function: an integer or a float of `width` bits, or a pointer (width 0)."""

    name: str
    width: int


@dataclass(frozen=True)
class Function:
    """A function of an LLVM module."""

    name: str
    #: The index in the module's text at which the function's definition begins.
    begin: int
    #: The width of the result in bits; 0 for void.
    result: int
    parameters: tuple[Parameter, ...]
    blocks: dict[str, list[str]]
    #: The bytes of the module's constants.
    constants: Mapping[str, bytes]
    #: The sizes of the module's variables in bytes.
    variables: Mapping[str, int]


class Result(NamedTuple):
    """The returned value (None for void), and the bytes of the caller's arrays after the call."""

    value: z3.BitVecRef | None
    arrays: Mapping[str, list[z3.BitVecRef]]
    obligations: list[z3.BoolRef]
    premises: list[z3.BoolRef]


def names(text: str) -> list[str]:
    """Return the names of the functions that a module defines."""
    return re.findall(r'^define [^\n]*?@"?([\w.$]+)"?\(', text, re.M)


def parse(text: str, name: str) -> Function:
    """Return the function `name` of a module; C++ may have mangled the name."""
    defined = names(text)
    in_cpp = "".join(f"{len(each)}{re.escape(each)}" for each in name.split("::"))
    mangled = [each for each in defined if each == name or re.match(rf"_Z(N.*)?{in_cpp}", each)]
    if len(mangled) != 1:
        found = f"has {len(mangled)} functions" if mangled else "has no function"
        raise UnsupportedCode(f"the module {found} of that name; it defines {', '.join(defined) or 'none'}")
    header = re.search(rf'^define (?P<head>[^\n]*)@"?{re.escape(mangled[0])}"?\((?P<rest>.*)\{{$', text, re.M)
    assert header is not None
    listed = list(ir._comma_separated(ir._until_closed(header["rest"])))
    parameters = tuple(_parameter(each, i, header[0]) for i, each in enumerate(listed))
    returned = re.findall(rf"\b({_TYPE}|void)\b(?! \()", re.sub(r"range\([^)]*\)", "", header["head"]))
    if not returned:
        raise UnsupportedCode("the result is neither an integer nor a float", header[0])
    body = text[header.end() : text.index("\n}", header.end())]
    blocks = _blocks(body, str(sum(1 for each in parameters if each.name[1:].isdigit())))
    return Function(name, header.start(), _width(returned[-1]), parameters, blocks, _constants(text), _variables(text))


def _parameter(text: str, position: int, header: str) -> Parameter:
    type_, *rest = text.split()
    name = rest[-1] if rest and rest[-1].startswith("%") else f"%{position}"
    if type_ == "ptr" and "byval" not in text and "sret" not in text:
        return Parameter(name, 0)
    if not re.fullmatch(_TYPE, type_):
        raise UnsupportedCode(f"parameter {name[1:]!r} has the type {type_}, not an integer, float or pointer", header)
    return Parameter(name, _width(type_))


def location(text: str, file: str, begin: int, line: str) -> str:
    """Return the file and the line number of an instruction, as text for an error message.

    `line` is the text of the instruction. The search for the instruction starts at `begin`. If the
    module has debug information (``!dbg``), the result names the file and the line of the source
    code.
    """
    start = re.escape(line.split(" [")[0])
    found = re.compile(rf"^\s*{start}.*", re.M).search(text, begin) if line else None
    if found is None:
        return file
    entry = _metadata(text, found[0], "dbg")
    number = re.search(r"\bline: ([1-9]\d*)", entry)
    if number is None:
        return file if "!DIFile(" in text else f"line {text.count(chr(10), 0, found.end()) + 1} of {file}"
    source = _metadata(text, entry, "file:") or _metadata(text, _metadata(text, entry, "scope:"), "file:")
    name = re.search(r'filename: "(?:[^"]*/)?([^"/]*)"', source)
    return f"line {number[1]} of {name[1] if name else file}"


def _metadata(text: str, entry: str, key: str) -> str:
    """Return the text of the metadata that `entry` names after `key`, or an empty string."""
    found = re.search(rf"{key} !(\d+)", entry)
    named = re.search(rf"^!{found[1]} = (.*)$", text, re.M) if found else None
    return named[1] if named else ""


def _width(type_: str) -> int:
    return 0 if type_ == "void" else WIDTHS[type_] if type_ in WIDTHS else int(type_[1:])


def _blocks(body: str, first: str) -> dict[str, list[str]]:
    """Return the lines of each block, without comments and harmless metadata.

    Metadata is harmless if it cannot make a value poison.
    """
    blocks: dict[str, list[str]] = {}
    body = re.sub(r"\[\s*\n((?:\s+i\d+ -?\d+, label %\S+\s*\n)*)\s*\]", lambda m: f"[ {' '.join(m[1].split())} ]", body)
    lines = blocks[first] = []
    for raw in body.splitlines():
        line = re.sub(r"\s*;.*", "", raw)
        line = re.sub(r"(, !(prof|tbaa|dbg|llvm\.loop|srcloc|tbaa\.struct) !\d+)+$", "", line).strip()
        if line.startswith("#dbg") or not line:
            continue
        if found := re.fullmatch(r'([-\w.$]+|"[^"]*"):', line):
            lines = blocks[found[1]] = []
        else:
            lines.append(line)
    if not blocks[first]:
        del blocks[first]
    return blocks


def _constants(text: str) -> dict[str, bytes]:
    """Return the bytes of the module's constant arrays of integers or floats."""
    found = {}
    # Replace a structure that holds only one array, such as std::array, by this array.
    text = re.sub(r'(?m)\bconstant (?:%\S+|%"[^"\n]*") \{ (\[[^{}\n]*\]) \}(?=,|$)', r"constant \1", text)
    for name, type_, value in re.findall(_CONSTANT, text, re.M):
        counts, elements = re.findall(r"\[(\d+) x", type_), re.findall(_TYPE, type_)
        if len(elements) != 1 or "{" in type_:
            continue
        # Remove the types, which stand before the values of inner arrays.
        value = re.sub(r"\[(\d+) x [^\]]*\]+ (?=[\[cz])", "", value)
        size, count = _width(elements[0]) // 8, math.prod(map(int, counts))
        texts = re.findall(r"c\"(.*?)\"", value)
        if texts:
            raw = (re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m[1], 16)), each) for each in texts)
            data = "".join(raw).encode("latin-1")
        else:
            numbers = re.findall(r"(?<!\w)i\d+ (-?\d+)", as_integers(value))
            data = b"".join((int(n) % (1 << 8 * size)).to_bytes(size, "little") for n in numbers)
        if value == "zeroinitializer":
            data = bytes(size * count)
        if len(data) == size * count:
            found[name] = data
    return found


def _variables(text: str) -> dict[str, int]:
    """Return the sizes in bytes of the module's integer and float variables."""
    found = re.findall(rf"^@(\S+) = [^\n]*?\bglobal ({_TYPE})\b", text, re.M)
    return {name: _width(type_) // 8 for name, type_ in found}


@dataclass
class _Machine(ir._Machine):
    """The state of an execution, with the caller's arrays."""

    floats: Floats = field(default_factory=Floats)
    pointers: dict[str, Pointer] = field(default_factory=dict)
    arrays: dict[str, list[Any]] = field(default_factory=dict)
    constants: Mapping[str, bytes] = field(default_factory=dict)
    variables: Mapping[str, int] = field(default_factory=dict)
    #: For each stored byte, the condition under which the byte is poison.
    poison: dict[tuple[str, int], z3.BoolRef] = field(default_factory=dict)
    void: bool = False

    def enter(self, label: str) -> None:
        """Begin a block: combine the conditions of all edges to this block."""
        sources = [source for source, target in self.edges if target == label]
        self.reached[label] = ir._any(*(self.edges[source, label] for source in sources)) if sources else _ALWAYS
        self.block = label

    def step(self, line: str) -> None:
        """Execute one line of a block, except the last line, which `leave` executes."""
        if found := re.fullmatch(r"(%\S+) = getelementptr (?:inbounds |nuw |nusw )*(.+?), ptr (\S+), (.*)", line):
            self.pointers[found[1]] = self.moved(found[3], found[2], found[4])
        elif found := re.fullmatch(rf"(%\S+) = load ({_TYPE}), ptr (\S+|getelementptr .*\))(?:, align \d+)?", line):
            self.env[found[1]] = self.load(self.pointer(found[3]), _width(found[2]))
        elif found := re.fullmatch(rf"store ({_TYPE}) (\S+), ptr (\S+|getelementptr .*\))(?:, align \d+)?", line):
            type_, value = as_integers(f"{found[1]} {found[2]}").split()
            self.store(self.pointer(found[3]), self.operand(value, _width(type_)))
        elif found := re.fullmatch(r"(%\S+) = .*call .*ptr @llvm\.threadlocal\.address\.p0\(ptr .*(@\S+)\)", line):
            self.pointers[found[1]] = self.pointer(found[2])
        elif re.fullmatch(r"(?:tail )?call void @llvm\.(lifetime\.\w+|experimental\.noalias\S*)\(.*\)(?: #\d+)?", line):
            return
        elif re.fullmatch(r"store ptr .*, !numba_exception_output !\d+", line):
            return  # Ignore the stored exception, because the returned status reports it.
        elif found := re.fullmatch(r"(%\S+) = (f\w+|[su]itofp)((?: (?:contract|nsz))*) (.*)", line):
            if found[3]:
                raise UnsupportedCode(f"{found[2]}{found[3]}")
            self.env[found[1]] = self.of_floats(found[2], found[4])
        elif found := re.fullmatch(_FLOAT_CALL, line):
            operands = [self.float_operand(each) for each in ir._comma_separated(found[4])]
            bits = self.floats.intrinsic(found[3], found[2], [each.bits for each in operands])
            self.env[found[1]] = Value(bits, ir._any(*(each.poison for each in operands)))
        elif found := re.fullmatch(rf"(%\S+) = bitcast ({_TYPE}) (\S+) to ({_TYPE})", line):
            type_, value = as_integers(f"{found[2]} {found[3]}").split()
            self.env[found[1]] = self.operand(value, _width(type_))
        elif found := re.fullmatch(r"(%\S+) = (udiv|sdiv|urem|srem)((?: exact)?) (i\d+) (\S+), (\S+)", line):
            self.env[found[1]] = self.division(found[2], bool(found[3]), *self.operands(*found.groups()[3:]))
        else:
            super().step(as_integers(line) if re.match(r"%\S+ = (select|phi|freeze) ", line) else line)

    def leave(self, line: str) -> None:
        """Execute the last line of a block."""
        label, reached = self.block, self.reached[self.block]
        if line == "ret void":
            self.void = True
        elif found := re.fullmatch(rf"ret ({_TYPE}) (\S+)", line):
            type_, value = as_integers(f"{found[1]} {found[2]}").split()
            self.returned.append((reached, self.operand(value, _width(type_))))
        elif found := re.fullmatch(r"switch (i\d+) (\S+), label %(\S+) \[(.*)\]", line):
            switched = self.operand(found[2], _width(found[1]))
            self.require(z3.Not(switched.poison))
            cases = re.findall(r"i\d+ (-?\d+), label %(\S+)", found[4])
            for number, target in cases:
                self.edge(target, z3.And(reached, switched.bits == int(number)))
            others = [switched.bits != int(number) for number, _ in cases]
            self.edge(found[3], z3.And(reached, *others))
        elif found := re.fullmatch(r"br label %(\S+)", line):
            self.edge(found[1], reached)
        elif line == "unreachable":
            self.require(_NEVER)
        else:
            name, if_true, if_false = ir._match(r"br i1 (\S+), label %(\S+), label %(\S+)", line)
            condition = self.operand(name, 1)
            self.require(z3.Not(condition.poison))
            self.edge(if_true, ir._both(reached, condition.bits == 1))
            self.edge(if_false, ir._both(reached, condition.bits == 0))
        assert label == self.block

    def edge(self, target: str, condition: Any) -> None:
        """Add a condition under which control passes from the current block to `target`."""
        before = self.edges.get((self.block, target))
        self.edges[self.block, target] = condition if before is None else z3.Or(before, condition)

    def float_operand(self, text: str) -> Value:
        """Return the value of an operand whose text begins with its type, such as ``float %x``."""
        type_, value = as_integers(text.replace("noundef ", "")).split()
        return self.operand(value, _width(type_))

    def of_floats(self, opcode: str, rest: str) -> Value:
        """Return the value of a float instruction."""
        if found := re.fullmatch(rf"(?:(\w+) )?({_FLOAT}) (\S+), (\S+)", rest):
            relation, type_, *texts = found.groups()
            a, b = (self.float_operand(f"{type_} {text}") for text in texts)
            poison = ir._any(a.poison, b.poison)
            if opcode == "fcmp":
                return Value(ir._bit(self.floats.compare(relation, type_, a.bits, b.bits)), poison)
            if relation is None and opcode in ("fadd", "fsub", "fmul", "fdiv"):
                return Value(self.floats.arithmetic(opcode, type_, a.bits, b.bits), poison)
        elif found := re.fullmatch(rf"({_TYPE}) (\S+) to ({_TYPE})", rest):
            a = self.float_operand(f"{found[1]} {found[2]}")
            bits, broken = self.floats.cast(opcode, a.bits, found[1], found[3])
            return Value(bits, ir._any(a.poison, broken))
        elif opcode == "fneg" and (found := re.fullmatch(rf"({_FLOAT}) (\S+)", rest)):
            a = self.float_operand(rest)
            return Value(a.bits ^ (1 << (a.bits.size() - 1)), a.poison)
        raise UnsupportedCode(f"{opcode} {rest}")

    def division(self, opcode: str, exact: bool, a: Value, b: Value) -> Value:
        """Return a quotient or remainder; add the obligation that the division is defined."""
        x, y = a.bits, b.bits
        defined = [y != 0]
        if opcode.startswith("s"):
            defined.append(z3.Not(z3.And(x == 1 << (x.size() - 1), y == -1)))
        self.require(z3.And(z3.Not(b.poison), *defined))
        compute = {"udiv": z3.UDiv, "urem": z3.URem, "sdiv": lambda p, q: p / q, "srem": z3.SRem}[opcode]
        result = compute(x, y)
        lost = [result * y != x] if exact else []
        return Value(result, ir._any(a.poison, *lost))

    # --- Memory

    def pointer(self, text: str) -> Pointer:
        """Parse the text of an operand, and return the pointer."""
        if found := re.fullmatch(r"getelementptr (?:inbounds |nuw |nusw )*\((.+?), ptr (\S+), (.*)\)", text):
            return self.moved(found[2], found[1], found[3])
        if text.startswith("@"):
            if text[1:] in self.variables:  # a variable's initial value is arbitrary
                size = self.variables[text[1:]]
                self.arrays.setdefault(text, [z3.FreshConst(z3.BitVecSort(8), "variable") for _ in range(size)])
            elif text[1:] not in self.constants:
                raise UnsupportedCode(f"{text} is neither a constant array of numbers nor a variable")
            return Pointer(text, Value(z3.BitVecVal(0, 64), _NEVER))
        return self.pointers[text]

    def moved(self, text: str, type_: str, indices: str) -> Pointer:
        """Return the pointer that ``getelementptr`` computes from a pointer, a type and indices."""
        base, offset, poison = self.pointer(text), z3.BitVecVal(0, 64), [_NEVER]
        for each in ir._comma_separated(indices):
            kind, name = each.split()
            index = self.operand(name, _width(kind))
            offset = offset + z3.SignExt(64 - index.bits.size(), index.bits) * _size(type_)
            poison.append(index.poison)
            if inner := re.fullmatch(r"\[\d+ x (.*)\]", type_):
                type_ = inner[1]
        total = Value(z3.simplify(base.offset.bits + offset), ir._any(base.offset.poison, *poison))
        return Pointer(base.object, total)

    def bytes_of(self, name: str) -> list[Any]:
        """Return the bytes of an object."""
        if name[1:] in self.constants:
            return [z3.BitVecVal(byte, 8) for byte in self.constants[name[1:]]]
        return self.arrays[name]

    def load(self, pointer: Pointer, width: int) -> Value:
        """Return the little-endian number at a pointer, which must lie inside its object."""
        size, every, (offset, poison) = -(-width // 8), self.bytes_of(pointer.object), pointer.offset
        if width % 8:
            raise UnsupportedCode(f"a load of {width} bits")
        at = z3.simplify(offset)
        last = len(every) - size
        if z3.is_bv_value(at):
            places = [at.as_long()]
            self.require(z3.BoolVal(places[0] <= last))
            places = [min(places[0], last)]
        else:
            self.require(z3.And(z3.Not(poison), z3.ULE(offset, last)))
            places = list(range(last + 1))
        values = [joined(every[k : k + size]) for k in places]
        read = {(pointer.object, k + j) for k in places for j in range(size)}
        dirty = ir._any(poison, *(self.poison[each] for each in sorted(read & self.poison.keys())))
        result = values[-1]
        for k, value in zip(places[-2::-1], values[-2::-1], strict=True):
            result = z3.If(offset == k, value, result)
        return Value(result, dirty)

    def store(self, pointer: Pointer, value: Value) -> None:
        """Store a number at a pointer, if control reaches the current block."""
        at, every = z3.simplify(pointer.offset.bits), self.arrays.get(pointer.object)
        if every is None or not z3.is_bv_value(at) or value.bits.size() % 8:
            raise UnsupportedCode(
                "a store must write whole bytes at a constant offset in one of the caller's arrays or in a variable"
            )
        reached, size, first = self.reached[self.block], value.bits.size() // 8, at.as_long()
        if first + size > len(every):
            raise UnsupportedCode(f"a store to byte {first} of {pointer.object[1:]}, which has {len(every)} bytes")
        for j in range(size):
            byte = z3.Extract(8 * j + 7, 8 * j, value.bits)
            every[first + j] = z3.If(reached, byte, every[first + j])
            before = self.poison.get((pointer.object, first + j), _NEVER)
            self.poison[pointer.object, first + j] = z3.If(reached, value.poison, before)


def joined(every: Sequence[Any]) -> Any:
    """Return the number whose little-endian bytes are given."""
    return z3.Concat(*reversed(every)) if len(every) > 1 else every[0]


def _size(type_: str) -> int:
    """Return the size of a type in bytes."""
    if found := re.fullmatch(r"\[(\d+) x (.*)\]", type_):
        return int(found[1]) * _size(found[2])
    if not re.fullmatch(_TYPE, type_):
        raise UnsupportedCode(f"the type {type_}")
    return _width(type_) // 8


def execute(function: Function, arguments: Sequence[z3.BitVecRef | list[z3.BitVecRef]]) -> Result:
    """Execute a function, and return its result and the obligations for defined behaviour.

    The argument for a pointer is the list of bytes to which the pointer points.
    """
    machine = _Machine(constants=function.constants, variables=function.variables)
    for parameter, argument in zip(function.parameters, arguments, strict=True):
        if isinstance(argument, list):
            machine.arrays[parameter.name] = list(argument)
            machine.pointers[parameter.name] = Pointer(parameter.name, Value(z3.BitVecVal(0, 64), _NEVER))
        else:
            machine.env[parameter.name] = Value(argument, _NEVER)
    for label in ir._forward_order(function.blocks):
        machine.enter(label)
        *lines, last = function.blocks[label]
        for line in lines:
            ir._attempt(machine.step, line)
        ir._attempt(machine.leave, last)
    if not machine.returned and not machine.void:
        raise UnsupportedCode("the function never returns")
    value, poison = None, []
    if machine.returned:
        *others, (_, result) = machine.returned
        for reached, each in others:
            result = ir._choose(reached, each, result)
        value, poison = result.bits, [z3.Not(result.poison)]
    written = [z3.Not(each) for each in machine.poison.values() if not z3.is_false(each)]
    return Result(value, machine.arrays, [*machine.obligations, *poison, *written], machine.floats.definitions)

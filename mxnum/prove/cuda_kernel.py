"""A reader of PTX kernels (``.entry``) that Triton, numba or nvcc wrote; it executes one thread.

The thread must load one number through each pointer that it reads, and store one number through
each pointer that it writes. A proof covers every thread that stores a number, and all values of the
parameters that are not pointers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import z3

from mxnum.prove import ptx
from mxnum.prove.circuit import Answer, Circuit
from mxnum.prove.cuda_ptx import Machine, blocks_of, unread
from mxnum.prove.execution import UnsupportedCode

KERNEL = re.compile(r"\.entry\s+(?P<name>[\w$]+)\s*\((?P<parameters>[^)]*)\)\s*(?:\.\w+[^\n{]*\n)*\s*\{", re.S)
_PARAMETER = re.compile(r"\.param\s+\.[busf](\d+)\s+(?:\.ptr\s+(?:\.\w+\s+(?:\d+\s+)?)*)?(\w+)")
_ACCESS = re.compile(r"\[(%\w+)(?:\+(-?\d+))?\]")


def read_kernel(match: re.Match[str], file: Path, ports: Collection[str]) -> Circuit:
    """Return the circuit of a kernel.

    The circuit's inputs are the numbers that the thread loads, and the parameters that `ports`
    names.
    """
    name = match["name"]
    parameters = {key: int(bits) for bits, key in _PARAMETER.findall(match["parameters"])}
    short = {key: re.sub(r".*_(?=param_\d+$)", "", key) for key in parameters}
    symbols = {key: z3.BitVec(f"parameter {key}", bits) for key, bits in parameters.items()}
    thread = Thread(dict(symbols), "", 0)
    try:
        thread.run(blocks_of(match))
    except UnsupportedCode as problem:
        raise unread(match, file, problem) from problem
    taken = {short[key]: symbol for key, (_, symbol) in thread.loaded.items()}
    taken |= {short[key]: symbol for key, symbol in symbols.items() if short[key] in ports and short[key] not in taken}
    order = [each for each in short.values() if each in taken]
    stored = {short[key]: store for key, store in thread.stored.items()}

    def run(values: Mapping[str, z3.BitVecRef]) -> Answer:
        pairs = [(taken[each], values[each]) for each in order]
        others = [(taken[each], z3.FreshConst(taken[each].sort(), "other")) for each in order]
        premises = [z3.substitute(each, *pairs) for each in thread.numbers.definitions]
        premises += [z3.substitute(store.condition, *others) for store in stored.values()]
        return Answer(
            {each: z3.substitute(store.value, *pairs) for each, store in stored.items()},
            [z3.substitute(store.condition, *pairs) for store in stored.values()],
            premises,
        )

    notes = (
        "The proof is about the PTX. It assumes that ptxas and the device execute the PTX correctly.",
        "The proof covers every thread that stores a number. It does not cover the addresses of loads and stores.",
        *(["Different pointers point to different arrays."] if len(thread.loaded | thread.stored) > 1 else []),
    )
    widths = {each: taken[each].size() for each in order}
    outputs = {each: store.value.size() for each, store in stored.items()}
    return Circuit(f"{name} in {file.name}", widths, outputs, run, notes, by_order=True)


@dataclass
class Store:
    """A thread's store through a pointer: the address, the number, and the store's condition."""

    address: z3.BitVecRef
    value: z3.BitVecRef
    condition: z3.BoolRef


@dataclass
class Thread(Machine):
    """The state of one thread of a kernel."""

    #: The address and the number that the thread loads through each pointer, by the name of the
    #: pointer parameter.
    loaded: dict[str, tuple[z3.BitVecRef, z3.BitVecRef]] = field(default_factory=dict)
    stored: dict[str, Store] = field(default_factory=dict)

    def check(self) -> None:
        """Raise UnsupportedCode for a thread that stores nothing."""
        if not self.stored:
            raise UnsupportedCode("the kernel stores nothing")

    def execute(self, line: str, done: set[str]) -> bool:
        """Execute a statement; return False if control cannot reach the next statement from it."""
        line = re.sub(r"\{ ?(%\w+) ?\}", r"\1", re.sub(r" *([\[\]+]) *", r"\1", line)).replace("[", " [").strip()
        line = " ".join(line.split())
        found = re.fullmatch(r"(?:@(!?)(%\w+) )?st\.global\.[\w.:]*?[busf](\d+) (\S+?), ?(\S+)", line)
        if not found:
            return super().execute(line, done)
        negated, predicate, width, address, register = found.groups()
        guard = self.env[predicate] == (0 if negated else 1) if predicate else z3.BoolVal(True)
        self.store(address, self.sized(register, int(width)), z3.And(self.reached, guard))
        return True

    def store(self, address: str, value: z3.BitVecRef, condition: z3.BoolRef) -> None:
        """Record that the thread stores a value at an address under a condition."""
        pointer, at = self.place(address)
        before = self.stored.get(pointer)
        if before is None:
            self.stored[pointer] = Store(at, value, condition)
            return
        if not _equal(before.address, at) or before.value.size() != value.size():
            raise UnsupportedCode(f"the thread stores more than one number through {pointer}")
        either = z3.If(condition, value, before.value)
        self.stored[pointer] = Store(at, either, z3.Or(condition, before.condition))

    def place(self, text: str) -> tuple[str, z3.BitVecRef]:
        """Return the pointer parameter from which an address is computed, and the address."""
        found = _ACCESS.fullmatch(text)
        if not found:
            raise UnsupportedCode(f"address {text}")
        address = z3.simplify(self.env[found[1]] + int(found[2] or 0))
        names = {str(symbol): key for key, symbol in self.parameters.items()}
        pointers = [names[str(each)] for each in _addends(address) if str(each) in names]
        if len(pointers) != 1:
            raise UnsupportedCode(f"the address {text} must be a pointer of the kernel plus an offset")
        return pointers[0], address

    def value(self, name: str, type_: str, operands: list[str], width: int) -> z3.BitVecRef:
        """Return the `width` bits that an instruction writes to its destination."""
        parts = name.split(".")
        if parts[:2] == ["ld", "global"]:
            pointer, at = self.place(operands[0])
            if pointer in self.stored:
                raise UnsupportedCode(f"the thread loads through {pointer} after it has stored through {pointer}")
            bits = int(type_.lstrip("busf"))
            known, symbol = self.loaded.setdefault(pointer, (at, z3.BitVec(f"number of {pointer}", bits)))
            if not _equal(known, at) or symbol.size() != bits:
                raise UnsupportedCode(f"the thread loads more than one number through {pointer}")
            return ptx._extend(type_[0], symbol, width)
        if parts[:2] == ["cvta", "to"]:
            return self.operand(operands[0], width)
        return super().value(name, type_, operands, width)

    def operand(self, text: str, width: int) -> z3.BitVecRef:
        """Return the value of a register, of an immediate, or of a thread or block index."""
        if re.fullmatch(r"%(n?tid|n?ctaid)\.[xyz]", text):
            return z3.BitVec(text, 32)
        return super().operand(text, width)


def _addends(term: z3.BitVecRef) -> list[z3.BitVecRef]:
    """Return the terms of a nested sum, or a list with `term` alone if `term` is not a sum."""
    if term.decl().kind() != z3.Z3_OP_BADD:
        return [term]
    return [each for child in term.children() for each in _addends(child)]


def _equal(a: z3.BitVecRef, b: z3.BitVecRef) -> bool:
    return bool(z3.is_true(z3.simplify(a == b)))

"""A warp that executes PTX on the host, so that compiled kernels run without a GPU.

The lanes run one after another, and wait for each other at shuffle instructions. A shuffle raises
an error if its mask names a lane that does not reach the shuffle; on a GPU, the behaviour would be
undefined. Instructions behave as NVIDIA's manual of the PTX ISA specifies. Unknown instructions
raise an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

import numpy as np

LANES = 32
_INSTRUCTION = re.compile(r"(?:@(!?)(%p\d+) )?([a-z][a-z0-9_.:]*)(?: (.*))?")
_COMPARE = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


def mask(width: int) -> int:
    return (1 << width) - 1


def typed(value: int, kind: str) -> int:
    """Return the low bits of `value` as a number of a PTX type such as s32."""
    width = int(kind[1:])
    value &= mask(width)
    return value - (1 << width) if kind[0] == "s" and value >> (width - 1) else value


class Memory:
    """A memory that holds arrays at addresses that are far apart and multiples of 16."""

    def __init__(self) -> None:
        self.arrays: dict[int, np.ndarray] = {}

    def place(self, array: np.ndarray) -> int:
        """Store an array in memory, and return its address."""
        address = (len(self.arrays) + 1) << 40
        self.arrays[address] = array.view(np.uint8).reshape(-1)
        return address

    def at(self, address: int, size: int) -> np.ndarray:
        """Return the `size` bytes that begin at an address."""
        start = address >> 40 << 40
        array = self.arrays[start]
        assert 0 <= address - start <= len(array) - size, "outside the array"
        assert address % size == 0, "misaligned"
        return array[address - start : address - start + size]


class Kernel:
    """The kernel of a PTX module that has only one kernel."""

    def __init__(self, text: str) -> None:
        found = re.search(r"\.visible \.entry \w+\(([^)]*)\)(.*?)\n\{(.*?)\n\}", text, re.S)
        assert found is not None
        self.parameters = re.findall(r"\.param \.[bus]\d+ (\w+)", found[1])
        self.code: list[tuple[str, ...]] = []
        self.labels: dict[str, int] = {}
        body = re.sub(r"//[^\n]*", "", found[3])
        for statement in re.split(r";|(?<=:)\n", body):
            line = " ".join(statement.split())
            if re.fullmatch(r"\$\w+:", line):
                self.labels[line[:-1]] = len(self.code)
            elif line and not line.startswith("."):
                matched = _INSTRUCTION.fullmatch(line)
                assert matched is not None, line
                self.code.append(tuple(part or "" for part in matched.groups()))

    def run(self, arguments: list[int], memory: Memory, block: int = 0, threads: int = LANES, blocks: int = 1) -> None:
        """Run one block of threads, warp by warp."""
        values = dict(zip(self.parameters, arguments, strict=True))
        for first in range(0, threads, LANES):
            special = {"%ntid.x": threads, "%ctaid.x": block, "%nctaid.x": blocks}
            lanes = [
                self.lane(values, memory, {**special, "%tid.x": first + i, "%laneid": i}) for i in range(LANES)
            ]  # fmt: skip
            self.converge(lanes)

    def converge(self, lanes: list[Generator[Any, int, None]]) -> None:
        """Run all lanes to their ends, and exchange values at each shuffle."""
        waiting: dict[int, Any] = {}
        for number, lane in enumerate(lanes):
            self.advance(waiting, number, lane, None)
        while waiting:
            place = min(request[0] for request in waiting.values())
            there = {number: request for number, request in waiting.items() if request[0] == place}
            for number, (_, members, _, _) in there.items():
                missing = [other for other in range(LANES) if members >> other & 1 and other not in there]
                assert members >> number & 1, "the mask of a lane does not contain the lane itself"
                assert not missing, f"lanes {missing} are in the mask, but do not take part in the shuffle"
            for number, (_, members, _, distance) in there.items():
                partner = number ^ distance
                assert members >> partner & 1, "the partner of a lane is not in the mask"
                self.advance(waiting, number, lanes[number], there[partner][2])

    @staticmethod
    def advance(waiting: dict[int, Any], number: int, lane: Generator[Any, int, None], answer: Any) -> None:
        """Run a lane to its next shuffle, or to its end."""
        waiting.pop(number, None)
        with suppress(StopIteration):
            waiting[number] = lane.send(answer)

    def lane(self, values: dict[str, int], memory: Memory, env: dict[str, int]) -> Generator[Any, int, None]:
        """Execute one thread: yield at each shuffle, and receive the value of the partner lane.

        The generator yields (position of the next instruction, mask of the lanes, this lane's
        value, XOR distance to the partner).
        """
        place = 0
        while True:
            negated, predicate, opcode, rest = self.code[place]
            place += 1
            if predicate and bool(env[predicate]) == bool(negated):
                continue
            operands = split(rest)
            name, *modifiers = opcode.split(".")
            if name == "ret":
                return
            if name == "bra":
                place = self.labels[operands[-1]]
            elif name == "shfl":
                assert modifiers == ["sync", "bfly", "b32"], opcode
                target, source, distance, clamp, members = operands
                assert read(env, clamp, "u32") == 31
                asked = read(env, members, "u32"), read(env, source, "u32"), read(env, distance, "u32")
                answer = yield (place, *asked)
                register, _, holds = target.partition("|")
                env[register] = answer
                env[holds or "_"] = 1
            elif name in ("ld", "st"):
                access(memory, values, env, name, modifiers, operands)
            else:
                env[operands[0]] = compute(env, name, modifiers, operands[1:])


def split(rest: str) -> list[str]:
    """Return the operands of an instruction."""
    return re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)


def read(env: dict[str, int], operand: str, kind: str) -> int:
    """Return the value of an operand as a number of a PTX type."""
    if operand.startswith("0f"):
        return int(operand[2:], 16)
    value = env[operand] if operand.startswith("%") else int(operand)
    return typed(value, kind) if kind[0] in "su" else value & mask(int(kind[1:]))


def access(
    memory: Memory, values: dict[str, int], env: dict[str, int], name: str, modifiers: list[str], operands: list[str]
) -> None:
    """Execute ld.param, ld.global or st.global, for one element or a vector."""
    kind = modifiers[-1]
    address, others = (operands[1], operands[0]) if name == "ld" else (operands[0], operands[1])
    if modifiers[0] == "param":
        env[others] = typed(values[address.strip("[]")], kind.replace("b", "u").replace("f", "u"))
        return
    assert modifiers[0] == "global", modifiers
    found = re.fullmatch(r"\[(%rd\d+)(?:\+(-?\d+))?\]", address)
    assert found is not None, address
    size = int(kind[1:]) // 8
    registers = others.strip("{}").split(", ") if others.startswith("{") else [others]
    where = read(env, found[1], "u64") + int(found[2] or 0)
    assert where % (size * len(registers)) == 0, "a vector access is not aligned"
    for i, register in enumerate(registers):
        cells = memory.at(where + i * size, size)
        if name == "ld":
            env[register] = typed(int.from_bytes(cells.tobytes(), "little"), kind.replace("b", "u").replace("f", "u"))
        else:
            value = read(env, register, f"u{8 * size}")
            cells[:] = np.frombuffer(value.to_bytes(size, "little"), np.uint8)


def compute(env: dict[str, int], name: str, modifiers: list[str], operands: list[str]) -> int:
    """Return the result of an arithmetic or logical instruction."""
    kind = modifiers[-1] if modifiers else ""
    if kind == "f32" and name in ("add", "sub", "mul"):
        assert modifiers == ["rn", "f32"], "without the modifier rn, the assembler may form an fma"
        a, b = (np.uint32(read(env, operand, "u32")).view(np.float32) for operand in operands)
        with np.errstate(all="ignore"):
            return int({"add": np.add, "sub": np.subtract, "mul": np.multiply}[name](a, b).view(np.uint32))
    plain = kind.replace("b", "u").replace("f", "u") if kind != "pred" else "u1"
    match name:
        case "mov" | "cvta":
            return read(env, operands[0], plain)
        case "cvt":
            assert len(modifiers) == 2, modifiers
            return typed(typed(read(env, operands[0], modifiers[1]), modifiers[1]), modifiers[0])
        case "setp":
            a, b = (read(env, operand, plain) for operand in operands[:2])
            assert len(modifiers) == 2, modifiers
            return int(_COMPARE[modifiers[0]](a, b))
        case "selp":
            return read(env, operands[0] if env[operands[2]] else operands[1], plain)
        case "shl" | "shr":
            value, amount = read(env, operands[0], plain), min(read(env, operands[1], "u32"), int(kind[1:]))
            return (value << amount) & mask(int(kind[1:])) if name == "shl" else value >> amount
        case "bfi":
            a, b, position, length = (read(env, operand, plain) for operand in operands)
            field = mask(length & 0xFF) << (position & 0xFF) & mask(int(kind[1:]))
            return (b & ~field) | ((a << (position & 0xFF)) & field)
        case "bfe":
            assert kind[0] == "u"
            a, position, length = (read(env, operand, plain) for operand in operands)
            return a >> (position & 0xFF) & mask(length & 0xFF)
        case "prmt":
            assert modifiers == ["b32"], modifiers
            a, b, selector = (read(env, operand, plain) for operand in operands)
            return sum(selected(b << 32 | a, selector >> 4 * i & 0xF) << 8 * i for i in range(4))
        case "mad" | "mul":
            factors = [read(env, operand, plain) for operand in operands[:2]]
            product = factors[0] * factors[1]
            if modifiers[0] == "wide":
                assert name == "mul"
                return product & mask(2 * int(kind[1:]))
            if modifiers[0] == "hi":
                return product >> int(kind[1:])
            assert modifiers[0] == "lo"
            return product + (read(env, operands[2], plain) if name == "mad" else 0)
    values = [read(env, operand, plain) for operand in operands]
    return typed(_ARITHMETIC[name](*values), plain)


def selected(eight_bytes: int, selector: int) -> int:
    """Return the byte that a selector of the PTX instruction prmt selects.

    The byte has the index `selector` & 7. If `selector` & 8 is not 0, the result is the sign bit of
    this byte, repeated eight times.
    """
    byte = eight_bytes >> 8 * (selector & 7) & 0xFF
    return (0xFF if byte >> 7 else 0) if selector & 8 else byte


_ARITHMETIC: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
    "neg": lambda a: -a,
    "abs": abs,
    "min": min,
    "max": max,
    "div": lambda a, b: a // b,
    "rem": lambda a, b: a % b,
}

"""Random functions in the definition's dialect, to test the executors of compiled code.

The executors of LLVM IR and of PTX must reproduce the results of the compiled functions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import z3

from mxnum.definition.word import dialect, select
from mxnum.prove.execution import Execution

#: numba types of the arguments a, b and c of every program. The types differ because the array
#: loops of the library also mix integer types.
TYPES = ("int32", "int64", "uint8")
_BITS = {"int32": 32, "int64": 64, "uint8": 8}
_RELATIONS = ("<", "<=", ">", ">=", "==", "!=")
#: Expressions of x, y and z that LLVM and NVVM turn into special instructions.
_IDIOMS = (
    "select({x} < {y}, {x}, {y})",
    "select({x} > {y}, {x}, {y})",
    "select({x} < 0, 0 - {x}, {x})",
    "select({x} < 0, 0, select({x} > 255, 255, {x}))",
    "select(({x} & 65535) > ({y} & 65535), ({x} & 65535) - ({y} & 65535), 0)",
    "(({x} & 255) << 8) | ({y} & 255)",
    "(({x} << 32) >> 32)",
    "(({x} & 4294967295) >> 7) & 1023",
    "((1 << ({x} & 31)) - 1) & {y}",
    "select({x} == {y}, 0, 1)",
    "select({x} > {y}, 1, select({x} == {y}, 0, -1))",
    "({x} & -16) | ({y} & 15)",
    "(0 - ({x} & 1)) & {y}",
    "select(({x} & 64) == 0, {y}, {z})",
    "{x} + ({y} << 2) + {z}",
    "({x} ^ ({x} >> 63)) - ({x} >> 63)",
)
_CORNERS = (0, 1, -1, 2, 7, 8, 31, 32, 127, 128, 255, 256, 0x7FFF, 0x8000, 0x7FFFFFFF, -0x80000000, 1 << 62, -(1 << 63))


def program(seed: int) -> Callable[..., Any]:
    """Return a random integer function of a, b and c, with shift amounts below the word size."""
    source = random.Random(seed)
    lines = [
        "def program(a, b, c):",
        # Adding 0 converts each argument to int64, so that no sum mixes int64 with uint64: numba
        # would compute such a sum in float64.
        "    a, b, c = a + 0, b + 0, c + 0",
        # Without `zero`, Python could fold constants to integers that do not fit in a word.
        "    zero = a & 0",
    ]
    names = ["a", "b", "c"]
    for i in range(source.randrange(2, 6)):
        lines.append(f"    v{i} = {_expression(source, names, 3)}")
        names.append(f"v{i}")
    lines.append(f"    return {_expression(source, names[3:], 2)} ^ {names[-1]}")
    scope: dict[str, Any] = {"select": select}
    exec("\n".join(lines), scope)
    function: Callable[..., Any] = dialect(scope["program"])
    return function


class _Word(int):
    """A signed 64-bit integer as in numba; + and - must not overflow, but << may lose bits."""


def _checked(name: str) -> Callable[[_Word, int], _Word]:
    def apply(self: _Word, other: int) -> _Word:
        result = getattr(int, name)(self, other)
        wrapped = _wrapped(result, "int64")
        if result != wrapped and "lshift" not in name:
            raise OverflowError
        return _Word(wrapped)

    return apply


for _name in ("add", "sub", "and", "or", "xor", "lshift", "rshift"):
    for _side in ("", "r"):
        setattr(_Word, f"__{_side}{_name}__", _checked(f"__{_side}{_name}__"))


def reference(function: Callable[..., Any], values: Sequence[int]) -> int | None:
    """Return a program's result, or None if it overflows, because overflow is undefined in LLVM."""
    try:
        return int(function(*map(_Word, values)))
    except OverflowError:
        return None


def inputs(seed: int, count: int) -> list[tuple[int, ...]]:
    """Return values of the arguments: corner cases and random values."""
    source = random.Random(seed)
    return [tuple(_wrapped(_number(source), type_) for type_ in TYPES) for _ in range(count)]


def symbols() -> list[z3.BitVecRef]:
    """Return symbols for the arguments of a program."""
    return [z3.BitVec(name, _BITS[type_]) for name, type_ in zip("abc", TYPES, strict=True)]


def evaluate(execution: Execution, arguments: Sequence[z3.BitVecRef], values: Sequence[int]) -> int | None:
    """Return the signed result for given argument values, or None if the result is undefined."""
    pairs = [(name, z3.BitVecVal(value, name.size())) for name, value in zip(arguments, values, strict=True)]
    for obligation in execution.obligations:
        holds = z3.simplify(z3.substitute(obligation, *pairs))
        if not z3.is_true(holds):
            if not z3.is_false(holds):
                raise AssertionError(f"an obligation evaluates neither to true nor to false: {holds}")
            return None
    result = z3.simplify(z3.substitute(execution.result, *pairs))
    return int(result.as_signed_long())


def _number(source: random.Random) -> int:
    if source.random() < 0.5:
        return source.choice(_CORNERS) + source.randrange(-1, 2)
    return source.getrandbits(64) >> source.randrange(64)


def _wrapped(value: int, type_: str) -> int:
    bits = _BITS[type_]
    value &= (1 << bits) - 1
    return value if type_.startswith("u") or value < 1 << (bits - 1) else value - (1 << bits)


def _expression(source: random.Random, names: list[str], depth: int) -> str:
    if depth == 0 or source.random() < 0.1:
        constant = _wrapped(_number(source), "int32")
        return source.choice(names) if source.random() < 0.7 else f"(zero + {constant})"
    x, y, z, w = (_expression(source, names, depth - 1) for _ in range(4))
    kind = source.randrange(10)
    if kind < 4:
        return f"({x} {source.choice('&|^+-')} {y})"
    if kind < 6:
        amount = source.choice([f"({y} & {source.choice((7, 15, 31, 63))})", str(source.randrange(64))])
        return f"({x} {source.choice(('<<', '>>'))} {amount})"
    if kind < 8:
        return f"select({x} {source.choice(_RELATIONS)} {y}, {z}, {w})"
    return f"({source.choice(_IDIOMS)})".format(x=x, y=y, z=z)

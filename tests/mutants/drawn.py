"""Mistakes drawn at random from the syntax trees of the library.

A mistake changes a comparison, a whole number by one, an axis, `and` or `or`, the order of two
arguments, or drops a statement. Text of errors, annotations and docstrings stay as they are.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.calls import Calls

#: What mistakes are drawn from.
ROOMS = ("engine", "array", "ops.py", "torch", "interop", "conformance", "analysis", "lab/studies/statistics.py")
#: The tests that may notice these mistakes.
RECORDED = (
    *(f"tests/{room}" for room in ("analysis", "array", "conformance", "engine", "interop", "torch")),
    *(
        f"tests/test_{name}.py"
        for name in ("errors", "float_scales", "linear", "modes", "ops", "products", "rotations")
    ),
    "tests/lab/studies/test_statistics.py",
)
#: The tests that a mistake meets first, those that call the fewest functions, and then the rest.
FEW, MANY = 40, 400

_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_SKIPPED = (ast.Raise, ast.JoinedStr, ast.Assert, ast.arg)


@dataclass(frozen=True)
class Drawn:
    """One mistake: the characters `start` to `end` of a file become `new`."""

    #: The path relative to the root of the repository.
    file: str
    line: int
    start: int
    end: int
    new: str
    kind: str
    #: The first lines of the functions around the place, the innermost first.
    functions: tuple[int, ...]

    def changed(self, text: str) -> str:
        """Return the text of the file with the mistake in it."""
        return text[: self.start] + self.new + text[self.end :]

    def shown(self, text: str) -> str:
        """Return the mistake in one line."""
        old = " ".join(text[self.start : self.end].split())
        return f"{self.file}:{self.line} [{self.kind}] {old} -> {self.new}"

    def tests(self, calls: Calls) -> list[str]:
        """Return the tests that call the function around the place, the most specific first.

        Compiled functions are not seen to be called: for them those tests count that call anything
        in the same file.
        """
        name = self.file.removeprefix("mxnum")
        for wanted in ([f"{name}:{line}" for line in self.functions], None):
            for key in wanted or [f"{name}:"]:
                found = [
                    test
                    for test, called in calls.items()
                    if (key in called if wanted else any(each.startswith(key) for each in called))
                ]
                if found:
                    return sorted(found, key=lambda test: (len(calls[test]), test))
        return []


def draw(root: Path, count: int, seed: int) -> list[Drawn]:
    """Return `count` mistakes drawn with a seed: a kind, and then one of that kind.

    Constants and arguments are many times as frequent as the other kinds. Kernels for GPUs are left
    out, since their tests need a GPU or run in a simulator.
    """
    files = sorted(
        path
        for room in ROOMS
        for path in ([root / "mxnum" / room] if room.endswith(".py") else (root / "mxnum" / room).rglob("*.py"))
        if "cuda" not in path.parts
    )
    by_kind: dict[str, list[Drawn]] = {}
    for path in files:
        for one in possible_in(path.read_text(), str(path.relative_to(root))):
            by_kind.setdefault(one.kind, []).append(one)
    chance = random.Random(seed)
    for of_kind in by_kind.values():
        chance.shuffle(of_kind)
    found: list[Drawn] = []
    while len(found) < count and (kinds := sorted(kind for kind, rest in by_kind.items() if rest)):
        found.append(by_kind[chance.choice(kinds)].pop())
    return found


def possible_in(text: str, file: str) -> list[Drawn]:
    """Return every mistake that can be made in the functions of a file."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines()

    def at(line: int, column: int) -> int:
        """Return the index of a position, whose column counts bytes."""
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found = []
    for node, functions, kind, new in _changes(ast.parse(text), ()):
        begin, end = at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0)
        found.append(Drawn(file, node.lineno, begin, end, new, kind, functions))
    return found


_Change = tuple[ast.expr | ast.stmt, tuple[int, ...], str, str]


def _changes(node: ast.AST, functions: tuple[int, ...]) -> Iterator[_Change]:
    """Yield each node that can be changed, the functions around it, the kind and the new text."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _SKIPPED) or _is_type_checking(child):
            continue
        around = functions
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            around = (min([child.lineno, *(each.lineno for each in child.decorator_list)]), *functions)
            for statement in child.body:  # neither decorators nor annotations
                yield from _of(statement, around)
                yield from _changes(statement, around)
            continue
        if functions:
            yield from _of(child, around)
        yield from _changes(child, around)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _of(node: ast.AST, functions: tuple[int, ...]) -> Iterator[_Change]:
    """Yield the changes of one node."""
    match node:
        case ast.Compare(ops=[operator]):
            other = _OPPOSITE[type(operator)]
            yield _edited(node, functions, "comparison", lambda new: new.ops.__setitem__(0, other()))
        case ast.BoolOp():
            other = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield _edited(node, functions, "and/or", lambda new: setattr(new, "op", other()))
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            yield node, functions, "constant", str(value + 1)
            if value > 0:
                yield node, functions, "constant", str(value - 1)
        case ast.Call(args=[first, second, *_]) if ast.dump(first) != ast.dump(second):
            if not any(isinstance(each, ast.Starred) for each in (first, second)):
                yield _edited(node, functions, "arguments", lambda new: new.args.__setitem__(slice(2), [second, first]))
        case ast.keyword(arg="axis", value=ast.Constant(value=int(value))):
            yield node.value, functions, "axis", str(1 - value)
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield node, functions, "dropped", "pass"
        case _:
            return


def _edited(node: ast.expr, functions: tuple[int, ...], kind: str, edit: Callable[[ast.expr], object]) -> _Change:
    new = copy.deepcopy(node)
    edit(new)
    return node, functions, kind, f"({ast.unparse(new)})"

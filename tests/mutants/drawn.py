"""Random mistakes: small changes of the library's syntax trees.

A mistake changes a comparison or an axis, adds or subtracts 1, replaces `and` by `or`, swaps two
arguments, or deletes a statement. No mistake changes error messages, annotations or docstrings.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.calls import Calls

#: The folders and files of the library that random mistakes change.
ROOMS = ("engine", "array", "ops.py", "torch", "interop", "conformance", "analysis", "lab/studies/statistics.py")
#: The folders and files of the tests that are run against random mistakes.
RECORDED = (
    *(f"tests/{room}" for room in ("analysis", "array", "conformance", "engine", "interop", "torch")),
    *(
        f"tests/test_{name}.py"
        for name in ("errors", "float_scales", "linear", "modes", "ops", "products", "rotations")
    ),
    "tests/lab/studies/test_statistics.py",
)
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_SKIPPED = (ast.Raise, ast.JoinedStr, ast.Assert, ast.arg)


@dataclass(frozen=True)
class Drawn:
    """A mistake that replaces the characters `start` to `end` of a file by `new`."""

    #: The path relative to the root of the repository.
    file: str
    line: int
    start: int
    end: int
    new: str
    kind: str
    #: The qualified names of the functions around the change, the innermost first.
    functions: tuple[str, ...]
    #: The name of the mistake, which stays the same until somebody edits the function.
    label: str

    def changed(self, text: str) -> str:
        """Return the text of the file with the mistake planted."""
        return text[: self.start] + self.new + text[self.end :]

    def tests(self, calls: Calls) -> list[str]:
        """Return the tests that may notice the mistake, in three groups, each sorted by duration.

        "The function" is the innermost function around the change that a record names.

        Group 1: tests in the module's test file that call the function. Group 2: tests in other
        files that call the function, and all other tests in the module's test file. (Some calls of
        compiled or cached functions are missing in the records.) Group 3: tests that call other
        functions of the module, and test files without a record in the folder of the module's test
        file.
        """
        name = self.file.removeprefix("mxnum")
        own = f"tests{name.rpartition('/')[0]}/test_{name.rpartition('/')[2]}"
        keys = [f"{name}:{function}" for function in self.functions]
        innermost = next((key for key in keys if any(key in test.called for test in calls.values())), None)

        def rank(test: str) -> int:
            called = calls[test].called
            is_own, calls_it = test.startswith(f"{own}::"), innermost in called
            if is_own or calls_it:
                return 0 if is_own and calls_it else 1
            if "::" not in test:
                return 1 if test == own else 2 if test.rpartition("/")[0] == own.rpartition("/")[0] else 3
            return 2 if any(each.startswith(f"{name}:") for each in called) else 3

        ranks = {test: rank(test) for test in calls}
        return sorted((test for test in calls if ranks[test] < 3), key=lambda test: (ranks[test], calls[test].seconds))


def draw(root: Path, count: int, seed: int) -> list[Drawn]:
    """Return `count` different random mistakes, or all possible mistakes if there are fewer.

    The kind of each mistake is drawn first, so that a rare kind is as likely as a frequent kind,
    such as mistakes in constants. Within a kind, hashes of the labels determine the order of
    mistakes. If the library changes, most drawn mistakes therefore stay the same. GPU kernels are
    left out, since the tests of GPU kernels need a GPU or a simulator.
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
    for of_kind in by_kind.values():
        of_kind.sort(key=lambda one: hashlib.sha256(f"{seed} {one.label}".encode()).digest())
    chance = random.Random(seed)
    found: list[Drawn] = []
    while len(found) < count and (kinds := sorted(kind for kind, rest in by_kind.items() if rest)):
        found.append(by_kind[chance.choice(kinds)].pop(0))
    return found


def possible_in(text: str, file: str) -> list[Drawn]:
    """Return every mistake that can be made in the functions of a file."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines()

    def at(line: int, column: int) -> int:
        """Return the index in `text` of a line and a column; `column` counts UTF-8 bytes."""
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found, alike = [], Counter[str]()
    for node, functions, kind, new in _changes(ast.parse(text), (), ""):
        begin, end = at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0)
        old, line = " ".join(text[begin:end].split()), lines[node.lineno - 1].strip()
        label = f"{file}:{functions[0]} [{kind}] {old} -> {new}" + ("" if old == line else f" in: {line}")
        alike[label] += 1
        label += f" ({alike[label]})" if alike[label] > 1 else ""
        found.append(Drawn(file, node.lineno, begin, end, new, kind, functions, label))
    return found


_Change = tuple[ast.expr | ast.stmt, tuple[str, ...], str, str]


def _changes(node: ast.AST, functions: tuple[str, ...], prefix: str) -> Iterator[_Change]:
    """Yield each possible change below a node: (node, functions around the node, kind, new text).

    Qualified names of functions that are defined below the node begin with `prefix`. Decorators,
    defaults and annotations are never changed.
    """
    if isinstance(node, _SKIPPED) or _is_type_checking(node):
        return
    below: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        functions, below = (prefix + node.name, *functions), node.body
        prefix = f"{functions[0]}.<locals>."
    elif isinstance(node, ast.ClassDef):
        below, prefix = node.body, f"{prefix}{node.name}."
    elif isinstance(node, ast.AnnAssign):
        below = [node.value] if node.value else []
    if functions:
        yield from _of(node, functions)
    for child in below:
        yield from _changes(child, functions, prefix)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _of(node: ast.AST, functions: tuple[str, ...]) -> Iterator[_Change]:
    """Yield the possible changes of the node itself."""
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
            yield node.value, functions, "axis", str(1 if value == 0 else value - 1)
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield node, functions, "dropped", "pass"
        case _:
            return


def _edited(node: ast.expr, functions: tuple[str, ...], kind: str, edit: Callable[[ast.expr], object]) -> _Change:
    new = copy.deepcopy(node)
    edit(new)
    return node, functions, kind, f"({ast.unparse(new)})"

"""Tests that every function has at most 60 lines in its body and at most 8 arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PUBLIC_NAMES = ROOT / "docs" / "reference" / "public-names.txt"
LINES, ARGUMENTS, MOST_EXCEPTIONS = 60, 8, 20

#: The functions that may exceed the limits, by file and name, each with a reason.
EXCEPTIONS = {
    "mxnum/prove/claims.py make_claim": "Callers name the few options that they need.",
    "mxnum/torch/scaled_mm.py scaled_mm": "The argument list is torch's.",
    "mxnum/lab/studies/interventions.py gather": "Callers name the few options that they need.",
    "mxnum/lab/studies/run_study.py run_study": "Callers name the few options that they need.",
    "mxnum/torch/attention.py attention_how": "It has the arguments of torch's scaled_dot_product_attention.",
    "mxnum/torch/attention.py attend": "It has the arguments of attention_how, after they were checked.",
    "mxnum/engine/loops/panels.py convert_panel": "In a tuple, numba would count references to the arrays.",
    "mxnum/torch/multihead.py forward": "It has the arguments of the forward pass of torch's MultiheadAttention.",
    "mxnum/engine/cuda/kernels.py _elements.run": "A GPU kernel gets memory, first index and strides of each array.",
    "mxnum/engine/cuda/kernels.py block_scales.run": "A GPU kernel gets memory, first index and strides of each array.",
    "mxnum/engine/cuda/kernels.py block_scales": "It contains the kernel, which reads the elements of a block once.",
    "mxnum/engine/cuda/kernels.py first_difference.run": "A GPU kernel gets memory, index and strides of each array.",
    "mxnum/engine/cuda/sums.py sequential.multiply": "A GPU kernel gets memory, first index and strides of each array.",
    "mxnum/engine/cuda/sums.py blocks.multiply": "A GPU kernel gets memory, first index and strides of each array.",
    "mxnum/engine/products/fused_tile.py _fused_tile": "It contains `generate`, which is listed below.",
    "mxnum/engine/products/fused_tile.py _fused_tile.generate": "A straight listing of vector code.",
}


class Function(NamedTuple):
    """A function of the package, and how many lines and arguments it has."""

    #: The file and the qualified name of the function.
    name: str
    lines: int
    arguments: int


def public_names() -> set[str]:
    """Return the public names, such as ``mxnum.MXArray.from_parts``."""
    return {re.split(r"[(:\s]", line)[0] for line in PUBLIC_NAMES.read_text().splitlines()}


def is_public(path: Path, qualified: str, names: set[str]) -> bool:
    """Return True if the name is public in the file's module or in a package that contains it."""
    module = path.relative_to(ROOT).with_suffix("").parts
    return any(".".join((*module[:depth], qualified)) in names for depth in range(1, len(module) + 1))


def is_command(path: Path, qualified: str) -> bool:
    """Return True for a command of the CLI, whose parameters are options."""
    return "cli" in path.parts and path.name.startswith("command_") and qualified.isidentifier() and qualified[0] != "_"


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines from the first statement after the docstring to the end."""
    body = function.body[ast.get_docstring(function) is not None :]
    return 0 if not body else (function.end_lineno or 0) - body[0].lineno + 1


def arguments(function: ast.FunctionDef | ast.AsyncFunctionDef, is_method: bool, with_options: bool) -> int:
    """Return the number of arguments, without `self` or `cls`.

    Keyword-only arguments that have defaults count only if `with_options` is True.
    """
    given = function.args
    positional = [argument.arg for argument in (*given.posonlyargs, *given.args)]
    bound = is_method and positional[:1] in (["self"], ["cls"])
    options = given.kwonlyargs if with_options else [d for d in given.kw_defaults if d is None]
    return len(positional) - bound + len(options)


def functions(path: Path, names: set[str]) -> Iterator[Function]:
    """Yield every function of a file, nested or not."""

    def within(node: ast.AST, scope: tuple[str, ...], is_class: bool) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                qualified = ".".join((*scope, child.name))
                counted = arguments(child, is_class, with_options=not is_public(path, qualified, names))
                counted = 0 if is_command(path, qualified) else counted
                yield Function(f"{path.relative_to(ROOT)} {qualified}", body_lines(child), counted)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from within(child, (*scope, child.name), isinstance(child, ast.ClassDef))
            else:
                yield from within(child, scope, is_class)

    yield from within(ast.parse(path.read_text()), (), False)


@pytest.fixture(scope="module")
def large() -> dict[str, str]:
    """Return the functions of the package that are too large, with their sizes."""
    names = public_names()
    return {
        each.name: f"{each.lines} lines, {each.arguments} arguments"
        for path in sorted((ROOT / "mxnum").rglob("*.py"))
        for each in functions(path, names)
        if each.lines > LINES or each.arguments > ARGUMENTS
    }


def test_functions_are_small(large):
    found = {name: size for name, size in large.items() if name not in EXCEPTIONS}
    assert not found, f"more than {LINES} lines or {ARGUMENTS} arguments: split them, or pass settings as one value"


def test_exceptions_are_few_and_needed(large):
    assert len(EXCEPTIONS) <= MOST_EXCEPTIONS
    assert EXCEPTIONS.keys() <= large.keys(), "remove the exceptions that are no longer too large"
    assert all(reason.endswith(".") for reason in EXCEPTIONS.values())


def test_lines_and_arguments_are_counted(tmp_path, monkeypatch):
    (tmp_path / "mxnum" / "cli").mkdir(parents=True)
    text = '''
class A:
    def method(self, a, b, *rest, c, d=1):
        """Docstring.

        More of it.
        """
        first = a
        return first

    @classmethod
    def public(cls, a, *, b=1, c=2, d):
        def nested(x):
            return x
        return nested
'''
    paths = tmp_path / "mxnum" / "room.py", tmp_path / "mxnum" / "cli" / "command_a.py"
    for path, content in zip(
        paths, (text, "def a(x, y, z):\n    return _b(x)\n\ndef _b(x):\n    return x\n"), strict=True
    ):
        path.write_text(content)
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    found = {each.name: each[1:] for path in paths for each in functions(path, {"mxnum.A.public"})}
    assert found == {
        "mxnum/room.py A.method": (2, 4),
        "mxnum/room.py A.public": (3, 2),
        "mxnum/room.py A.public.nested": (1, 1),
        "mxnum/cli/command_a.py a": (1, 0),
        "mxnum/cli/command_a.py _b": (1, 1),
    }

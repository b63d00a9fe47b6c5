"""Tests that the docstring of a function begins with a verb in the imperative.

The first sentence of a docstring must say what the function does for its caller.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: The folders and file patterns whose docstrings are checked. Docstrings of test functions are not
#: checked, because the name of a test function says what the function tests.
FOLDERS = (
    "mxnum/*.py",
    "mxnum/array",
    "mxnum/reference",
    "mxnum/units",
    "mxnum/analysis",
    "mxnum/interop",
    "mxnum/cli",
    "mxnum/definition",
    "mxnum/memory",
    "mxnum/output",
    "mxnum/conformance",
    "mxnum/emit",
    "mxnum/torch",
    "proofs",
    "benchmarks",
    "docs/*.py",
    "conftest.py",
    "tests/*.py",
    "tests/analysis",
    "tests/array",
    "tests/benchmarks",
    "tests/cli",
    "tests/conformance",
    "tests/definition",
    "tests/emit",
    "tests/engine",
    "tests/interop",
    "tests/lab",
    "tests/memory",
    "tests/mutants",
    "tests/output",
    "tests/recipe",
    "tests/reference",
    "tests/torch",
    "mxnum/lab",
    "mxnum/engine",
)
#: The accepted first words. If none of these verbs says what your function does, add a verb.
VERBS = (
    "Add", "Answer", "Apply", "Ask", "Assert", "Begin", "Bind", "Build", "Call", "Check", "Choose", "Clip",
    "Compare", "Compile", "Compute", "Continue", "Convert", "Copy", "Count", "Create", "Cut", "Decode",
    "Dequantize", "Describe", "Disable", "Divide", "Do", "Draw", "Encode", "End", "Exclude", "Execute", "Explain",
    "Find", "Fit", "Group", "Handle", "Ignore", "Import", "Judge", "Keep", "Label", "Let", "Limit", "List", "Load",
    "Lock", "Log", "Make", "Mark", "Measure", "Merge", "Minimize", "Move", "Multiply", "Pack", "Parse", "Patch",
    "Plant", "Print", "Propagate", "Prove", "Quantize", "Raise", "Read", "Record", "Reduce", "Register", "Remove",
    "Replace", "Restore", "Return", "Round", "Run", "Set", "Show", "Silence", "Simulate", "Skip", "Stop", "Store",
    "Subtract", "Sum", "Summarize", "Train", "Truncate", "Try", "Undo", "Unpack", "Warn", "Watch", "Write", "Yield",
)  # fmt: skip
#: Decorators of functions whose docstrings need no verb: those that a caller reads like attributes,
#: and overloads, which have no body.
EXEMPT = {"property", "cached_property", "setter", "overload"}
FILES = [
    path for folder in FOLDERS for path in sorted(ROOT.glob(folder if folder.endswith(".py") else f"{folder}/**/*.py"))
]


def functions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the dotted name and the node of each function in a syntax tree, at any depth."""
    for node in ast.iter_child_nodes(tree):
        name = (
            f"{outer}{node.name}." if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else outer
        )
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name[:-1], node
        yield from functions(node, name)


def is_exempt(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if a decorator turns the function into an attribute or an overload."""
    names = [ast.unparse(decorator).split(".")[-1] for decorator in function.decorator_list]
    return not EXEMPT.isdisjoint(names)


def first_words(text: str) -> dict[str, str]:
    """Return a dictionary from the dotted name of each function to its docstring's first word."""
    return {
        name: docstring.split(maxsplit=1)[0]
        for name, node in functions(ast.parse(text))
        if not is_exempt(node) and not node.name.startswith("test_") and (docstring := ast.get_docstring(node))
    }


def test_docstrings_begin_with_a_verb():
    failing = {
        f"{path.relative_to(ROOT)}: {name}": word
        for path in FILES
        for name, word in first_words(path.read_text()).items()
        if word.rstrip(".,:;") not in VERBS
    }
    assert not failing, f"not verbs: {failing}"


def test_nested_functions_and_methods_are_read_but_not_tests():
    text = '''
class A:
    """A class."""

    @property
    def b(self):
        """Noun."""

    def c(self):
        """Return."""

        def d():
            """Thing: of c."""


def test_e():
    """Behaviour."""

    def f():
        """Part of e."""
'''
    assert first_words(text) == {"A.c": "Return.", "A.c.d": "Thing:", "test_e.f": "Part"}


def test_verbs_are_sorted():
    assert list(VERBS) == sorted(set(VERBS))

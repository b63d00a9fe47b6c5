"""Tests of `select`, and of the rules of the dialect (the Python subset of `mxnum.definition`)."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import mxnum.definition
from mxnum.definition.word import dialect, is_dialect, select, word_bits, working_width
from mxnum.formats import ELEMENTS, FLOATS

#: Modules of `mxnum.definition` that are not written in the dialect: documentation, helpers, and
#: modules that use numpy.
PLAIN = ("__init__", "word", "by_hand", "by_numpy", "fused_by_numpy", "chunks", "stack_arithmetic")
MODULES = sorted(p for p in Path(mxnum.definition.__file__).parent.glob("*.py") if p.stem not in PLAIN)
ALLOWED_CALLS = {"select", "range"}


def test_select_on_plain_and_array_conditions():
    assert select(True, 1, 2) == 1
    assert select(np.bool_(False), 1, 2) == 2
    assert select(np.array([True, False]), np.array([1, 2]), 7).tolist() == [1, 7]


def test_word_and_width():
    assert word_bits(FLOATS["float32"], ELEMENTS["e4m3"]) == 32
    assert word_bits(ELEMENTS["e4m3"], FLOATS["float64"]) == 64
    assert working_width(FLOATS["float32"], FLOATS["float32"]) == 24


def test_is_dialect_recognizes_decorated_functions():
    @dialect
    def f(x):
        return x

    assert is_dialect(f)
    assert not is_dialect(test_is_dialect_recognizes_decorated_functions)
    assert not is_dialect(3)


def dialect_functions(tree):
    """Yield the nodes of a syntax tree's functions that have the decorator `dialect`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(getattr(d, "id", "") == "dialect" for d in node.decorator_list):
            yield node


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_functions_keep_to_the_dialect(path):
    tree = ast.parse(path.read_text())
    functions = list(dialect_functions(tree))
    marked = {f.name for f in functions}
    assert functions, "a scalar module without a dialect function"
    for function in functions:
        arguments = {a.arg for a in function.args.args}
        assigned = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for node in ast.walk(function):
            where = f"{path.name}:{getattr(node, 'lineno', 0)}"
            assert not isinstance(node, (ast.While, ast.BoolOp, ast.Try, ast.Raise, ast.Assert, ast.Lambda)), where
            # A branch may only depend on factory constants, whose names are upper case or `width`.
            if isinstance(node, (ast.If, ast.IfExp)):
                names = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
                assert not names & (arguments | assigned), f"{where}: branches on data"
            if isinstance(node, ast.For):  # the number of iterations must be constant
                names = {n.id for n in ast.walk(node.iter) if isinstance(n, ast.Name)}
                assert not names & (arguments | assigned), f"{where}: loops on data"
            if isinstance(node, ast.UnaryOp):
                assert isinstance(node.op, (ast.Not, ast.USub)), where
            if isinstance(node, ast.BinOp):
                allowed = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift, ast.Add, ast.Sub)
                if path.stem == "random":  # only Philox may multiply (see the docstring of `random`)
                    allowed += (ast.Mult,)
                assert isinstance(node.op, allowed), f"{where}: {ast.dump(node.op)}"
            if isinstance(node, ast.Call):
                called = getattr(node.func, "id", "?")
                made_here = called in marked or called in {"unpack_offset", *FACTORY_RESULTS}
                assert called in ALLOWED_CALLS or made_here, f"{where}: calls {called}"


FACTORY_RESULTS = {
    "unpack",
    "pack",
    "add",
    "normalize",
    "round_magnitude",
    "scale_rule",
    "unpack_scale",
    "unpack_tensor",
    "product",
    "divide",
}

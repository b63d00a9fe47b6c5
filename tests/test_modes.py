"""Tests that modes are strings with docstrings, and that code handles or rejects every mode."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import mxnum as mx
from mxnum import formats, modes, ops
from mxnum.analysis.piecewise import _derive
from mxnum.conformance.explain import _rounding_rule, _scale_rule
from mxnum.conformance.operations import make_task
from mxnum.definition import by_numpy
from mxnum.definition.convert import make_encode
from mxnum.definition.offset import make_half_range_scale
from mxnum.definition.pack import limits, make_round
from mxnum.definition.scale import make_scale_rule
from mxnum.engine.cuda import scaled
from mxnum.engine.products import sums
from mxnum.engine.products.operands import Operand
from mxnum.engine.quantizing import host, powers_of_two
from mxnum.engine.request import Request, must_look
from mxnum.engine.rounding import any_scale, float_additions, formulation
from mxnum.reference import numbers

PACKAGE = Path(mx.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))


def test_members_of_the_modes():
    assert [*modes.Rounding] == ["rne", "rna", "rtz", "rtp", "rtn", "rto", "sr"]
    assert [*modes.ScaleRule] == ["floor", "ceil", "even", "rceil", "half_up", "floor_plus_one"]
    assert [*modes.FloatScaleRule] == ["nearest", "rceil", "four_over_six_absolute", "four_over_six_squared"]
    assert [*modes.Overflow] == ["saturate", "ieee"]
    assert [*modes.Nonfinite] == ["block", "element", "raise"]
    assert [*modes.Accumulate] == ["exact", "block", "sequential", "blas"]
    assert mx.Rounding("rne") is mx.Rounding.RNE
    assert f"{mx.Rounding.SR}" == "sr"


@pytest.mark.parametrize(
    "enum",
    [
        modes.Rounding,
        modes.ScaleRule,
        modes.FloatScaleRule,
        modes.Overflow,
        modes.Nonfinite,
        modes.OffsetRange,
        modes.Accumulate,
    ],
)
def test_every_member_says_what_it_means(enum):
    definitions = [member.__doc__ for member in enum]
    assert all(definitions)
    assert len(set(definitions)) == len(definitions)
    assert enum.__doc__


# Functions must raise an error for a mode that they do not handle


def added(enum):
    """Return a new member of an enum of modes; no function handles this member."""
    value = f"new {enum.__name__}"
    member = str.__new__(enum, value)
    member._name_, member._value_ = value.upper(), value
    return member


ROUNDING, OVERFLOW = added(modes.Rounding), added(modes.Overflow)
RULE, NONFINITE = added(modes.ScaleRule), added(modes.Nonfinite)
RANGE, ACCUMULATE = added(modes.OffsetRange), added(modes.Accumulate)
FLOAT32, E4M3, E2M1 = (formats.element(name) for name in ("float32", "e4m3", "e2m1"))
RNE, SATURATE, FLOOR = modes.Rounding.RNE, modes.Overflow.SATURATE, modes.ScaleRule.FLOOR


def settings(**changes):
    """Return the settings of a quantization, with the fields in `changes` replaced."""
    plain = ops.checked_settings(ops.Choices("mxfp8_e4m3", (4,), "float32", scale_rule="floor"))
    return replace(plain, **changes)


def through_the_engine(**changes):
    """Quantize in the engine, with the changed settings."""
    host.quantize(Request(settings(**changes), np.ones(4, np.float32)))


def converted(make, **changes):
    """Make the conversion loops for the changed settings."""
    make(powers_of_two.modes_of(settings(**changes))).exact(None)


def summed(mode):
    """Compute a product of 1 x 1 matrices with an accumulation mode."""
    x = Operand(np.ones((1, 1), np.float32), FLOAT32)
    sums.matmul(x, x, mode, np.empty((1, 1), np.float32), 1, lambda operand, threads: operand.array)


def in_numpy(**changes):
    """Quantize in numpy, with the changed settings."""
    asked = by_numpy.Settings()._replace(**changes)
    by_numpy.quantize(np.ones(4, np.float32), formats.get("mxfp8_e4m3"), (4,), asked)


def counted(**changes):
    """Find clamped numbers under the changed settings."""
    asked = by_numpy.Settings()._replace(**changes)
    by_numpy.exceed(np.ones(1), formats.get("mxfp8_e4m3"), np.array([127], np.uint8), np.float32([1]), asked, None)


def explained(**changes):
    """Explain the rounding of a number in words."""
    _rounding_rule(replace(make_task("quantize", "mxfp8_e4m3"), **changes), False, 0, Fraction(1, 2), 0)


MAKERS = {
    # Regression: each of these functions treated an unknown mode as a known one: round toward zero,
    # round down, floor or saturate.
    "round": lambda: make_round(E4M3, ROUNDING, 23, 32),
    "limits": lambda: limits(ROUNDING),
    "encode, rounding": lambda: make_encode(FLOAT32, E4M3, ROUNDING, SATURATE),
    "encode, overflow": lambda: make_encode(FLOAT32, E4M3, RNE, OVERFLOW),
    "encode, overflow without special values": lambda: make_encode(FLOAT32, E2M1, RNE, OVERFLOW),
    "scale": lambda: make_scale_rule(E4M3, RULE, 23),
    "half range": lambda: make_half_range_scale(FLOAT32, E4M3, RULE),
    "fast code": lambda: float_additions.make_code(ROUNDING, False),
    "fast value": lambda: float_additions.make_value(ROUNDING, True),
    "fast code anywhere": lambda: any_scale.make_code_anywhere(ROUNDING, False),
    "fast value anywhere": lambda: any_scale.make_value_anywhere(ROUNDING, False),
    "constants, scale": lambda: float_additions.constants(E4M3, rule=RULE),
    "fast quantizing, overflow": lambda: formulation.fast_quantizing(FLOAT32, E2M1, RNE, OVERFLOW, FLOOR, None),
    "quantizing anywhere": lambda: formulation.quantizing_anywhere(FLOAT32, E2M1, RNE, OVERFLOW, None),
    "quantizing": lambda: formulation.quantizing(FLOAT32, E2M1, RNE, OVERFLOW),
    "requantizing": lambda: formulation.requantizing(FLOAT32, E4M3, ROUNDING, SATURATE, FLOAT32),
    "scaling": lambda: formulation.scaling(FLOAT32, E4M3, RULE),
    "scale on a GPU": lambda: scaled.make_scale(FLOAT32, E4M3, RULE),
    "loops of codes, nonfinite": lambda: converted(powers_of_two.to_codes, nonfinite=NONFINITE),
    "loops of values, rounding": lambda: converted(powers_of_two.to_values, rounding=ROUNDING),
    "whether to look": lambda: must_look(E4M3, NONFINITE),
    "engine, offset range": lambda: through_the_engine(offset_range=RANGE),
    "engine, overflow": lambda: through_the_engine(overflow=OVERFLOW),
    "numpy, nonfinite": lambda: in_numpy(nonfinite=NONFINITE),
    "numpy, offset range": lambda: in_numpy(offset_range=RANGE),
    "numpy, overflow": lambda: in_numpy(overflow=OVERFLOW),
    "sums": lambda: summed(ACCUMULATE),
    "blocks of sums": lambda: ACCUMULATE.by_block,
    "overflow that is counted": lambda: counted(rounding=ROUNDING),
    "a piecewise quantizer": lambda: _derive(E4M3, ROUNDING),
    "explained, rounding": lambda: explained(rounding=ROUNDING),
    "explained, scale": lambda: _scale_rule(RULE, E4M3, Fraction(1), 0),
    "reference, rounding": lambda: numbers.round_to(numbers.exact(1.0), E4M3, ROUNDING),
    "reference, overflow": lambda: numbers.round_to(numbers.exact(1e9), E4M3, RNE, OVERFLOW),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_unknown_modes_raise(maker):
    with pytest.raises((NotImplementedError, AssertionError, KeyError)):
        MAKERS[maker]()


def test_known_modes_do_not_raise():
    # If these functions succeed with known modes, only the unknown modes can cause their errors.
    swapped = {ROUNDING: RNE, OVERFLOW: SATURATE, RULE: FLOOR, NONFINITE: modes.Nonfinite.BLOCK}
    swapped |= {RANGE: modes.OffsetRange.HALF, ACCUMULATE: modes.Accumulate.EXACT}
    names = {name: value for name, value in globals().items() if isinstance(value, tuple(map(type, swapped)))}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setitem(globals(), name, swapped.get(value, value))
        for maker in MAKERS.values():
            maker()


ENUMS = {"Rounding", "Overflow", "ScaleRule", "FloatScaleRule", "Nonfinite", "OffsetRange", "Accumulate"}
#: Modules that may test for a single mode: they search for the mode that explains a result, compute
#: constants, or leave all other modes to another function.
ASKS = {
    "conformance/hypotheses/float_scales.py",
    "conformance/judging/judge.py",
    "conformance/hypotheses/elements.py",
    "engine/cuda/functions.py",
    "engine/rounding/float_additions.py",
    "engine/products/sums.py",
}


def names_a_mode(node):
    """Return True if a node of a syntax tree is a member of an enum of modes."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ENUMS


def unguarded(path):
    """Return the numbers of the lines that compare a mode outside a `match` statement.

    The result also has the lines of `match` statements that accept unknown modes.
    """
    tree = ast.parse(path.read_text())
    matches = [node for node in ast.walk(tree) if isinstance(node, ast.Match)]
    handled = {id(below) for node in matches for case in node.cases for each in case.body for below in ast.walk(each)}
    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare) and id(node) not in handled]
    found = [node.lineno for node in compared if any(map(names_a_mode, ast.walk(node)))]
    for node in matches:
        *_, last = node.cases
        of_modes = any(names_a_mode(below) for case in node.cases for below in ast.walk(case.pattern))
        takes_all = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
        ends = takes_all and re.search("assert_never|raise NotImplementedError", "".join(map(ast.unparse, last.body)))
        if of_modes and not ends:
            found.append(node.lineno)
    return sorted(found)


def test_modes_are_matched_and_looked_up_rather_than_compared():
    names = {str(path.relative_to(PACKAGE)): path for path in FILES if path.name != "modes.py"}
    found = {name: unguarded(path) for name, path in names.items() if name not in ASKS}
    assert not {name: lines for name, lines in found.items() if lines}


def test_unguarded_finds_comparisons(tmp_path):
    path = tmp_path / "some.py"
    path.write_text("if mode == Rounding.RNE:\n    pass\nmatch rule:\n    case ScaleRule.FLOOR:\n        pass\n")
    assert unguarded(path) == [1, 3]

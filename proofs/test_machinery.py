"""Tests of the proof tools: words, solvers, the runner, exit statuses and tables of standards."""

import os
import random
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import z3

from mxnum import formats
from mxnum.definition.word import select
from mxnum.prove import solvers
from mxnum.prove.sym import run
from proofs.__main__ import main
from proofs.machines import solve
from proofs.machines.solve import follows, prove, together
from proofs.runner import Collection, check_all, choose
from proofs.specs import tables
from proofs.theorem import Outcome, Theorem

X, Y = z3.BitVecs("x y", 32)

# --- words


def random_program(rng: random.Random) -> Callable[..., Any]:
    """Return a random function of three words, without branches or loops."""
    steps = [
        (
            rng.choice(["+", "-", "&", "|", "^", "<<", ">>", "<", "select"]),
            *(rng.random() for _ in range(3)),
            rng.getrandbits(8),
        )
        for _ in range(12)
    ]

    def program(*arguments: Any) -> Any:
        values = list(arguments)
        for operator, *picks, constant in steps:
            a, b, c = (values[int(pick * len(values))] for pick in picks)
            match operator:
                case "+":
                    value = a + b
                case "-":
                    value = constant - b
                case "&":
                    value = a & b
                case "|":
                    value = a | constant
                case "^":
                    value = a ^ b
                case "<<":
                    value = a << (b & 7)
                case ">>":
                    value = a >> (b & 31)
                case "<":
                    value = select(a < b, 1, c)
                case _:
                    value = select(a == c, b, constant)
            values.append(value)
        return tuple(values)

    return program


def fits(values: tuple[int, ...], width: int) -> bool:
    """Return True if all values fit in signed words of `width` bits."""
    return all(-(1 << (width - 1)) <= value < 1 << (width - 1) for value in values)


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("seed", range(60))
def test_words_compute_what_ints_do_unless_an_obligation_fails(seed: int, width: int) -> None:
    rng = random.Random(seed)
    program = random_program(rng)
    broken = 0
    for _ in range(20):
        bits = rng.randrange(1, width)
        arguments = [rng.randrange(-(1 << (bits - 1)), 1 << (bits - 1)) if bits > 1 else 0 for _ in range(3)]
        expected = program(*arguments)
        results, obligations = run(program, *(z3.BitVecVal(argument, width) for argument in arguments))
        safe = z3.is_true(z3.simplify(z3.And(*obligations)))
        assert safe == fits(expected, width)
        if safe:
            assert tuple(z3.simplify(result).as_signed_long() for result in results) == expected
            kind = np.int32 if width == 32 else np.int64
            assert tuple(program(*map(kind, arguments))) == expected
        broken += not safe
    assert broken < 20


def test_a_shift_by_the_word_size_is_an_obligation() -> None:
    _, obligations = run(lambda x: x >> 32, X)
    assert z3.is_false(z3.simplify(z3.And(*obligations)))


def test_branching_on_data_raises() -> None:
    with pytest.raises(TypeError, match="must not branch on data"):
        run(lambda x: 1 if x > 0 else 0, X)


def test_words_of_two_widths_do_not_meet() -> None:
    with pytest.raises(TypeError, match="must have equal widths"):
        run(lambda x, y: x + y, X, z3.BitVec("z", 64))


# --- solvers


@pytest.mark.parametrize("engine", ["z3", "bitwuzla"])
def test_solvers_answer(engine: str) -> None:
    assert solve.ask([X + Y == Y + X], engine) == "sat"
    assert solve.ask([X + Y != Y + X], engine) == "unsat"
    number = z3.fpBVToFP(X, z3.Float32())
    assert solve.ask([z3.fpGT(number, number)], engine) == "unsat"
    assert solve.ask([z3.Not(z3.fpEQ(number, number))], engine) == "sat"


def test_proved_by_both() -> None:
    outcome = prove([X > 0], X >= 1, engines=solve.BOTH)
    assert (outcome.verdict, outcome.solver) == ("proved", "z3+bitwuzla")


@pytest.mark.parametrize("engines", [("z3",), ("bitwuzla",), ("z3", "bitwuzla")])
def test_refuted_with_a_witness(engines: tuple[str, ...]) -> None:
    outcome = prove([X > 5], X != 77, engines=engines, show=[X])
    assert (outcome.verdict, outcome.detail) == ("refuted", "x = 0x4d")


def test_nothing_is_proved_of_an_empty_set() -> None:
    assert prove([X > 5, X < 5], X == 0).verdict == "error"
    assert prove([X > 5], X > 4, example=[(X, 3)]).verdict == "error"
    assert prove([X > 5], X > 4, example=[(X, 6)]).verdict == "proved"


def test_what_follows_from_premises_that_nothing_satisfies_does_not_count() -> None:
    a = z3.Int("a")
    assert follows(a >= 2, a > 1)
    assert not follows(a >= 3, a > 1)
    assert not follows(a >= 3, a > 1, a < 0)


def test_a_disagreement_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solvers, "_ask_bitwuzla", lambda question, timeout: "sat")
    outcome = prove([], X == X + 0, engines=solve.BOTH)
    assert outcome.verdict == "error"
    assert "disagree" in outcome.detail


def test_unknown_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solvers, "_ask_bitwuzla", lambda question, timeout: "unknown")
    assert prove([], X == X + 0, engines=solve.BOTH).verdict == "unknown"


def test_a_family_names_the_case_that_fails() -> None:
    cases = [
        ("good", lambda: prove([], X == X + 0)),
        ("bad", lambda: prove([], X == 1)),
        ("late", lambda: prove([], X == 2)),
    ]
    outcome = together(cases)
    assert outcome.verdict == "refuted"
    assert outcome.detail.startswith("bad: ")
    assert together(cases[:1]).verdict == "proved"
    assert together([]).verdict == "error"


# --- the runner


def proved() -> Outcome:
    return Outcome("proved", "z3", 0.1)


def crash() -> Outcome:
    os._exit(7)


def sleep() -> Outcome:
    time.sleep(60)
    return proved()


def blunder() -> Outcome:
    raise ValueError("no such thing")


def unknown() -> Outcome:
    return Outcome("unknown", "z3", 0.1)


def collection(*names: str) -> Collection:
    """Return a collection of this file's theorems with the given names, or of all theorems."""
    made = [
        Theorem(check.__name__, "It is so.", ("kernel",), check, tier="full" if check is sleep else "fast")
        for check in (proved, crash, sleep, blunder, unknown)
    ]
    return Collection({t.name: t for t in made if t.name in names or not names}, {"proofs.absent": "No module"})


def only_proved() -> Collection:
    return collection("proved")


def with_unknown() -> Collection:
    return collection("proved", "unknown")


def with_blunder() -> Collection:
    return collection("blunder")


def test_a_theorem_that_kills_its_process_costs_only_itself() -> None:
    outcomes = check_all(
        list(collection().theorems.values()),
        2,
        get=collection,
        # The limit of the fast tier is long, because a new process needs seconds to start. The
        # limit of the full tier is short, because its only theorem, `sleep`, must exceed the limit.
        limits={"fast": 60, "full": 3},
        expected_seconds={"crash": 9},
    )
    assert {name: outcome.verdict for name, outcome in outcomes.items()} == {
        "proved": "proved",
        "crash": "error",
        "sleep": "unknown",
        "blunder": "error",
        "unknown": "unknown",
    }
    assert "exit code 7" in outcomes["crash"].detail
    assert outcomes["blunder"].detail == "ValueError: no such thing"


@pytest.mark.parametrize(("get", "status"), [(only_proved, 0), (with_unknown, 1), (with_blunder, 1)])
def test_exit_status(get: Callable[[], Collection], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--jobs", "1"], get) == status
    shown = capsys.readouterr().out
    assert "SKIPPED proofs.absent" in shown
    assert ("NOT PROVED" in shown) == (status == 1)


def test_arguments_that_make_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "nothing"], only_proved) == 2
    for arguments in (["--jobs", "0"], ["--tier", "slow"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments, only_proved)
        assert stop.value.code == 2
    assert "must be at least 1" in capsys.readouterr().err


def test_choosing() -> None:
    made = [Theorem(name, "", (), proved, tier="full" if name == "b/y" else "fast") for name in ("a/x", "a/y", "b/y")]
    assert [t.name for t in choose(made, "fast")] == ["a/x", "a/y"]
    assert [t.name for t in choose(made, "full", "*/y")] == ["a/y", "b/y"]
    assert [t.name for t in choose(made, "full", "a/")] == ["a/x", "a/y"]


# --- tables


@pytest.mark.parametrize("element", tables.ELEMENTS.values(), ids=lambda element: element.name)
def test_tables_agree_with_formats(element: tables.Element) -> None:
    described = formats.ELEMENTS[element.name]
    assert [float(element.value(code)) for code in range(element.last + 1)] == list(
        described.values()[: element.last + 1]
    )
    assert (element.bits, element.mantissa, element.emin, element.emax) == (
        described.bits,
        described.mantissa_bits,
        described.emin,
        described.emax,
    )
    assert (element.last, element.infinity, element.nan) == (
        described.max_code,
        described.infinity_code,
        described.nan_code,
    )


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("e4m3", ml_dtypes.float8_e4m3fn),
        ("e5m2", ml_dtypes.float8_e5m2),
        ("e3m2", ml_dtypes.float6_e3m2fn),
        ("e2m3", ml_dtypes.float6_e2m3fn),
        ("e2m1", ml_dtypes.float4_e2m1fn),
    ],
)
def test_tables_agree_with_ml_dtypes(name: str, peer: type) -> None:
    element = tables.ELEMENTS[name]
    codes = np.arange(element.last + 1, dtype=np.uint8)
    assert codes.view(peer).astype(float).tolist() == [float(element.value(code)) for code in range(element.last + 1)]
    assert float(ml_dtypes.finfo(peer).max) == float(element.value(element.last))
    if element.infinity is not None:
        assert np.isinf(np.uint8(element.infinity).reshape(1).view(peer).astype(float))
    if element.nan is not None:
        assert np.isnan(np.uint8(element.nan).reshape(1).view(peer).astype(float))


@pytest.mark.parametrize("float_type", tables.FLOATS.values(), ids=lambda float_type: float_type.name)
def test_float_types_agree_with_formats(float_type: tables.Float) -> None:
    described = formats.FLOATS[float_type.name]
    assert (float_type.bits, float_type.exponent_bits, float_type.precision - 1, float_type.emin) == (
        described.bits,
        described.exponent_bits,
        described.mantissa_bits,
        described.emin,
    )
    assert (float_type.infinity, float_type.nan) == (described.infinity_code, described.nan_code)

"""Tests that the ledger's records match the current theorems, code and solvers."""

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from mxnum import formats
from mxnum.engine.products import integers
from proofs import ledger
from proofs.runner import collect
from proofs.theorem import Outcome, Theorem

RECORDS = ledger.read()["theorems"]
HOW = "run `python -m proofs --ledger`"


def test_every_fast_theorem_is_recorded_as_proved() -> None:
    for theorem in collect().theorems.values():
        if theorem.tier == "fast":
            assert theorem.name in RECORDS, f"{theorem.name} has no record: {HOW}"
            assert RECORDS[theorem.name]["verdict"] == "proved", theorem.name


def test_no_record_is_stale() -> None:
    theorems = collect().theorems
    for name, record in RECORDS.items():
        if name in theorems:
            assert ledger.fresh(theorems[name], record), f"{name} or its kernels changed since it was proved: {HOW}"
            assert record["verdict"] == "proved", name
        else:
            assert collect().skipped, f"{name} is recorded but no longer stated: {HOW}"


def test_the_tools_are_those_recorded() -> None:
    recorded = ledger.read()["versions"]
    assert set(recorded) == set(ledger.TOOLS)
    assert ledger.same_tools(recorded), HOW


def test_a_tool_that_is_absent_makes_nothing_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = ledger.versions()
    monkeypatch.setattr(ledger, "versions", lambda: recorded | {"numba-cuda": "absent"})
    assert ledger.same_tools(recorded)
    monkeypatch.setattr(ledger, "versions", lambda: recorded | {"numba-cuda": "1"})
    assert not ledger.same_tools(recorded)


def test_the_page_is_rendered_from_the_records() -> None:
    if collect().skipped:
        pytest.skip(f"some theorems cannot be read here: {collect().skipped}")
    assert ledger.PAGE.read_text() == ledger.render(collect().theorems.values(), ledger.read()), HOW


# --- Changes that make a record stale.


def make_kernel(constant: int, helper: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(x: int) -> Any:
        """Return a number that depends on a helper and a constant."""
        return helper(x + constant)  # a comment

    return kernel


def make_commented_kernel(constant: int, helper: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(x: int) -> Any:
        # another comment
        return helper(x + constant)

    return kernel


def make_changed_kernel(constant: int, helper: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(x: int) -> Any:
        return helper(x - constant)

    return kernel


def double(x: int) -> int:
    return x + x


def triple(x: int) -> int:
    return x + x + x


double.__module__ = triple.__module__ = "mxnum.pretended"


def test_a_code_hash_changes_with_code_constants_and_callees_only() -> None:
    original = ledger.code_hash([make_kernel(1, double)])
    assert ledger.code_hash([make_kernel(1, double)]) == original
    assert ledger.code_hash([make_commented_kernel(1, double)]) == original
    assert ledger.code_hash([make_kernel(2, double)]) != original
    assert ledger.code_hash([make_kernel(1, triple)]) != original
    assert ledger.code_hash([make_changed_kernel(1, double)]) != original


def test_a_code_hash_does_not_depend_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    # The loop that packs integers uses the number of lanes, which depends on the processor.
    # Regression: without AVX-512, the records of all theorems about products were stale.
    original = ledger.code_hash([integers.pack])
    monkeypatch.setattr(integers, "HOST_LANES", 24 - integers.HOST_LANES)
    ledger._fingerprint_once.cache_clear()
    assert ledger.code_hash([integers.pack]) == original


LEAST, TABLE, FORMAT = 3, {"a": 1}, formats.ELEMENTS["e2m1"]
HELPERS = ModuleType("mxnum.pretended_helpers")
HELPERS.double = double  # type: ignore[attr-defined]


@cache
def half(x: int) -> int:
    return x >> 1


half.__module__ = "mxnum.pretended"


def make_by_table() -> Callable[..., Any]:
    """Return a kernel whose hash must cover its helpers, constants, tables and formats."""

    def kernel(x: int) -> Any:
        return HELPERS.double(half(x)) + LEAST + TABLE["a"] + FORMAT.bits

    return kernel


@pytest.mark.parametrize(
    ("place", "name", "other"),
    [
        (globals(), "LEAST", 4),
        (globals(), "TABLE", {"a": 2}),
        (globals(), "FORMAT", formats.ELEMENTS["e3m0"]),
        (globals(), "half", cache(triple)),
        (vars(HELPERS), "double", triple),
    ],
)
def test_tables_formats_and_what_is_cached_or_in_a_module_count(
    monkeypatch: pytest.MonkeyPatch, place: dict[str, Any], name: str, other: Any
) -> None:
    def hashes() -> tuple[str, str]:
        ledger._fingerprint_once.cache_clear()
        return ledger.code_hash([make_by_table]), ledger.code_hash([make_by_table()])

    before = hashes()
    assert hashes() == before
    monkeypatch.setitem(place, name, other)
    after = hashes()
    assert (after[0] != before[0], after[1] != before[1]) == (True, True)


def theorem(**changes: Any) -> Theorem:
    """Return a theorem with some fields changed."""
    given = {"name": "a/b", "statement": "So.", "kernels": ("k",), "check": lambda: None, "hypotheses": ("x is any",)}
    return Theorem(**(given | changes))


@pytest.mark.parametrize("change", [{"statement": "Not so."}, {"kernels": ("l",)}, {"hypotheses": ()}, {"name": "a/c"}])
def test_a_text_hash_changes_with_what_is_said(change: dict[str, Any]) -> None:
    assert ledger.text_hash(theorem()) == ledger.text_hash(theorem())
    assert ledger.text_hash(theorem(**change)) != ledger.text_hash(theorem())


def test_seconds_do_not_make_a_record_stale() -> None:
    made = theorem(functions=(make_kernel(1, double),))
    record = ledger.record_of(made, Outcome("proved", "z3", 1.0))
    assert ledger.fresh(made, record)
    assert ledger.fresh(made, record | {"seconds": 99.0})
    assert not ledger.fresh(theorem(functions=(make_kernel(2, double),)), record)


def test_what_is_stale_is_what_is_not_proved_now(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third, fourth = list(collect().theorems.values())[:4]
    proved, refuted = Outcome("proved", "z3", 0.0), Outcome("refuted", "z3", 0.0)
    records = {
        first.name: ledger.record_of(first, proved),
        second.name: ledger.record_of(first, proved),
        fourth.name: ledger.record_of(fourth, refuted),
    }
    monkeypatch.setattr(ledger, "read", lambda: {"versions": ledger.versions(), "theorems": records})
    assert ledger.stale([first, second, third, fourth]) == [second, third, fourth]
    monkeypatch.setattr(ledger, "read", lambda: {"versions": ledger.versions() | {"numba": "0"}, "theorems": records})
    assert ledger.stale([first, fourth]) == [first, fourth]

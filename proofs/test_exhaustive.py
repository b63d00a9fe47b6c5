from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from mxnum import formats
from proofs import breakpoints, exhaustive, ledger, loops, sweeps
from proofs.specs import rationals, runs
from proofs.specs.rationals import ELEMENTS, FLOATS
from proofs.specs.runs import Random, Runs
from proofs.sweeps import Sweep
from proofs.theorem import Theorem


@pytest.fixture(autouse=True)
def _own_files(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(sweeps, "STATES", tmp_path / "states")
    monkeypatch.setattr(sweeps, "RECORD", tmp_path / "sweeps.json")


# The exact reference


@pytest.mark.parametrize(
    ("name", "count", "smallest", "largest", "beyond"),
    [
        ("e4m3", 127, Fraction(1, 512), 448, 480),
        ("e5m2", 124, Fraction(1, 65536), 57344, 65536),
        ("e3m2", 32, Fraction(1, 16), 28, 32),
        ("e2m3", 32, Fraction(1, 8), Fraction(15, 2), 8),
        ("e2m1", 8, Fraction(1, 2), 6, 8),
        ("int8", 128, Fraction(1, 64), Fraction(127, 64), 2),
        ("e3m0", 8, Fraction(1, 4), 16, 32),
        ("int4", 8, Fraction(1, 4), Fraction(7, 4), 2),
    ],
)
def test_tables_have_the_ends_of_the_standard(name: Any, count: Any, smallest: Any, largest: Any, beyond: Any) -> None:
    table = ELEMENTS[name].magnitudes
    assert (len(table), *table[:2], table[-1]) == (count, Fraction(0), smallest, largest)
    assert ELEMENTS[name].beyond == beyond
    assert list(table) == sorted(set(table))


@pytest.mark.parametrize("name", ELEMENTS)
def test_tables_agree_with_the_descriptions_of_the_library(name: Any) -> None:
    values = [formats.ELEMENTS[name].value(code) for code in range(ELEMENTS[name].largest + 1)]
    assert [Fraction(value) for value in values] == list(ELEMENTS[name].magnitudes)


@pytest.mark.parametrize(("name", "dtype"), [("float16", np.float16), ("float32", np.float32), ("float64", np.float64)])
def test_floats_read_as_numpy_reads_them(name: Any, dtype: Any) -> None:
    source = FLOATS[name]
    marks = breakpoints.landmarks(source)
    patterns = np.array([mark for mark in marks if mark < source.infinity], f"u{source.bits // 8}")
    for pattern, value in zip(patterns.tolist(), patterns.view(dtype).tolist(), strict=True):
        assert rationals.magnitude_value(source, pattern) == Fraction(value)


def test_floor_magnitude_agrees_with_a_search_through_all_float16() -> None:
    source = FLOATS["float16"]
    values = [rationals.magnitude_value(source, pattern) for pattern in range(source.infinity)]
    rng = np.random.default_rng(1)
    wanted = [
        Fraction(int(n), 3) * rationals.power_of_two(int(e)) for n, e in rng.integers((1, -30), (4000, 8), (20, 2))
    ]
    for number in [*wanted, *values[:3], values[-1], values[-1] * 3]:
        pattern, exact = rationals.floor_magnitude(source, number.numerator, number.denominator)
        assert pattern == max(i for i, value in enumerate(values) if value <= number)
        assert exact == (values[pattern] == number)


@pytest.mark.parametrize(
    ("element", "rounding", "overflow", "value", "right"),
    [
        ("e3m0", "rne", "saturate", 0.125, 0.0),
        ("e3m0", "rne", "saturate", 0.375, 0.5),
        ("e3m0", "rne", "saturate", 0.75, 0.5),
        ("e3m0", "rne", "saturate", 6.0, 8.0),
        ("e4m3", "rto", "saturate", 449.0, 448.0),
        ("e4m3", "rne", "ieee", 464.0, 448.0),
        ("e4m3", "rna", "ieee", 464.0, "nan"),
        ("e4m3", "rtp", "ieee", -464.0, -448.0),
        ("e5m2", "rne", "ieee", 61440.0, "infinity"),
        ("e5m2", "rto", "ieee", 61440.0, 57344.0),
        ("e5m2", "rtn", "ieee", -57345.0, "infinity"),
    ],
)
def test_reference_gives_the_examples_of_the_semantics(
    element: Any, rounding: Any, overflow: Any, value: Any, right: Any
) -> None:
    pattern = int(np.float32(value).view(np.uint32))
    code = rationals.encode(FLOATS["float32"], ELEMENTS[element], rounding, overflow, pattern, 127)
    negative, magnitude = rationals.element_value(ELEMENTS[element], code)
    assert negative == (value < 0)
    assert magnitude == (right if isinstance(right, str) else Fraction(abs(right)))


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("rounding", exhaustive.ROUNDINGS)
def test_breakpoints_agree_with_rounding_number_by_number(source: Any, rounding: Any) -> None:
    """Check that breakpoints give the same codes as `rationals.encode`."""
    rng = np.random.default_rng([2, len(rounding), FLOATS[source].bits])
    random = Random(int(rng.integers(1 << 30))) if rounding == "sr" else None
    for element in ELEMENTS:
        for overflow in exhaustive.overflows(element):
            for negative in (False, True):
                near = breakpoints.points(source, element, rounding, negative, random)
                anywhere = rng.integers(0, FLOATS[source].sign_bit, (255, 5))
                magnitudes = np.concatenate([near, anywhere], axis=1)
                codes = runs.expected(source, element, rounding, overflow, magnitudes, negative, random)
                for scale, i in rng.integers(0, magnitudes.shape, (30, 2)).tolist():
                    pattern = int(magnitudes[scale, i]) + (FLOATS[source].sign_bit if negative else 0)
                    direct = rationals.encode(
                        *(FLOATS[source], ELEMENTS[element], rounding, overflow, pattern, scale),
                        random.value if random else 0,
                    )
                    assert codes[scale, i] == direct, (element, overflow, scale, hex(pattern))


@pytest.mark.parametrize("source", ["float32", "bfloat16", "float16"])
def test_runs_cover_both_signs_and_the_special_values(source: Any) -> None:
    rng = np.random.default_rng(4)
    sign_bit = FLOATS[source].sign_bit
    for rounding in ("rtp", "rto"):
        for element, overflow in (("e5m2", "ieee"), ("e4m3", "ieee"), ("int4", "saturate")):
            scale = int(rng.integers(255))
            reference = runs.encode_runs(source, element, rounding, overflow, scale)
            marks = np.concatenate([rng.integers(0, sign_bit, 200), breakpoints.landmarks(FLOATS[source])])
            for negative in (False, True):
                at = np.searchsorted(reference.starts, marks + sign_bit * negative, side="right") - 1
                row = np.broadcast_to(marks, (255, marks.size))
                codes = runs.expected(source, element, rounding, overflow, row, negative, None)
                assert np.array_equal(reference.values[at], codes[scale])
    assert runs.encode_runs(source, "e4m3", "rne", "ieee", 255).values.tolist() == [0]


@pytest.mark.parametrize("rule", exhaustive.RULES)
def test_scale_runs_agree_with_trying_every_scale(rule: Any) -> None:
    rng = np.random.default_rng(3)
    for source in FLOATS:
        reference = runs.scale_runs(source, "e4m3", rule)
        for pattern in rng.choice(reference.starts, 20).tolist():
            for amax in (pattern, max(0, pattern - 1)):
                at = int(np.searchsorted(reference.starts, amax, side="right")) - 1
                value = rationals.magnitude_value(FLOATS[source], amax)
                assert reference.values[at] == rationals.shared_scale(ELEMENTS["e4m3"], rule, value)


# Breakpoint checks


@pytest.mark.parametrize("machine", ["loop", "definition"])
def test_one_wrong_code_is_reported(monkeypatch: Any, machine: Any) -> None:
    right = loops.encode_rows

    def broken(*arguments: Any) -> Any:
        rows = right(*arguments)

        def wrong(patterns: Any, scales: Any) -> Any:
            codes = rows(patterns, scales)
            codes[130, 17] ^= 1
            return codes

        return wrong

    modes = machine, "float32", "e2m1", "rne", "saturate", None
    assert breakpoints.check_encode(*modes)[1] == ""
    monkeypatch.setattr(loops, "encode_rows", broken)
    count, message = breakpoints.check_encode(*modes)
    assert count > 256 * 17
    assert message.startswith("1 mismatches; first: input ")
    assert "row 130" in message


def test_another_rounding_is_reported(monkeypatch: Any) -> None:
    right = loops.encode_rows
    monkeypatch.setattr(loops, "encode_rows", lambda machine, s, e, r, o, w: right(machine, s, e, "rna", o, w))
    modes = "bfloat16", "e4m3", "rne", "saturate", None
    assert "mismatches" in breakpoints.check_encode("definition", *modes)[1]
    assert "mismatches" in breakpoints.check_all_patterns("loop", *modes)[1]


def test_checks_of_decoding_and_scales_report_another_kernel(monkeypatch: Any) -> None:
    assert breakpoints.check_decode("definition", "e2m1", "float16")[1] == ""
    assert breakpoints.check_scale("float64", "e4m3", "even")[1] == ""
    right_rows, right_kernel = loops.decode_rows, loops.scale_kernel
    monkeypatch.setattr(loops, "decode_rows", lambda machine, element, target: right_rows(machine, "int4", target))
    monkeypatch.setattr(loops, "scale_kernel", lambda source, element, rule: right_kernel(source, element, "ceil"))
    assert "mismatches" in breakpoints.check_decode("definition", "e2m1", "float16")[1]
    assert "mismatches" in breakpoints.check_scale("float64", "e4m3", "even")[1]


# Sweeps


def small_sweep(end: int = 3 * sweeps.CHUNK + 5, fault: Any = None, interrupt_at: Any = None) -> Sweep:
    """Return a sweep that runs a bfloat16 loop on `end` inputs.

    The inputs repeat the 2**16 bit patterns. The loop returns a wrong code for input number
    `fault`. The loop raises KeyboardInterrupt once, in the chunk that begins with input number
    `interrupt_at`.
    """
    modes = "bfloat16", "e5m2", "rtp", "saturate"
    pending = [interrupt_at]

    def prepare() -> Any:
        loop = loops.encode_loop(*modes, None)

        def evaluate(bits: Any, codes: Any) -> None:
            if pending[0] is not None and bits[0] == np.uint32(pending[0]).astype(np.int32):
                pending[0] = None
                raise KeyboardInterrupt
            loops.run_rows(loop, bits.astype(np.int16)[None], np.array([127], np.uint8), codes[None], loops.NO_WORDS)
            if fault is not None:
                codes[bits == fault] ^= 1

        return evaluate, loop

    def reference() -> Runs:
        once = runs.encode_runs(*modes, 127)
        pieces = list(zip(once.starts.tolist(), once.values.tolist(), strict=True))
        repeated = [(65536 * i + start, value) for i in range(-(-end // 65536)) for start, value in pieces]
        return Runs.of([piece for piece in repeated if piece[0] < end], end)

    return Sweep("small/sweep", "int32", prepare, reference)


def test_a_sweep_covers_all_and_finds_nothing_wrong() -> None:
    state = sweeps.run(small_sweep())
    assert state.finished
    assert (state.next, state.mismatches, state.first_mismatch) == (3 * sweeps.CHUNK + 5, 0, None)


def test_a_sweep_finds_one_wrong_code() -> None:
    at = 2 * sweeps.CHUNK + 77
    state = sweeps.run(small_sweep(fault=at))
    assert state.mismatches == 1
    assert state.first_mismatch is not None
    pattern, right, found = state.first_mismatch
    assert (pattern, found) == (at, right ^ 1)


def test_a_sweep_finds_a_wrong_reference() -> None:
    sweep = small_sweep()
    right = sweep.reference()
    starts = right.starts.copy()
    starts[10] += 1
    wrong = replace(sweep, reference=lambda: Runs(starts, right.values, right.end))
    state = sweeps.run(wrong)
    assert (state.mismatches, state.first_mismatch) == (1, (int(starts[10]) - 1, right.values[9], right.values[10]))


@pytest.mark.parametrize("fault", [None, 5, 2 * sweeps.CHUNK + 77])
def test_an_interrupted_sweep_continues_to_the_same_result(fault: Any) -> None:
    whole = sweeps.run(replace(small_sweep(fault=fault), name="whole"))
    with pytest.raises(KeyboardInterrupt):
        sweeps.run(small_sweep(fault=fault, interrupt_at=2 * sweeps.CHUNK))
    calls: list[int] = []
    sweep = small_sweep(fault=fault)

    def prepare() -> Any:
        evaluate, loop = sweep.prepare()

        def counted(bits: Any, codes: Any) -> None:
            calls.append(int(bits[0]))
            evaluate(bits, codes)

        return counted, loop

    resumed = sweeps.run(replace(sweep, prepare=prepare))
    assert calls[0] == 2 * sweeps.CHUNK
    assert replace(resumed, seconds=0.0) == replace(whole, seconds=0.0)
    assert sweeps.run(sweep) == resumed  # `run` does not repeat a finished sweep


def test_a_state_of_another_reference_or_kernel_is_not_continued() -> None:
    with pytest.raises(KeyboardInterrupt):
        sweeps.run(small_sweep(interrupt_at=sweeps.CHUNK))
    right = small_sweep().reference()
    changed = replace(small_sweep(), reference=lambda: Runs(right.starts, right.values ^ 1, right.end))
    assert sweeps.run(changed).mismatches == right.end


def test_the_record_keeps_what_other_sweeps_wrote() -> None:
    state = sweeps.run(small_sweep())
    sweeps.add_to_record("b", state)
    sweeps.add_to_record("a", replace(state, mismatches=3))
    record = sweeps.read_record()
    assert list(record) == ["a", "b"]
    assert record["a"]["mismatches"] == 3
    assert record["b"]["inputs"] == state.end
    assert set(record["b"]) == {"name", "inputs", "mismatches", "seconds", "date", "versions", "kernel_hash"}


def test_a_kernel_hash_tells_kernels_apart_and_nothing_else() -> None:
    def digest(source: str, element: str, rounding: str, overflow: str) -> str:
        return sweeps.kernel_hash(loops.encode_loop(source, element, rounding, overflow, None))

    first = digest("float32", "e4m3", "rne", "saturate")
    assert first == digest("float32", "e4m3", "rne", "saturate")
    others = {digest("float32", *modes) for modes in [("e4m3", "rna", "saturate"), ("e5m2", "rne", "saturate")]}
    assert len(others | {first, digest("float64", "e4m3", "rne", "saturate")}) == 4


def test_a_source_changed_under_a_running_process_is_not_hashed(monkeypatch: Any) -> None:
    monkeypatch.setattr(sweeps, "STARTED", 0.0)
    with pytest.raises(RuntimeError, match="has changed since it was loaded"):
        sweeps.kernel_hash(loops.encode_loop("float32", "e4m3", "rne", "saturate", None))


def test_compiled_loops_are_kept_by_the_source_of_the_library(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", numba.config.CACHE_DIR)
    monkeypatch.setattr(loops, "CACHE", tmp_path)
    (tmp_path / "older").mkdir()
    loops.use_own_cache()
    assert Path(numba.config.CACHE_DIR).parent == tmp_path
    assert not (tmp_path / "older").exists()


def test_every_combination_has_its_theorems() -> None:
    names = [theorem.name for theorem in exhaustive.theorems()]
    assert len(names) == len(set(names))
    for element in ELEMENTS:
        for rounding in exhaustive.ROUNDINGS:
            for overflow in exhaustive.overflows(element):
                modes = f"{element}/{rounding}/{overflow}"
                assert all(f"breakpoints/encode/{source}/{modes}" in names for source in FLOATS)
                assert f"loop-breakpoints/encode/float32/{modes}" in names
                word = f"/word{exhaustive.SWEPT_WORDS[0].word:x}" if rounding == "sr" else ""
                assert f"sweep/encode/float32/{modes}/scale127{word}" in names


def theorem(name: str) -> Theorem:
    """Return the theorem with the given name."""
    (found,) = (theorem for theorem in exhaustive.theorems() if theorem.name == name)
    return found


def test_what_is_checked_is_recorded() -> None:
    assert theorem("sweep/decode/int4/float16").check().verdict == "proved"
    (entry,) = sweeps.read_record().values()
    assert (entry["name"], entry["inputs"], entry["mismatches"]) == ("sweep/decode/int4/float16", 4096, 0)


@pytest.mark.parametrize(
    "name",
    [
        "sweep/scale/float32/e2m1/even",
        "sweep/encode/float32/e2m1/rne/saturate/scale127",
        "sweep/encode/bfloat16/e2m1/rne/saturate",
        "sweep/decode/e2m1/float16",
        "loop-breakpoints/encode/float32/e2m1/rne/saturate",
    ],
)
def test_what_is_said_of_a_loop_is_stale_when_the_loop_changes(name: str, monkeypatch: Any) -> None:
    """Check that the hash of a theorem about a loop covers the loop as well as scalar functions."""
    before = ledger.code_hash(theorem(name).functions)
    assert ledger.code_hash(theorem(name).functions) == before

    def other(loop: Any) -> Any:
        raise NotImplementedError

    monkeypatch.setattr(loops, "source_of", lambda loop: (other,))
    assert ledger.code_hash(theorem(name).functions) != before

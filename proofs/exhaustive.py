"""Check the loops of the definition against exact rationals, for every float32 pattern.

The fast tier runs the Python functions over numpy arrays: encoders at the breakpoints of all four
input types under every scale code, decoders on every code, and scale rules around their thresholds.
The fast tier also runs the compiled float32 loops at the float32 breakpoints. These loops are
compiled in the same way as on a user's machine. The full tier runs the compiled loops over all
2**32 float32 patterns, all 16-bit patterns under all scales, all codes, and the float64
breakpoints.

    python -m proofs --tier full --only sweep/

runs the sweeps alone. An interrupted sweep continues where it stopped; `sweeps.json` records the
sweeps that have finished. The record of a theorem about a loop includes the loop's source, so a
change to the loop makes the record stale.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

import numpy as np

from proofs import breakpoints, loops, sweeps
from proofs.loops import Machine
from proofs.specs.conversions import ROUNDINGS
from proofs.specs.rationals import ELEMENTS, FLOATS
from proofs.specs.runs import Array, Random, encode_runs, scale_runs
from proofs.sweeps import Evaluate, State, Sweep
from proofs.theorem import Outcome, Theorem

RULES = ("floor", "ceil", "even", "rceil", "half_up", "floor_plus_one")
#: Scale codes that are swept for rne in addition to 127: both ends of the range, and the neighbours
#: of 127.
SCALE_CLASSES = (0, 1, 2, 126, 128, 253, 254)
#: Random words of the stochastic sweeps: both ends of the range, its middle, and a word in between.
#: The last word also has two bits above the 30 used bits; loops must ignore these two bits.
SWEPT_WORDS = (Random(1 << 29), Random(0), Random(1), Random((1 << 30) - 1), Random(0xC0000000 | 0x12345678))

_AT_BREAKPOINTS = (
    "at each breakpoint of the exact reference (a bit pattern at which the exact code changes), at the two patterns "
    "below and the one above it, and at zeros, subnormal and normal extremes, infinities and NaNs. This holds under "
    "all 256 scale codes and for both signs. Encoding is monotone (structure/monotone), so it holds for all inputs of "
    "the type."
)
BREAKPOINTS = f"The encoder gives the exactly rounded code {_AT_BREAKPOINTS}"
#: The loops of `engine.loops.marked`, which handle every block. Other theorems and tests show that
#: the fast loops return the same results.
_LOOP = "The compiled array loop of the definition, which redoes the blocks that fast loops skip,"
LOOP_BREAKPOINTS = f"{_LOOP} gives the exactly rounded code {_AT_BREAKPOINTS}"
ENCODE_SWEEP = f"{_LOOP} gives the exactly rounded code for each of the 2**32 float32 bit patterns."
NARROW_SWEEP = f"{_LOOP} gives the exactly rounded code for every 16-bit pattern under all 256 scale codes."
_ALL_CODES = (
    "gives the exact product of element value and scale, rounded once to nearest even (NaN if the code or the scale is "
    "NaN). This holds for every code under all 256 scale codes."
)
DECODE_CODES = f"The decoder {_ALL_CODES}"
DECODE_SWEEP = f"{_LOOP} {_ALL_CODES}"
SCALE_SWEEP = (
    "The compiled loop that finds the scales of blocks by the definition gives the scale code that the rule requires, "
    "for every finite non-negative float32."
)
SCALE_BREAKPOINTS = (
    "The scale code is the one that the rule requires around each magnitude (amax) at which the code changes, at zero, "
    "and at the extremes of the type. Scale codes never decrease as amax grows, so this holds for every finite amax."
)


def overflows(element: str) -> tuple[str, ...]:
    """Return the overflow modes that give different results for an element.

    An element without special values saturates in both modes.
    """
    return ("saturate", "ieee") if ELEMENTS[element].nan is not None else ("saturate",)


def encodings() -> Iterator[tuple[str, str, str]]:
    """Yield (element, rounding, overflow) of every encoder; rne comes first."""
    for rounding in ROUNDINGS:
        for element in ELEMENTS:
            for overflow in overflows(element):
                yield element, rounding, overflow


def subnormal_scale(element: str) -> int:
    """Return the scale code under which the least positive element is the least normal float32."""
    return ELEMENTS[element].magnitudes[1].denominator.bit_length()


def theorems() -> list[Theorem]:
    """Return the fast checks, and then the sweeps, the most useful sweeps first."""
    return [*_breakpoint_theorems(), *_decode_theorems("definition"), *_scale_theorems(), *sweep_theorems()]


def sweep_theorems() -> list[Theorem]:
    """Return the theorems of the full tier."""
    swept = [_sweep_theorem(task, kernel, statement) for task, kernel, statement in sweep_tasks()]
    once = [*_narrow_theorems(), *_loop_breakpoint_theorems("float64", "full"), *_decode_theorems("loop")]
    return [*once, *swept]


# The fast tier


def _breakpoint_theorems() -> Iterator[Theorem]:
    for source in FLOATS:
        for modes in encodings():
            yield _encode_theorem(
                "breakpoints/encode", "definition", breakpoints.check_encode, source, *modes, BREAKPOINTS, "fast"
            )
    yield from _loop_breakpoint_theorems("float32", "fast")


def _loop_breakpoint_theorems(source: str, tier: Any) -> Iterator[Theorem]:
    for modes in encodings():
        yield _encode_theorem(
            "loop-breakpoints/encode", "loop", breakpoints.check_encode, source, *modes, LOOP_BREAKPOINTS, tier
        )


def _encode_theorem(
    prefix: str,
    machine: Machine,
    check: Callable[..., tuple[int, str]],
    source: str,
    element: str,
    rounding: str,
    overflow: str,
    statement: str,
    tier: Any,
) -> Theorem:
    name = f"{prefix}/{source}/{element}/{rounding}/{overflow}"
    words: tuple[Random | None, ...] = breakpoints.WORDS if rounding == "sr" else (None,)
    # Loops of stochastic rounding are checked only with 30 random bits. With fewer bits, a loop
    # would differ only in the shift that aligns the random word, but would be compiled again.
    if machine == "loop" and rounding == "sr":
        words = tuple(word for word in breakpoints.WORDS if word.bits == breakpoints.WORDS[0].bits)
    kernel = loops.encode_kernel(source, element, rounding, overflow)
    of_loop = partial(loops.encode_loop, source, element, rounding, overflow, words[0]) if machine == "loop" else None
    checks = tuple(partial(check, machine, source, element, rounding, overflow, word) for word in words)
    hypotheses = [
        f"x is any {source} pattern that the statement lists"
        if check is breakpoints.check_encode
        else f"x is any {source}"
    ]
    hypotheses.append("scale code in 0..255")
    if rounding == "sr":
        hypotheses.append(f"the random word is one of {', '.join(f'{word.word:#x}' for word in words if word)}")
    return Theorem(
        name=name,
        statement=statement,
        kernels=(kernel.__name__,),
        check=partial(_check_once, name, checks, of_loop if tier == "full" else None),
        hypotheses=tuple(hypotheses),
        tier=tier,
        functions=(kernel,) if of_loop is None else (kernel, *loops.source_of(of_loop())),
    )


def _check_once(
    name: str, checks: tuple[Callable[[], tuple[int, str]], ...], recorded_loop: Callable[[], Any] | None
) -> Outcome:
    """Run all checks; if `recorded_loop` is given, record the outcome with the loop's hash."""
    started = time.perf_counter()
    count, problem = 0, ""
    for check in checks:
        inputs, message = check()
        count += inputs
        problem = problem or message
    seconds = time.perf_counter() - started
    if recorded_loop is not None:
        kernel_hash = sweeps.kernel_hash(recorded_loop())
        state = State("", kernel_hash, count, count, int(problem != ""), None, seconds, date.today().isoformat())
        sweeps.add_to_record(name, state)
    return Outcome("refuted" if problem else "proved", "sweep", seconds, problem or f"{count} inputs")


def _decode_theorems(machine: Machine) -> Iterator[Theorem]:
    for element in ELEMENTS:
        for target in FLOATS:
            prefix, tier = ("codes", "fast") if machine == "definition" else ("sweep", "full")
            name = f"{prefix}/decode/{element}/{target}"
            kernel = loops.decode_kernel(element, target)
            of_loop = partial(loops.decode_loop, element, target) if machine == "loop" else None
            check = partial(breakpoints.check_decode, machine, element, target)
            yield Theorem(
                name=name,
                statement=DECODE_CODES if machine == "definition" else DECODE_SWEEP,
                kernels=(kernel.__name__,),
                check=partial(_check_once, name, (check,), of_loop),
                hypotheses=(f"code is any {element} code", "scale code in 0..255"),
                tier=tier,  # type: ignore[arg-type]
                functions=(kernel,) if of_loop is None else (kernel, *loops.source_of(of_loop())),
            )


def _scale_theorems() -> Iterator[Theorem]:
    for source in FLOATS:
        for element in ELEMENTS:
            name = f"breakpoints/scale/{source}/{element}"
            kernels = tuple(loops.scale_kernel(source, element, rule) for rule in RULES)
            checks = tuple(partial(breakpoints.check_scale, source, element, rule) for rule in RULES)
            yield Theorem(
                name=name,
                statement=SCALE_BREAKPOINTS,
                kernels=tuple(kernel.__name__ for kernel in kernels),
                check=partial(_check_once, name, checks, None),
                hypotheses=(f"amax is any {source} pattern that the statement lists",),
                functions=kernels,
            )


# The full tier


def _narrow_theorems() -> Iterator[Theorem]:
    for source in ("bfloat16", "float16"):
        for modes in encodings():
            check = breakpoints.check_all_patterns
            yield _encode_theorem("sweep/encode", "loop", check, source, *modes, NARROW_SWEEP, "full")


@dataclass(frozen=True)
class EncodeTask:
    """A float32 encoding loop under one scale code.

    With stochastic rounding, all patterns get the same random word.
    """

    element: str
    rounding: str
    overflow: str
    scale: int = 127
    random: Random | None = None

    @property
    def name(self) -> str:
        word = "" if self.random is None else f"/word{self.random.word:x}"
        return f"sweep/encode/float32/{self.element}/{self.rounding}/{self.overflow}/scale{self.scale}{word}"

    @property
    def hypotheses(self) -> tuple[str, ...]:
        word = () if self.random is None else (f"the random word is {self.random.word:#x}",)
        return ("x is any float32", f"the scale code is {self.scale}", *word)

    def sweep(self) -> Sweep:
        """Return the sweep of this task."""
        modes = "float32", self.element, self.rounding, self.overflow
        return Sweep(
            self.name, "int32", self.prepare, partial(encode_runs, *modes, scale=self.scale, random=self.random)
        )

    def loop(self) -> Any:
        """Return the compiled loop."""
        return loops.encode_loop("float32", self.element, self.rounding, self.overflow, self.random)

    def prepare(self) -> tuple[Evaluate, Any]:
        """Return a function that encodes consecutive patterns, and the loop that it calls."""
        loop = self.loop()
        scales = np.array([self.scale], np.uint8)
        words = loops.words_for((1, sweeps.CHUNK), self.random)

        def evaluate(bits: Array, codes: Array) -> None:
            loops.run_rows(loop, bits[None], scales, codes[None], words)

        return evaluate, loop


@dataclass(frozen=True)
class ScaleTask:
    """A loop that converts the largest magnitudes of blocks to scale codes."""

    element: str
    rule: str

    @property
    def name(self) -> str:
        return f"sweep/scale/float32/{self.element}/{self.rule}"

    @property
    def hypotheses(self) -> tuple[str, ...]:
        return ("amax is any finite non-negative float32",)

    def sweep(self) -> Sweep:
        """Return the sweep of this task."""
        return Sweep(self.name, "int32", self.prepare, partial(scale_runs, "float32", self.element, self.rule))

    def loop(self) -> Any:
        """Return the compiled loop."""
        return loops.scale_loop("float32", self.element, self.rule)

    def prepare(self) -> tuple[Evaluate, Any]:
        """Return a function that computes the scale codes of magnitudes, and the loop it calls."""
        loop = loops.scale_loop("float32", self.element, self.rule)
        return partial(loops.run_scales, loop), loop


def sweep_tasks() -> Iterator[tuple[EncodeTask | ScaleTask, Callable[..., Any], str]]:
    """Yield (task, scalar kernel, statement), the most useful task first."""
    first_word = {True: SWEPT_WORDS[0], False: None}
    for element, rounding, overflow in encodings():
        yield _encode_task(element, rounding, overflow, random=first_word[rounding == "sr"])
    for element in ELEMENTS:
        for rule in RULES:
            yield ScaleTask(element, rule), loops.scale_kernel("float32", element, rule), SCALE_SWEEP
    for word in SWEPT_WORDS[1:]:
        for element in ELEMENTS:
            yield _encode_task(element, "sr", "saturate", random=word)
    for element in ELEMENTS:
        for scale in sorted({*SCALE_CLASSES, subnormal_scale(element)}):
            yield _encode_task(element, "rne", "saturate", scale)


def _encode_task(
    element: str, rounding: str, overflow: str, scale: int = 127, random: Random | None = None
) -> tuple[EncodeTask, Callable[..., Any], str]:
    kernel = loops.encode_kernel("float32", element, rounding, overflow)
    return EncodeTask(element, rounding, overflow, scale, random), kernel, ENCODE_SWEEP


def _sweep_theorem(task: EncodeTask | ScaleTask, kernel: Callable[..., Any], statement: str) -> Theorem:
    return Theorem(
        name=task.name,
        statement=statement,
        kernels=(kernel.__name__,),
        check=partial(check_sweep, task),
        hypotheses=task.hypotheses,
        tier="full",
        functions=(kernel, *loops.source_of(task.loop())),
    )


def check_sweep(task: EncodeTask | ScaleTask) -> Outcome:
    """Run or continue a sweep, and record it when it has finished."""
    state = sweeps.run(task.sweep())
    sweeps.add_to_record(task.name, state)
    if state.first_mismatch is not None:
        pattern, right, found = state.first_mismatch
        first = f"first: pattern {pattern:#x}, got {found:#x}, expected {right:#x}"
        return Outcome("refuted", "sweep", state.seconds, f"{state.mismatches} mismatches; {first}")
    return Outcome("proved", "sweep", state.seconds, f"{state.end} inputs, swept on {state.finished_on}")

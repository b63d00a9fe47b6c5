"""Prove that `mxnum` quantizes to NVFP4 with the same float32 operations as other software.

Each theorem compares a function of `mxnum` with the operations in the source code of a software
stack (`proofs.specs.stack_statements`). Both are expressed in the solver's IEEE operations: the
functions of `mxnum` run on symbolic words and numbers (`proofs.machines.symbolic_floats`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

import z3

from mxnum.definition import stack_arithmetic
from mxnum.engine.machine import lanes
from mxnum.engine.rounding import by_factors, by_stack
from mxnum.formats import FLOATS
from proofs.machines.checks import ON_DICTIONARIES, outcome_of, patched
from proofs.machines.solve import prove
from proofs.machines.symbolic_floats import DTYPES, SORTS, Machine, Number, Word, bits_of, number_of, value_of
from proofs.specs import conversions, tables
from proofs.specs.stack_statements import STATEMENTS, e2m1
from proofs.theorem import Outcome, Theorem

TENSOR = (
    "The global scale of a tensor is the number that the stack's source computes, in the type of the tensor or in "
    "float32. It is positive and finite if the other theorems about the stack assume this."
)
SCALE = (
    "The scale code of a block is the E4M3 code, rounded to nearest even and saturated, of the float32 number that the "
    "stack's source computes from the block's largest magnitude and the global scale. NaN gives 0x7F. If the code "
    "would be 0, it is the code by which the stack replaces zero."
)
FACTOR = (
    "If a loop converts a block (`prepare` returns True), the block's factor is the float32 number that the stack's "
    "source computes from the scale and the global scale. The factor is positive and finite."
)
ELEMENT = (
    "The code of a number is the E2M1 code, rounded to nearest even and saturated, of the float32 product of number "
    "and factor, or of their float32 quotient if the stack divides. A zero has the sign that the stack gives it."
)
READS = (
    "If a loop converts a block (`prepare` returns True), the value of each code is the number that the stack's source "
    "computes."
)
NUMBER = "The float32 number that the loop uses for a scale code is the one in the standard's table."
NARROWED = (
    "A float32 number that is not negative is rounded to nearest even in the tensor's type, as IEEE 754 defines it."
)

#: The bit patterns of the one input that a check covers; empty if the check covers all inputs.
Numbers = tuple[int, ...]
INFINITY, _ONE = 0x7F800000, 0x3F800000
FLOAT32 = FLOATS["float32"]


class _Tensor:
    """A symbolic word of 64 bits.

    The low half is a tensor's global scale, and the high half is the tensor's largest magnitude.
    """

    def __init__(self, low: Word, high: Word) -> None:
        self.low, self.high = low, high

    def __rshift__(self, places: int) -> _Tensor:
        return _Tensor(self.high, self.high) if places == 32 else NotImplemented


lanes.LOW_WORD[_Tensor] = lambda tensor: tensor.low


def _same(x: Any) -> Any:
    return x


def _stack(name: str, arithmetic: Any = stack_arithmetic) -> Any:
    return arithmetic.STACKS[name]


def _on_numbers(fast: Any, **names: Any) -> Any:
    """Patch `fast` so that its functions compute with the solver's floats, not with float32."""
    return patched(fast, number_of=number_of, bits_of=bits_of, wide=_same, **names)


def _kept(name: str, S: z3.BitVecRef) -> list[z3.BoolRef]:
    return [S >= 0, S <= INFINITY] if STATEMENTS[name].keeps_any else [S > 0, S < INFINITY]


def _prove(machine: Machine, premises: list[z3.BoolRef], goal: z3.BoolRef, words: Any, at: Numbers) -> Outcome:
    """Prove a goal for all inputs that the premises allow, or only for the input `at` if given."""
    premises = [*premises, *machine.definitions, *(word == number for word, number in zip(words, at, strict=False))]
    example = [] if at else [(word, _ONE if word.size() == 32 else 1) for word in words]
    return prove(premises, z3.And(goal, *machine.obligations), engines=("bitwuzla",), show=words, example=example)


def check_tensor(name: str, dtype: str, arithmetic: Any = stack_arithmetic, at: Numbers = ()) -> Outcome:
    """Prove the statement `TENSOR` for a stack and the type of a tensor."""
    sort, machine = SORTS[dtype], Machine()
    largest = z3.BitVec("largest", sort.ebits() + sort.sbits())
    number = z3.fpBVToFP(largest, sort)
    found = _stack(name, arithmetic).global_scale(machine.number(number))
    got = found.astype(DTYPES["float32"]).value if isinstance(found, Number) else machine.number(number).lift(found)
    want, kept = STATEMENTS[name].of_tensor(number), True
    if not STATEMENTS[name].keeps_any:
        kept = z3.And(z3.fpIsPositive(got), z3.Not(z3.fpIsZero(got)), z3.Not(z3.fpIsInf(got)))
    premises = [largest >= 0, z3.Not(z3.fpIsNaN(number))]
    return _prove(machine, premises, z3.And(got == want, kept), (largest,), at)


def check_scale(
    name: str, source: Any, arithmetic: Any = stack_arithmetic, fast: Any = by_stack, at: Numbers = ()
) -> Outcome:
    """Prove the statement `SCALE` for a stack and the type of a tensor."""
    machine, statement = Machine(), STATEMENTS[name]
    largest, kept = machine.word("largest"), machine.word("kept")
    narrow = partial(z3.fpFPToFP, z3.RNE())

    def narrowed(x: z3.FPRef) -> z3.FPRef:
        return x if source.name == "float32" else narrow(narrow(x, SORTS[source.name]), z3.Float32())

    with (
        _on_numbers(fast, make_narrowed=lambda source: lambda x: machine.number(narrowed(x.value))),
        patched(fast.as_float32, make_widen=lambda source: _same),
    ):
        scale_of = inspect.unwrap(fast.make_scale)(source, _stack(name, arithmetic))
        got = scale_of(largest, _Tensor(kept, kept)).value
    more = (narrowed,) if statement.in_type else ()
    found = statement.of_block(value_of(largest), value_of(kept), *more)
    rounded, code, fits = _e4m3(found)
    want = z3.If(code == 0, z3.BitVecVal(statement.for_zero, 8), code)
    want = z3.If(z3.fpIsNaN(found), z3.BitVecVal(tables.E4M3.nan or 0, 8), want)
    premises = [largest.value >= 0, largest.value < INFINITY, *_kept(name, kept.value), *rounded, fits]
    words = largest.value, kept.value
    return _prove(machine, premises, got == z3.ZeroExt(24, want), words, at)


def _e4m3(number: z3.FPRef) -> tuple[list[z3.BoolRef], z3.BitVecRef, z3.BoolRef]:
    """Return definitions, a symbolic code, and a condition.

    If the definitions hold, the condition says that the code is the E4M3 code of `number`.
    """
    y, code = z3.BitVec("found", 32), z3.BitVec("code", 8)
    one, random = z3.BitVecVal(tables.SCALE_BIAS, 8), z3.BitVecVal(0, tables.RANDOM_BITS)
    conversion = conversions.Conversion(tables.FLOATS["float32"], tables.E4M3, "rne", y, one, random)
    definitions = [*conversion.definitions, z3.fpBVToFP(y, z3.Float32()) == number]
    return definitions, code, conversion.gives("saturate", code)


def check_factor(name: str, arithmetic: Any = stack_arithmetic, fast: Any = by_stack, at: Numbers = ()) -> Outcome:
    """Prove the statement `FACTOR` for a stack."""
    machine = Machine()
    scale, kept, code = (machine.word(word) for word in ("scale", "kept", "code"))
    with _on_numbers(fast, **_tables(scale)), patched(by_factors, load=ON_DICTIONARIES["load"]):
        made, table = inspect.unwrap(fast.quantizing)(FLOAT32, _stack(name, arithmetic), False), dict[int, Any]()
        is_right = made.prepare(code, _Tensor(kept, kept), table, 0, 1).predicate
        (factor,) = made.at(table, 0, 1)
    want = STATEMENTS[name].factor(value_of(scale), value_of(kept))
    goal = z3.And(value_of(factor) == want, factor.value > 0, factor.value < INFINITY)
    words = scale.value, kept.value
    premises = [scale.value >= 0, scale.value < INFINITY, *_kept(name, kept.value), is_right]
    return _prove(machine, premises, goal, words, at)


def _tables(scale: Word) -> dict[str, Any]:
    """Return functions that replace those of the module `by_stack` and accept a symbolic scale.

    The replacements decode every scale code to the number `scale`, and keep a block's constants in
    a dictionary.
    """
    return {"_number_of_scale": lambda code: number_of(scale), **ON_DICTIONARIES}


def check_element(name: str, arithmetic: Any = stack_arithmetic, fast: Any = by_stack, at: Numbers = ()) -> Outcome:
    """Prove the statement `ELEMENT` for the functions of quantization and of fake quantization.

    x is a float32 number; other types are widened to float32 first.
    """
    machine, statement, stack = Machine(), STATEMENTS[name], _stack(name, arithmetic)
    x, factor = machine.word("x"), machine.word("factor")
    made = inspect.unwrap(fast.quantizing)
    with _on_numbers(fast, _value_of=lambda code, constants, random: code):
        got = [
            made(FLOAT32, stack, False).element(x, (factor,), 0),
            made(FLOAT32, stack, True).element(x, (0,) * 7 + (factor,), 0),
        ]
    operation = z3.fpDiv if statement.divides else z3.fpMul
    want = e2m1(operation(z3.RNE(), value_of(x), value_of(factor)), statement.zero_loses_sign)
    finite = [x.value & 0x7FFFFFFF < INFINITY, factor.value > 0, factor.value < INFINITY]
    words = x.value, factor.value
    goal = z3.And([code.value == want for code in got])
    return _prove(machine, finite, goal, words, at)


def check_reads(name: str, arithmetic: Any = stack_arithmetic, fast: Any = by_stack, at: Numbers = ()) -> Outcome:
    """Prove the statement `READS` for a stack."""
    machine, goals = Machine(), list[z3.BoolRef]()
    scale, kept, largest, code = (machine.word(word) for word in ("scale", "kept", "largest", "code"))
    with _on_numbers(fast, **_tables(scale)), patched(by_factors, load=ON_DICTIONARIES["load"]):
        made, table = inspect.unwrap(fast.decoding)(_stack(name, arithmetic)), dict[int, Any]()
        is_right = made.prepare(code, _Tensor(kept, largest), table, 0, 1).predicate
        constants, owed = made.at(table, 0, 1), len(machine.obligations)
        for element in range(16):
            got = made.element(machine.constant(element), constants, 0)
            size = tables.E2M1.value(element & 7)
            number = z3.fpNeg if element & 8 else _same
            want = STATEMENTS[name].reads(
                number(z3.FPVal(float(size), z3.Float32())), value_of(scale), value_of(kept), value_of(largest)
            )
            goals.append(z3.fpBVToFP(got.value, z3.Float32()) == want)
        del machine.obligations[owed:]  # shifting a sign to the top of a word overflows on purpose
    words = scale.value, kept.value, largest.value
    premises = [scale.value >= 0, scale.value < INFINITY, *_kept(name, kept.value), is_right]
    premises += [largest.value >= 0, largest.value < INFINITY]
    return _prove(machine, premises, z3.And(goals), words, at)


def check_number(fast: Any = by_stack) -> Outcome:
    """Check the statement `NUMBER` by running the function on every scale code that is not NaN."""

    def problems() -> Iterator[str]:
        for code in range(tables.E4M3.last + 1):
            if float(fast._number_of_scale(code)) != tables.E4M3.value(code):
                yield f"code {code:#x}"

    return outcome_of(problems(), "sweep", lambda: f"{tables.E4M3.last + 1} codes")


def check_narrowed(source: Any, fast: Any = by_stack) -> Outcome:
    """Prove the statement `NARROWED` for the type of a tensor."""
    machine, sort = Machine(), SORTS[source.name]
    x = machine.word("x")
    with _on_numbers(fast):
        got = inspect.unwrap(fast.make_narrowed)(source)(number_of(x)).value
    want = value_of(x)
    if source.name != "float32":
        want = z3.fpFPToFP(z3.RNE(), z3.fpFPToFP(z3.RNE(), want, sort), z3.Float32())
    return _prove(machine, [x.value >= 0, x.value < INFINITY], got == want, (x.value,), ())


ENVIRONMENT = "float32 operations of compiled code follow IEEE 754, round to nearest even and keep subnormals"
NUMPY = "operations of numpy and ml_dtypes on single numbers follow IEEE 754 and round to nearest even"
KEPT = "the global scale is any float32 number or infinity, with a sign bit of 0"
KEPT_FINITE = f"{KEPT}, except zero and infinity if the stack never stores them (stacks/tensor)"
OF_SCALE = "the scale is any finite float32 number whose sign bit is 0, which includes every E4M3 scale"
LARGEST = "the block's largest magnitude is any finite float32 number whose sign bit is 0"
WIDER = "numbers of narrower types are first widened to float32, exactly (magic/widen)"


def theorems() -> Iterator[Theorem]:
    for name, stack in stack_arithmetic.STACKS.items():
        kept = KEPT if STATEMENTS[name].keeps_any else KEPT_FINITE
        in_types = stack.block_scale_in is not None
        narrower = ("bfloat16", "float16") if in_types else ()
        for dtype in ("float32", *narrower):
            yield Theorem(
                name=f"stacks/tensor/{name}/{dtype}",
                statement=TENSOR,
                kernels=(f"{name}.global_scale",),
                check=partial(check_tensor, name, dtype),
                hypotheses=(f"the tensor's largest magnitude is any {dtype} of sign bit 0, infinity included", NUMPY),
                functions=(stack.global_scale,),
            )
            source = FLOATS[dtype]
            all_sources = [source] if in_types else [FLOATS[each] for each in DTYPES]
            yield Theorem(
                name=f"stacks/scale/{name}/{dtype}",
                statement=SCALE,
                kernels=("stack_scale", f"{name}.block_scale"),
                check=partial(check_scale, name, source),
                hypotheses=(LARGEST, kept, WIDER, ENVIRONMENT),
                functions=tuple(by_stack.make_scale(each, stack) for each in all_sources),
            )
        made = by_stack.quantizing(FLOAT32, stack, False)
        yield Theorem(
            name=f"stacks/factor/{name}",
            statement=FACTOR,
            kernels=(made.prepare.__name__, f"{name}.factor"),
            check=partial(check_factor, name),
            hypotheses=(OF_SCALE, kept, ENVIRONMENT),
            functions=(made.prepare, made.at),
        )
        of_codes = [by_stack.quantizing(FLOATS[each], stack, False).element for each in DTYPES]
        yield Theorem(
            name=f"stacks/element/{name}",
            statement=ELEMENT,
            kernels=("code_of", "to_code", "to_value"),
            check=partial(check_element, name),
            hypotheses=(
                "x is any finite float32 number, and the factor is any positive finite float32 number",
                WIDER,
                ENVIRONMENT,
            ),
            functions=(*of_codes, by_stack.quantizing(FLOAT32, stack, True).element),
        )
        read = by_stack.decoding(stack)
        yield Theorem(
            name=f"stacks/reads/{name}",
            statement=READS,
            kernels=(read.prepare.__name__, f"{name}.decoded"),
            check=partial(check_reads, name),
            hypotheses=(
                "code is any E2M1 code",
                OF_SCALE,
                kept,
                "the tensor's largest magnitude is any finite float32 number whose sign bit is 0",
                ENVIRONMENT,
            ),
            functions=(read.prepare, read.element),
        )
    yield Theorem(
        name="stacks/number",
        statement=NUMBER,
        kernels=("_number_of_scale",),
        check=check_number,
        hypotheses=("code is any E4M3 code of a number that is not negative",),
        functions=(by_stack._number_of_scale,),
    )
    for dtype in DTYPES:
        narrowed = by_stack.make_narrowed(FLOATS[dtype])
        yield Theorem(
            name=f"stacks/narrowed/{dtype}",
            statement=NARROWED,
            kernels=(narrowed.__name__,),
            check=partial(check_narrowed, FLOATS[dtype]),
            hypotheses=("x is any finite float32 number whose sign bit is 0", ENVIRONMENT),
            functions=(narrowed,),
        )

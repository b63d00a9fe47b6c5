"""Translation validation for CUDA, without a GPU: execute the PTX of a kernel on bit-vectors.

`mxnum.prove.ptx` executes the PTX. The proof treats the float operations of
`mxnum.engine.cuda.scaled` as uninterpreted functions. It assumes only that equal operands give
equal results, and that additions and multiplications commute. So a proof succeeds only if the PTX
has the same float operations as the Python function. The proof trusts that ptxas and the device
execute the PTX correctly.

numba-cuda is an optional dependency, which is imported only when something is compiled.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import z3

from mxnum.engine.cuda import scaled
from mxnum.engine.machine import lanes
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.modes import ScaleRule
from mxnum.prove.execution import Execution, UnsupportedCode
from mxnum.prove.ptx import Floats, execute
from mxnum.prove.sym import Sym, run
from proofs.machines.offline import offline
from proofs.machines.solve import prove
from proofs.machines.translation import Family, Kernel, families, theorem
from proofs.theorem import Outcome, Theorem

STATEMENT = (
    "For every input, the PTX that numba-cuda makes of the function for compute capability 9.0 returns what the Python "
    "function object returns. Its arguments are 32-bit lanes or 64-bit words, as in CUDA kernels."
)
COMPUTE_CAPABILITY = (9, 0)
#: Families of kernels that only tests check, because no solver answered within minutes for them
#: or for similar families.
_UNANSWERED = (
    "encode_over/sr/float64/", "float_scale/nearest/float64/", "float_scale/rceil/float64/",
)  # fmt: skip


def theorems() -> list[Theorem]:
    """Return one theorem for each family of kernels, and one for each function of `scaled`.

    Families in `_UNANSWERED` have no theorem. Raise ModuleNotFoundError if numba-cuda is missing.
    """
    if importlib.util.find_spec("numba_cuda") is None:
        raise ModuleNotFoundError('The PTX proofs need numba-cuda, which comes with: pip install -e ".[cuda]"')
    found = [
        theorem(family if _in_fast_tier(family.name) else replace(family, tier="full"), "ptx", STATEMENT, machine)
        for family in map(_as_run, families())
        if not family.name.startswith(_UNANSWERED)
    ]
    return [*found, *_scaled_theorems()]


def _as_run(family: Family) -> Family:
    """Return the family with the argument types that `mxnum.engine.cuda.functions` passes."""
    return replace(family, kernels=tuple(_with_words(kernel) for kernel in family.kernels))


def _with_words(kernel: Kernel) -> Kernel:
    if kernel.word == 64:
        return kernel.plain()
    return replace(kernel, arguments=tuple(replace(argument, type="lane") for argument in kernel.arguments))


def _in_fast_tier(name: str) -> bool:
    """Return True if the PTX theorem of a family is in the family's tier, not in the full tier."""
    return not name.endswith("/ieee") and (not name.startswith("shared_scale/") or name.endswith("/e4m3"))


def machine(function: Callable[..., Any], types: tuple[str, ...], arguments: Sequence[z3.BitVecRef]) -> Execution:
    """Compile a function for the given numba types, and execute its PTX on the arguments."""
    return execute(compile_to_ptx(function, types), arguments)


def compile_to_ptx(function: Callable[..., Any], types: tuple[str, ...]) -> str:
    """Return the PTX of a function, compiled as a device function with the C calling convention.

    Arguments of the type "lane" (32-bit lanes) are passed as int32.
    """
    from numba import cuda
    from numba.cuda import types as cuda_types

    from mxnum.engine.cuda import driver  # noqa: F401  (registers how float operations compile)
    from mxnum.engine.machine.jit import register

    # `register` also registers the functions that `function` calls. numba-cuda finds these
    # functions and `select` in numba's registry.
    register(function)
    if "lane" in types:
        function, types = _on_lanes(function), ("int32",) * len(types)
    with offline(COMPUTE_CAPABILITY):
        text, returned = cuda.compile(
            function,
            tuple(getattr(cuda_types, name) for name in types),
            device=True,
            abi="c",
            abi_info={"abi_name": "kernel"},
            output="ptx",
            cc=COMPUTE_CAPABILITY,
        )
    if not (isinstance(returned, cuda_types.Integer) and returned.signed):
        raise UnsupportedCode(f"the compiled function returns {returned}, not a signed integer")
    return str(text)


def _on_lanes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that converts its int32 arguments to lanes and calls `function`."""
    from mxnum.engine.machine.lanes import integer, lane

    def on_one(a: Any) -> Any:
        return integer(function(lane(a)))

    def on_two(a: Any, b: Any) -> Any:
        return integer(function(lane(a), lane(b)))

    def on_three(a: Any, b: Any, c: Any) -> Any:
        return integer(function(lane(a), lane(b), lane(c)))

    return (on_one, on_two, on_three)[function.__code__.co_argcount - 1]


# --- The formulation of CUDA kernels, which computes with floats

SCALED = (
    "For every input, the PTX that numba-cuda makes of the function for compute capability 9.0 returns what the Python "
    "function object returns, whatever results the float operations have. The proof assumes only that a float "
    "operation gives equal results for equal operands, and that additions and multiplications commute."
)


def _scaled_theorems() -> list[Theorem]:
    found = []
    for name, function, arguments in _scaled_functions():
        found.append(
            Theorem(
                name=f"ptx/scaled/{name}",
                statement=SCALED,
                kernels=(function.__name__,),
                check=partial(_check_scaled, function, arguments),
                hypotheses=(f"any 32-bit integers as arguments ({', '.join(arguments)})",),
                functions=(function,),
            )
        )
    return found


def _scaled_functions() -> Iterator[tuple[str, Callable[..., Any], tuple[str, ...]]]:
    for name in scaled.ELEMENTS:
        for source in (FLOATS[source] for source in scaled.SOURCES):
            yield f"code/{source.name}/{name}", scaled.make_code(source, ELEMENTS[name]), ("x", "down")
        yield f"value/{name}", scaled.make_value(ELEMENTS[name]), ("x", "down", "up")
    for name, element in ELEMENTS.items():
        yield f"decode/{name}", scaled.make_decoded(element), ("code", "up")
        if scaled.covers_scale(FLOATS["float32"], element):
            for rule in ScaleRule:
                yield f"scale/{name}/{rule}", scaled.make_scale(FLOATS["float32"], element, rule), ("amax",)
    yield "up", scaled.up, ("scale",)
    yield "down", scaled.down, ("scale",)


def _check_scaled(function: Callable[..., Any], arguments: tuple[str, ...]) -> Outcome:
    started = time.perf_counter()
    symbols = [z3.BitVec(name, 32) for name in arguments]
    floats = Floats()
    lanes.FLOAT_ARITHMETIC[Sym] = floats.of_function
    try:
        expected, _ = run(function, *symbols)
        compiled = execute(compile_to_ptx(function, ("lane",) * len(symbols)), symbols, floats)
    except UnsupportedCode as problem:
        return Outcome("error", "-", time.perf_counter() - started, f"not understood: {problem}")
    return prove(floats.congruent, compiled.result == expected, engines=("bitwuzla",), show=symbols)

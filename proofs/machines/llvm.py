"""Translation validation of the CPU: numba's final LLVM IR, proved equal to its source.

The module is taken after all of LLVM's optimisation, so that this covers numba's front end, its
inlining and LLVM's middle end. What the back end makes of the IR is believed, not proved; the array
loops are tested, not proved: they inline the same kernels with the same argument types, but LLVM
optimises each inlined copy anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import z3

from mxnum.prove.execution import Execution, UnsupportedCode
from mxnum.prove.ir import execute, parse
from proofs.machines.translation import families, plain_families, theorem
from proofs.theorem import Theorem

STATEMENT = (
    "The optimised LLVM IR that numba makes of the kernel, called with the types named below, returns for every input "
    "what the Python function object returns, and no undefined behaviour or poison takes part in it."
)
#: Families left to tests: no solver answered for them, or for similar ones, within minutes.
_UNANSWERED = (
    "encode_over/sr/",
    *(f"float_scale/{rule}/{source}/" for rule in ("nearest", "rceil") for source in ("float32", "float64")),
)


def theorems() -> list[Theorem]:
    """Return theorems about kernels as loops call them, and on Python ints for float32."""
    answered = [family for family in families() if not family.name.startswith(_UNANSWERED)]
    return [theorem(family, "llvm", STATEMENT, machine) for family in (*answered, *plain_families())]


def machine(function: Callable[..., Any], types: tuple[str, ...], arguments: Sequence[z3.BitVecRef]) -> Execution:
    """Compile a function for these numba types, and execute it."""
    return execute(parse(*compile_to_ir(function, types)), arguments)


def compiled(function: Callable[..., Any], types: tuple[str, ...]) -> Any:
    """Compile a dialect function, or one that calls some, by itself for these numba types."""
    import numba

    from mxnum.engine.machine.jit import register

    return numba.njit(tuple(getattr(numba.types, name) for name in types))(register(function))


def compile_to_ir(function: Callable[..., Any], types: tuple[str, ...]) -> tuple[str, str]:
    """Return the final IR of a dialect function's module, and the name of the function in it."""
    import numba

    (overload,) = compiled(function, types).overloads.values()
    returned = overload.signature.return_type
    if not (isinstance(returned, numba.types.Integer) and returned.signed):
        raise UnsupportedCode(f"the compiled function returns {returned}, not a signed integer")
    return overload.library.get_llvm_str(), overload.fndesc.mangled_name

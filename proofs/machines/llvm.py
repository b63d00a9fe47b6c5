"""Translation validation for the CPU: prove numba's final LLVM IR equal to the Python function.

The LLVM module is read after all optimisation passes, so the proofs cover numba's front end, its
inlining and LLVM's middle end. The proofs trust LLVM's translation from IR to machine code. Array
loops inline the proved kernels, with the same argument types. LLVM optimises each inlined copy
again, so no proof covers array loops; tests check them.
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
    "For every input, the optimised LLVM IR that numba makes of the kernel, for the argument types named below, "
    "returns what the Python function object returns. No undefined behaviour occurs, and no poison value affects the "
    "result."
)
#: Families of kernels without a proof, which only tests check. For each of these families or for a
#: similar one, no solver answered within minutes.
_UNANSWERED = (
    "encode_over/sr/",
    *(f"float_scale/{rule}/{source}/" for rule in ("nearest", "rceil") for source in ("float32", "float64")),
)


def theorems() -> list[Theorem]:
    """Return theorems about kernels that array loops call, or that Python code calls with ints."""
    answered = [family for family in families() if not family.name.startswith(_UNANSWERED)]
    return [theorem(family, "llvm", STATEMENT, machine) for family in (*answered, *plain_families())]


def machine(function: Callable[..., Any], types: tuple[str, ...], arguments: Sequence[z3.BitVecRef]) -> Execution:
    """Compile a function for the given numba types, and execute its IR on the arguments."""
    return execute(parse(*compile_to_ir(function, types)), arguments)


def compiled(function: Callable[..., Any], types: tuple[str, ...]) -> Any:
    """Compile a function by itself, not as part of a loop, for the given numba types."""
    import numba

    from mxnum.engine.machine.jit import register

    return numba.njit(tuple(getattr(numba.types, name) for name in types))(register(function))


def compile_to_ir(function: Callable[..., Any], types: tuple[str, ...]) -> tuple[str, str]:
    """Return the final LLVM IR of a function, and the function's name in the IR."""
    import numba

    (overload,) = compiled(function, types).overloads.values()
    returned = overload.signature.return_type
    if not (isinstance(returned, numba.types.Integer) and returned.signed):
        raise UnsupportedCode(f"the compiled function returns {returned}, not a signed integer")
    return overload.library.get_llvm_str(), overload.fndesc.mangled_name

"""Compiling the dialect with numba: how `select` and nested dialect calls become machine code."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import types
from numba.core.typing.templates import infer, infer_global, make_intrinsic_template
from numba.extending import intrinsic, overload, register_jitable

from mxnum.definition import word
from mxnum.engine.machine import loop_cache

#: Options of what compiled code calls: it is never called from C.
INLINED = {"forceinline": True, "no_cfunc_wrapper": True}
#: Of what has registers of its own.
NOT_INLINED = {"no_cfunc_wrapper": True, "error_model": "numpy", "forceinline": False}

_registered: set[Callable[..., Any]] = set()


@overload(word.select, jit_options=INLINED)
def _compile_select(condition, if_true, if_false):
    def choose(condition, if_true, if_false):
        return if_true if condition else if_false

    return choose


def _dialect_calls(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The dialect functions that a function calls: from its closure and from its module's globals."""
    code = function.__code__
    for cell in function.__closure__ or ():
        if word.is_dialect(cell.cell_contents):
            yield cell.cell_contents
    for name in code.co_names:
        if word.is_dialect(function.__globals__.get(name)):
            yield function.__globals__[name]


def register(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a dialect function callable from compiled code, with everything it calls; the function itself comes back.

    It stays the plain Python object: numba compiles that very object wherever compiled code calls it.
    """
    if function not in _registered:
        _registered.add(function)
        for called in _dialect_calls(function):
            register(called)
        if word.is_dialect(function):
            register_jitable(**(NOT_INLINED if "not_inlined" in function.__dict__ else INLINED))(function)
    return function


def compile_directly(
    function: Callable[..., Any], operation: Any, applies: Callable[..., bool] = lambda *arguments: True
) -> None:
    """For the CPU: where `applies` says so of the argument types, calls become what an intrinsic makes of them.

    Overloads say the same for every machine. But each is a function that is compiled for each combination of types,
    which took half of a first call without compiled code on disk.
    """

    def definition(context, *arguments):
        return operation._defn(context, *arguments) if applies(*arguments) else None

    definition.__dict__["__signature__"] = inspect.signature(operation._defn)
    template = make_intrinsic_template(
        function, definition, function.__name__, prefer_literal=operation._prefer_literal, kwargs={"target": "cpu"}
    )
    infer(template)
    infer_global(function, types.Function(template))


def compile_everywhere(
    function: Callable[..., Any], operation: Any, applies: Callable[..., bool] = lambda *arguments: True, **options: Any
) -> None:
    """The same for every machine: other targets look for overloads."""
    compile_directly(function, operation, applies)
    given = ", ".join(inspect.signature(function).parameters)
    call = eval(f"lambda {given}: operation({given})", {"operation": operation})
    choose = eval(f"lambda {given}: call if applies({given}) else None", {"call": call, "applies": applies})
    overload(function, jit_options=INLINED, **options)(choose)


@cache
def has_feature(name: str) -> bool:
    """Whether the processor that is compiled for has what LLVM calls so."""
    if numba.config.CPU_NAME or numba.config.CPU_FEATURES:
        return f"+{name}" in (numba.config.CPU_FEATURES or "").split(",")
    try:
        return bool(llvm.get_host_cpu_features().get(name, False))
    except RuntimeError:  # LLVM does not know
        return False


def not_inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a dialect function that calls `forbid_inlining` first: the innermost loops of a loop of many arrays.

    Where it is inlined, what its innermost loop needs is fetched from memory again and again.
    """
    function.__dict__["not_inlined"] = True
    loop_cache.name_by_content(function)  # its code has a name in every loop that calls it
    return word.dialect(function)


def forbid_inlining() -> None:
    """Compiled, the function that calls this is not inlined."""


@intrinsic
def _forbid_inlining(context):
    def generate(target, builder, signature, arguments):
        builder.function.attributes.add("noinline")
        return target.get_dummy_value()

    return types.none(), generate


@overload(forbid_inlining, inline="always")
def _compile_forbid_inlining():
    return lambda: _forbid_inlining()


def compile_loop(function: Callable[..., Any]) -> Any:
    """A loop over arrays that calls dialect functions, compiled on first use and cached on disk."""
    loop_cache.name_by_content(function)
    loop = numba.njit(error_model="numpy", nogil=True, no_cfunc_wrapper=True)(function)
    if not numba.config.DISABLE_JIT:
        loop_cache.keep(loop, before_compiling=_begin)
    return loop


def _begin(function: Callable[..., Any]) -> None:
    """What compiling begins with."""
    logging.getLogger("mxnum").info("Compiling loops for this machine: a second or so for each, once; disk keeps them.")
    register(function)

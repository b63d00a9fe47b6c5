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

#: Options of functions that only compiled code calls. Nothing calls them from C.
INLINED = {"forceinline": True, "no_cfunc_wrapper": True}
#: Options of functions that are not inlined, so that they have all registers to themselves.
NOT_INLINED = {"no_cfunc_wrapper": True, "error_model": "numpy", "forceinline": False}

_registered: set[Callable[..., Any]] = set()


@overload(word.select, jit_options=INLINED)
def _compile_select(condition, if_true, if_false):
    def choose(condition, if_true, if_false):
        return if_true if condition else if_false

    return choose


def _dialect_calls(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield the dialect functions that a function calls.

    They are in its closure and in its module's globals.
    """
    code = function.__code__
    for cell in function.__closure__ or ():
        if word.is_dialect(cell.cell_contents):
            yield cell.cell_contents
    for name in code.co_names:
        if word.is_dialect(function.__globals__.get(name)):
            yield function.__globals__[name]


def register(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a dialect function callable from compiled code, with all that it calls.

    Returns the function itself. It stays a plain Python function; numba compiles it wherever
    compiled code calls it.
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
    """Compile calls of `function` on the CPU as the intrinsic `operation`.

    `applies` says for which argument types.

    numba's overloads do the same for every target. But numba compiles each overload for each
    combination of types, which took half of a first call without compiled code on disk.
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
    """Compile calls of `function` as the intrinsic `operation` on every target.

    The CPU uses `compile_directly`. Other targets look for overloads.
    """
    compile_directly(function, operation, applies)
    given = ", ".join(inspect.signature(function).parameters)
    call = eval(f"lambda {given}: operation({given})", {"operation": operation})
    choose = eval(f"lambda {given}: call if applies({given}) else None", {"call": call, "applies": applies})
    overload(function, jit_options=INLINED, **options)(choose)


@cache
def has_feature(name: str) -> bool:
    """Return True if the target processor has the feature that LLVM calls `name`."""
    if numba.config.CPU_NAME or numba.config.CPU_FEATURES:
        return f"+{name}" in (numba.config.CPU_FEATURES or "").split(",")
    try:
        return bool(llvm.get_host_cpu_features().get(name, False))
    except RuntimeError:  # LLVM does not know the features of this processor.
        return False


def not_inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a dialect function as not inlined.

    Its first statement must be a call of `forbid_inlining`.

    The innermost loops of a loop over many arrays use this. If LLVM inlined them, their values
    would not fit in registers, and each iteration would load them from memory again.
    """
    function.__dict__["not_inlined"] = True
    loop_cache.name_by_content(function)  # Its machine code has a symbol of its own in each loop that calls it.
    return word.dialect(function)


def forbid_inlining() -> None:
    """Stop LLVM from inlining the function that calls this; without compilation, do nothing."""


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
    """Return a compiled version of a loop over arrays that may call dialect functions.

    The loop is compiled on its first call and cached on disk.
    """
    loop_cache.name_by_content(function)
    loop = numba.njit(error_model="numpy", nogil=True, no_cfunc_wrapper=True)(function)
    if not numba.config.DISABLE_JIT:
        loop_cache.keep(loop, before_compiling=_begin)
    return loop


def _begin(function: Callable[..., Any]) -> None:
    """Make a loop's dialect functions callable, and log that compiling takes time."""
    logging.getLogger("mxnum").info("Compiling loops for this machine: a second or so for each, once; disk keeps them.")
    register(function)

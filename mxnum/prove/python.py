"""Readers of numba functions, and of functions in the Python subset of `mxnum.definition.word`."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import z3

from mxnum.prove import clang_ir
from mxnum.prove.circuit import Answer, Circuit
from mxnum.prove.execution import UnsupportedCode
from mxnum.prove.sym import Sym

WORD = 64


def read_dialect(function: Callable[..., Any]) -> Circuit:
    """Return the circuit of a function in the subset of Python that `mxnum.definition` uses.

    The circuit's words have 64 bits.
    """
    name = getattr(function, "__name__", "function")
    parameters = list(inspect.signature(function).parameters)

    def run(values: Mapping[str, z3.BitVecRef]) -> Answer:
        obligations: list[z3.BoolRef] = []
        try:
            result = function(*(Sym(values[each], obligations) for each in parameters))
        except (TypeError, AttributeError) as problem:
            frame = traceback.extract_tb(problem.__traceback__)
            place = next((f for f in reversed(frame) if "mxnum/prove" not in f.filename.replace("\\", "/")), frame[-1])
            said = str(problem).rstrip(".")
            raise UnsupportedCode(
                f"Cannot read {name!r}, line {place.lineno} of {place.filename}: {said}."
            ) from problem
        if isinstance(result, int):
            return Answer({"return": z3.BitVecVal(result, WORD)}, obligations)
        if not isinstance(result, Sym):
            raise UnsupportedCode(f"Cannot read {name!r}: it returns {type(result).__name__} instead of one integer.")
        return Answer({"return": result.value}, obligations)

    notes = ("The claim also says that every integer fits in 64 bits.",)
    inputs = dict.fromkeys(parameters, WORD)
    return Circuit(f"Python function {name}", inputs, {"return": WORD}, run, notes, by_order=True)


def read_numba(dispatcher: Any) -> Circuit:
    """Return the circuit of a function that numba compiles.

    The argument types are the types of the first signature that numba has compiled. If there is no
    compiled signature, all arguments have the type int64.
    """
    name, parameters = dispatcher.py_func.__name__, list(inspect.signature(dispatcher.py_func).parameters)
    code = dispatcher.py_func.__code__
    unread = f"Cannot read {name!r}, line {code.co_firstlineno} of {code.co_filename}"
    if not dispatcher.signatures:
        dispatcher.compile(f"({', '.join(['int64'] * len(parameters))},)")
    overload = dispatcher.overloads[dispatcher.signatures[0]]
    returned = overload.signature.return_type
    width = getattr(returned, "bitwidth", 8 if str(returned) == "bool" else None)
    if width is None:
        raise UnsupportedCode(f"{unread}: it returns {returned} instead of one number.")
    text = overload.library.get_llvm_str()
    try:
        parsed = clang_ir.parse(text, overload.fndesc.mangled_name)
    except UnsupportedCode as problem:
        raise UnsupportedCode(f"{unread}: {problem}.") from problem
    taken = parsed.parameters[2:]  # skip the addresses of the result and of the exception
    if len(taken) != len(parameters):
        raise UnsupportedCode(f"{unread}: its arguments must be numbers, not arrays or tuples.")

    def run(values: Mapping[str, z3.BitVecRef]) -> Answer:
        slot = [z3.FreshConst(z3.BitVecSort(8), "unwritten") for _ in range(width // 8)]
        arguments = [values[each] for each in parameters]
        try:
            result = clang_ir.execute(parsed, [slot, [], *arguments])
        except UnsupportedCode as problem:
            raise UnsupportedCode(f"{unread}, as numba compiles it: {problem}.") from problem
        held = clang_ir.joined(result.arrays[parsed.parameters[0].name])
        return Answer({"return": held}, [*result.obligations, result.value == 0], result.premises)

    inputs = {each: parameter.width for each, parameter in zip(parameters, taken, strict=True)}
    types = ", ".join(map(str, overload.signature.args))
    notes = (
        f"The proof is about the LLVM IR that numba makes for ({types}). "
        "The claim also says that no input raises an exception.",
    )
    return Circuit(f"numba function {name}", inputs, {"return": width}, run, notes, by_order=True)

"""Compiled loops on disk: what names them, when they are stale, and how they are loaded without numba's compiler."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from numba import types
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

#: From the first numba version whose compiled loops were loaded so in tests to the first for which that was not tried.
TRIED = (0, 61), (0, 69)


def name_by_content(function: Callable[..., Any]) -> None:
    """Give a function a name of its own, by what it and all that it closes over are.

    numba names machine code by the function's name, the types of its arguments and a number that it counts up in each
    process. Two loops of one factory, compiled by two processes, can so have the same name, and a third process that
    loads both from disk would call one for the other. To be called before numba sees the function.
    """
    if "content" not in function.__dict__:
        content = hashlib.sha256(_made_of(function)).hexdigest()[:32]
        function.__dict__["content"] = content
        function.__qualname__ += f"_{content}"


def _made_of(function: Callable[..., Any]) -> bytes:
    try:
        return repr(description(function)).encode()
    except (TypeError, RecursionError):  # closures as numba tells them apart
        cells: bytes = dumps(tuple(cell.cell_contents for cell in function.__closure__ or ()))
        return repr(_of_code(function.__code__)).encode() + cells


def _of_code(code: CodeType) -> tuple[Any, ...]:
    """Code with its constants, of whatever types."""
    constants = tuple(_of_code(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts)
    return code.co_code, code.co_names, code.co_freevars, constants


def keep(loop: Any, before_compiling: Callable[[Callable[..., Any]], object]) -> None:
    """Keep what a loop is compiled to on disk. Compiling begins with a call of `before_compiling` for its function.

    A loop that is found there needs nothing but the names of numba's run-time functions. numba would load its library
    of functions, SciPy and extensions first, which takes most of a second process's first call. They are loaded when
    something is compiled, by whomever.
    """
    try:
        loop._cache = _Cache(loop.py_func, before_compiling)
    except RuntimeError:  # numba finds no folder that it may write to
        before_compiling(loop.py_func)
        return
    if _is_tried():
        loop._compilation_chain_init_hook = _nothing  # asks for extensions, as compiling does again
        loop.typeof_pyval = partial(_type_of, loop)


class _Cache(FunctionCache):  # type: ignore[misc]
    """numba's own, but an entry also expires when anything that compiled code is made of has changed.

    numba looks at the file of the loop and at its closure; what is reached through module globals (`select`, Philox)
    would change unnoticed.
    """

    def __init__(self, function: Callable[..., Any], before_compiling: Callable[[Callable[..., Any]], object]) -> None:
        super().__init__(function)
        self._before_compiling = before_compiling
        self._cache_file._source_stamp = (self._impl.locator.get_source_stamp(), source_hash())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What was compiled for a signature, or None."""
        found = self._load_alone(sig, target_context) if _is_tried() else None
        if found is None:
            self._before_compiling(self._py_func)
            found = super().load_overload(sig, target_context)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store what was compiled; where that cannot be, the next process compiles it again."""
        with suppress(OSError):
            super().save_overload(sig, data)

    def _load_alone(self, sig: Any, target_context: Any) -> Any:
        try:
            _define_runtime_functions()
            return self._load_overload(sig, target_context)
        except Exception:  # the plain way may do, or has the better message
            return None

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return sig, codegen.magic_tuple(), self._py_func.__dict__["content"]


def _is_tried() -> bool:
    return bool(TRIED[0] <= numba.version_info.short < TRIED[1])


def _nothing() -> None:
    pass


@cache
def _define_runtime_functions() -> None:
    """Tell the linker where numba's run-time functions are, as numba does when it sets its compiler up."""
    from numba.core.runtime import _nrt_python

    for name, address in _nrt_python.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def _type_of(loop: Any, value: Any) -> Any:
    """What numba takes an argument for; numba itself loads `numpy.ma` to ask whether an array is masked."""
    if type(value) is not np.ndarray:
        return type(loop).typeof_pyval(loop, value)
    from numba.np.numpy_support import from_dtype, map_layout

    found = types.Array(from_dtype(value.dtype), value.ndim, map_layout(value), readonly=not value.flags.writeable)
    loop._types_active_call.add(found)
    return found


def description(value: Any) -> Any:
    """A function with its closure as nested tuples of plain values, alike in every process; TypeError if it has others.

    numba pickles a closure instead, as is done here with those. That tells code that Python has just compiled from the
    same code as Python has it in its own files, so that a second process would compile all loops again; and intrinsics
    from themselves.
    """
    kind = type(value)
    name = kind.__module__, kind.__qualname__
    if value is None or value is ... or kind in (bool, int, float, str, bytes):
        return name, value
    if isinstance(value, type):
        return name, value.__module__, value.__qualname__
    if isinstance(value, Enum):
        return name, value.name
    if isinstance(value, tuple):
        return name, tuple(description(item) for item in value)
    if dataclasses.is_dataclass(value):
        return name, tuple((field.name, description(getattr(value, field.name))) for field in dataclasses.fields(value))
    if isinstance(value, CodeType):
        return name, value.co_code, value.co_names, value.co_freevars, description(value.co_consts)
    if isinstance(value, FunctionType):
        cells = tuple(description(cell.cell_contents) for cell in value.__closure__ or ())
        defaults = description(value.__defaults__)
        return name, value.__module__, value.__qualname__, description(value.__code__), defaults, cells
    if hasattr(value, "_defn"):  # an intrinsic
        return name, description(value._defn)
    raise TypeError(f"{kind} in a closure")


@cache
def source_hash() -> str:
    """A hash over the sources of the package that compiled code depends on."""
    package = Path(__file__).parents[2]
    files = [path for name in ("*", "memory/*", "definition/*", "engine/**/*") for path in package.glob(f"{name}.py")]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()

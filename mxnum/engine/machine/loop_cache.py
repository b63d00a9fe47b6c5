"""The cache of compiled loops on disk: unique names, storing, loading and expiry."""

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

#: The tested numba versions: from `TRIED[0]` up to, but not including, `TRIED[1]`. With any other
#: version, loading a loop also loads numba's compiler.
TRIED = (0, 61), (0, 69)


def name_by_content(function: Callable[..., Any]) -> None:
    """Make the name of a function unique by adding a hash of its code and closure.

    Rename the function before you pass it to numba.

    numba names machine code by the function's name, the types of its arguments, and a counter that
    starts anew in each process. So two processes can give the same name to different loops that
    come from the same factory function. A third process that loads both loops from disk would call
    the wrong loop.
    """
    if "content" not in function.__dict__:
        content = hashlib.sha256(_made_of(function)).hexdigest()[:32]
        function.__dict__["content"] = content
        function.__qualname__ += f"_{content}"


def _made_of(function: Callable[..., Any]) -> bytes:
    try:
        return repr(description(function)).encode()
    except (TypeError, RecursionError):  # Fallback: pickle the closure, as numba does.
        cells: bytes = dumps(tuple(cell.cell_contents for cell in function.__closure__ or ()))
        return repr(_of_code(function.__code__)).encode() + cells


def _of_code(code: CodeType) -> tuple[Any, ...]:
    """Return the bytecode, names and constants of a code object and of the code nested in it."""
    constants = tuple(_of_code(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts)
    return code.co_code, code.co_names, code.co_freevars, constants


def keep(loop: Any, before_compiling: Callable[[Callable[..., Any]], object]) -> None:
    """Make a loop store its machine code on disk, and load it without numba's compiler.

    `before_compiling` is called with the loop's Python function before numba compiles it.

    A loop loaded from disk needs only the addresses of numba's run-time functions. By default,
    numba also imports its function library, SciPy and extensions. In a process that finds its loops
    on disk, these imports take most of the time of the first call. `keep` therefore delays them
    until numba compiles something.
    """
    try:
        loop._cache = _Cache(loop.py_func, before_compiling)
    except RuntimeError:  # There is no folder to which numba may write.
        before_compiling(loop.py_func)
        return
    if _is_tried():
        # Skip numba's import of extensions: a loaded loop needs no extensions, and compiling
        # imports them anyway.
        loop._compilation_chain_init_hook = _nothing
        loop.typeof_pyval = partial(_type_of, loop)


class _Cache(FunctionCache):  # type: ignore[misc]
    """numba's cache, in which an entry also expires when `source_hash` changes.

    By itself, numba checks only the loop's closure and the file that defines the loop. It would not
    notice a change of a function that loops call through module globals, such as `select`.
    """

    def __init__(self, function: Callable[..., Any], before_compiling: Callable[[Callable[..., Any]], object]) -> None:
        super().__init__(function)
        self._before_compiling = before_compiling
        self._cache_file._source_stamp = (self._impl.locator.get_source_stamp(), source_hash())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled loop for a signature, or None if the disk does not hold this loop."""
        found = self._load_alone(sig, target_context) if _is_tried() else None
        if found is None:
            self._before_compiling(self._py_func)
            found = super().load_overload(sig, target_context)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store a compiled loop on disk.

        If storing fails, the next process compiles the loop again.
        """
        with suppress(OSError):
            super().save_overload(sig, data)

    def _load_alone(self, sig: Any, target_context: Any) -> Any:
        try:
            _define_runtime_functions()
            return self._load_overload(sig, target_context)
        except Exception:  # Fallback: numba's own loader may succeed, or raise a clearer error.
            return None

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return sig, codegen.magic_tuple(), self._py_func.__dict__["content"]


def _is_tried() -> bool:
    return bool(TRIED[0] <= numba.version_info.short < TRIED[1])


def _nothing() -> None:
    pass


@cache
def _define_runtime_functions() -> None:
    """Make the addresses of numba's run-time functions known to the linker.

    Without this call, the linker knows these addresses only after numba sets up its compiler.
    """
    from numba.core.runtime import _nrt_python

    for name, address in _nrt_python.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def _type_of(loop: Any, value: Any) -> Any:
    """Return the numba type of an argument of a loop.

    Fast path: numba's own function imports `numpy.ma` to check whether an array is masked. For
    arrays, and for tuples of arrays, this function finds the type without importing `numpy.ma`.
    """
    if type(value) is tuple:
        return types.BaseTuple.from_types(tuple(_type_of(loop, item) for item in value))
    if type(value) is not np.ndarray:
        return type(loop).typeof_pyval(loop, value)
    from numba.np.numpy_support import from_dtype, map_layout

    found = types.Array(from_dtype(value.dtype), value.ndim, map_layout(value), readonly=not value.flags.writeable)
    loop._types_active_call.add(found)
    return found


def description(value: Any) -> Any:
    """Return nested tuples that describe a function and its closure.

    The tuples are the same in every process. Raises TypeError if the closure holds a value that
    this function cannot describe.

    By default, numba identifies a closure by its pickle. Code just compiled from source and the
    same code read from a `.pyc` file have different pickles, so a second process would compile all
    loops again. Two pickles of the same numba intrinsic also differ.
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
    if hasattr(value, "_defn"):  # Only intrinsics have the attribute `_defn`.
        return name, description(value._defn)
    raise TypeError(f"{kind} in a closure")


@cache
def source_hash() -> str:
    """Return a hash of those source files of mxnum on which compiled code depends."""
    package = Path(__file__).parents[2]
    files = [path for name in ("*", "memory/*", "definition/*", "engine/**/*") for path in package.glob(f"{name}.py")]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()

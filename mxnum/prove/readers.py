"""Choose the reader for an implementation by the suffixes of its files, or by its type."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mxnum import errors
from mxnum.prove.circuit import Circuit
from mxnum.prove.claims import Claim

VERILOG = (".v", ".sv", ".svh", ".vh")
C = (".c", ".h", ".cpp", ".cc", ".cxx", ".hpp", ".hh", ".cuh")


def read(
    implementation: Any,
    claim: Claim,
    function: str | None,
    ports: Mapping[str, str | int],
    parameters: Mapping[str, int] | None,
    latency: int,
    include: Sequence[Path],
) -> Circuit:
    """Return the circuit of an implementation; raise UnsupportedCode if it cannot be read."""
    if callable(implementation):
        return _of_function(implementation)
    given = implementation if isinstance(implementation, list | tuple) else [implementation]
    files = [Path(each) for each in given]
    suffix = files[-1].suffix
    for file in files:
        errors.require(file.is_file(), "implementation", "files that exist", str(file))
    if suffix in VERILOG:
        from mxnum.prove.verilog import read_verilog

        held = {name: value for name, value in ports.items() if isinstance(value, int)}
        return read_verilog(files, function, parameters, latency, held, include)
    errors.require(latency == 0, "latency", "0 for anything but Verilog", latency)
    if suffix == ".py":
        return _of_function(_imported(files[-1], function))
    if suffix in C:
        from mxnum.prove.c import read_c

        return read_c(files, claim, function, ports, parameters or {}, include)
    if suffix == ".ll":
        from mxnum.prove.c import read_ir

        return read_ir(files[-1], claim, function, ports)
    if suffix == ".ptx":
        from mxnum.prove.cuda_ptx import read_ptx

        return read_ptx(files[-1], function, ports)
    known = errors.joined((*VERILOG, *C, ".ll", ".ptx", ".py"))
    raise ValueError(f"Argument 'implementation' must be files that end in {known}, not {suffix!r}.")


def _of_function(function: Callable[..., Any]) -> Circuit:
    from mxnum.prove.python import read_dialect, read_numba

    return read_numba(function) if hasattr(function, "py_func") else read_dialect(function)


def _imported(file: Path, name: str | None) -> Any:
    """Run a Python file, and return the function `name` that it defines."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name or "", None)
    errors.require(callable(found), "function", f"the name of a function of {file.name}", name)
    return found

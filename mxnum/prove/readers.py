"""Chooses how an implementation is read: by the ends of its files' names, or by its type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """Return an implementation as a circuit; raise UnsupportedCode for what cannot be read."""
    if callable(implementation):
        from mxnum.prove.python import read_dialect, read_numba

        return read_numba(implementation) if hasattr(implementation, "py_func") else read_dialect(implementation)
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
    if suffix in C:
        from mxnum.prove.c import read_c

        return read_c(files, claim, function, ports, parameters or {}, include)
    if suffix == ".ll":
        from mxnum.prove.c import read_ir

        return read_ir(files[-1], claim, function, ports)
    if suffix == ".ptx":
        from mxnum.prove.cuda_ptx import read_ptx

        return read_ptx(files[-1], function)
    known = errors.joined((*VERILOG, *C, ".ll", ".ptx"))
    raise ValueError(f"Argument 'implementation' must be files that end in {known}, not {suffix!r}.")

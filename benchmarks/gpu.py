"""Run the checks and measurements that need a GPU: ``python -m benchmarks.gpu``.

These checks are a queue of steps, the most important step first. Each step is a separate command,
which can be interrupted and resumed. The queue prints the time that each step will take, runs the
steps that are not done, and writes their outcomes to `queue.json` in the folder of the results.
Without a GPU the queue ends with an error. ``--rehearse`` needs no GPU: it runs the same commands
in numba's simulator and on the CPU, at sizes that take a minute or two each.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import cuda

_SIMULATOR = {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
#: How many seconds the queue waits for an interrupted step to write its checkpoints.
PATIENCE = 60


@dataclass(frozen=True)
class Step:
    """One command of the queue; "OUT" in the command stands for the folder of the results."""

    name: str
    minutes: int
    what: str
    command: tuple[str, ...]
    #: In a rehearsal, these arguments follow the first two words of `command` and replace the rest.
    rehearsal: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    def words(self, out: Path, rehearse: bool) -> list[str]:
        """Return the command to run."""
        words = [*self.command[:2], *self.rehearsal] if rehearse else self.command
        return [sys.executable, "-m", *(word.replace("OUT", str(out)) for word in words)]


STEPS = (
    Step(
        "bits", 7, "Compare every kernel with the CPU, and run the tests of the CUDA engine.",
        ("benchmarks", "cuda", "--out", "OUT", "--resume"),
        ("--quick", "--sizes", "64", "--out", "OUT"), tuple(_SIMULATOR.items()),
    ),
    Step(
        "units", 2, "Run the cases that show how the matrix instructions of the GPU add products.",
        ("mxnum", "unit", "probe", "--device", "cuda", "-o", "OUT/units"),
        ("probe", "--operands", "e4m3", "-k", "32", "--count", "20", "--force", "-o", "OUT/cases.txt"),
    ),
    Step(
        "speed", 3, "Time each kernel on 2^26 and 2^28 numbers, relative to a copy of as many numbers on the GPU.",
        ("benchmarks", "cuda_speed", "--out", "OUT", "--resume"),
        ("--quick", "--sizes", "64", "--out", "OUT"), tuple(_SIMULATOR.items()),
    ),
    Step(
        "pairs", 14, "Train residual MLPs of the size that Su et al. used, in FP32 and in E4M3, several runs at once.",
        ("mxnum", "lab", "sweep", "paper-pairs", "--seeds", "4", "--stack", "1", "--processes", "8",
         "--machine", "cuda", "--out", "OUT/paper-pairs"),
        ("sweep", "OUT/pairs.toml", "--stack", "1", "--machine", "torch", "--out", "OUT/paper-pairs"),
    ),
    Step(
        "drift", 10, "Train language models of 32 million parameters with the last layer's gradient in E4M3.",
        ("mxnum", "lab", "language-model", "head-gradient", "--processes", "1", "--machine", "cuda",
         "--out", "OUT/head-gradient"),
        ("language-model", "OUT/drift.toml", "--out", "OUT/head-gradient"),
    ),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps that are not done; return 0 if all steps are done at the end."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--out", metavar="FOLDER", type=Path, default=Path("gpu"), help="result folder (default: gpu)")
    parser.add_argument("--only", metavar="STEP", action="append", choices=[s.name for s in STEPS], help="run one step")
    parser.add_argument("--minutes", type=float, default=15, help="end after this many minutes (default: 15)")
    parser.add_argument("--list", action="store_true", help="print the steps, and run nothing")
    parser.add_argument("--rehearse", action="store_true", help="run small sizes without a GPU")
    options = parser.parse_args(arguments)
    done, steps = read(options.out), [step for step in STEPS if not options.only or step.name in options.only]
    for step in steps:
        state = "done" if done.get(step.name, {}).get("status") == 0 else f"about {step.minutes} minutes"
        print(f"{step.name}: {step.what} ({state})\n    {' '.join(step.words(options.out, options.rehearse)[1:])}")
    if options.list:
        return 0
    if not options.rehearse:
        try:
            cuda.require()
        except RuntimeError as problem:
            print(f"The queue needs a GPU: {problem}. Without a GPU, use --rehearse or --list.", file=sys.stderr)
            return 2
    options.out.mkdir(parents=True, exist_ok=True)
    if options.rehearse:
        rehearsed(options.out)
    end = time.monotonic() + 60 * options.minutes
    for step in steps:
        if done.get(step.name, {}).get("status") != 0 and time.monotonic() < end:
            done[step.name] = run(step, options.out, options.rehearse, end - time.monotonic())
            (options.out / "queue.json").write_text(json.dumps(done, indent=1) + "\n")
    return 0 if all(done.get(step.name, {}).get("status") == 0 for step in steps) else 1


def read(out: Path) -> dict[str, dict[str, Any]]:
    """Return the outcomes of the steps that were run so far."""
    path = out / "queue.json"
    found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def run(step: Step, out: Path, rehearse: bool, seconds: float) -> dict[str, Any]:
    """Run one step; return its exit status (None if it was interrupted) and duration in seconds.

    The output of the step is shown and kept in a log.
    """
    words, started = step.words(out, rehearse), time.monotonic()
    environment = {**os.environ, **(dict(step.environment) if rehearse else {})}
    print(f"\n=== {step.name}", flush=True)
    with (out / f"{step.name}.log").open("a") as log:
        process = subprocess.Popen(words, env=environment, stdout=log, stderr=subprocess.STDOUT)
        status: int | None
        try:
            status = process.wait(seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.send_signal(signal.SIGINT)  # the signal makes the step write its checkpoints
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:  # the process ignores interruptions
                process.kill()
                process.wait()
            status = None
    print((out / f"{step.name}.log").read_text()[-2000:], flush=True)
    return {"status": status, "seconds": round(time.monotonic() - started, 1), "command": " ".join(words[1:])}


_PAIRS = """name = "paper-pairs"
control = "FP32"
seeds = 1
[base]
width = 32
layers = 1
batch = 32
steps = 6
[arms.FP32]
[arms.E4M3]
uniform = "mxfp8_e4m3"
"""
_DRIFT = """name = "head-gradient"
control = "bfloat16"
seeds = 1
[base]
vocabulary = 64
width = 32
layers = 1
context = 8
sequences = 4
steps = 4
where = "last"
[arms.bfloat16]
recipe = { gradients = "bfloat16" }
[arms."E4M3 floor"]
recipe = { gradients = "mxfp8_e4m3" }
"""


def rehearsed(out: Path) -> None:
    """Write to the folder `out` the files that describe the small studies of a rehearsal."""
    for name, text in (("pairs", _PAIRS), ("drift", _DRIFT)):
        (out / f"{name}.toml").write_text(text)


if __name__ == "__main__":
    sys.exit(main())

"""Measure how fast emitted C code quantizes on one core: ``python -m benchmarks.emitted``.

The command prints a Markdown table with the speed of the fastest of several runs, in millions of
numbers per second. The command needs gcc.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
from pathlib import Path
from time import process_time

import numpy as np

from mxnum import formats
from mxnum.emit import reference_model

FORMATS = [name for name in formats.names() if formats.get(name).scale.power_of_two]
FLAGS = ("-O2", "-O3 -march=native")
COUNT, RUNS = 1 << 20, 7
PROGRAM = """#include "m.h"
void run(long blocks, const float *x, uint8_t *codes, uint8_t *scales) {
    for (long i = 0; i < blocks; i++) scales[i] = m_quantize_block(x + 32 * i, 32, codes + 32 * i);
}
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--formats", nargs="+", default=FORMATS, choices=FORMATS)
    asked = parser.parse_args()
    print(f"| format | {' | '.join(f'`gcc {flags}`' for flags in FLAGS)} |\n|{'---|' * (len(FLAGS) + 1)}")
    for name in asked.formats:
        print(f"| {name} | {' | '.join(f'{speed(name, flags) / 1e6:.0f}' for flags in FLAGS)} |", flush=True)


def speed(name: str, flags: str) -> float:
    """Return how many numbers the emitted C code quantizes in a second of processor time."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "m.h").write_text(reference_model("c", name, name="m"))
        (Path(folder) / "m.c").write_text(PROGRAM)
        subprocess.run(["gcc", *flags.split(), "-shared", "-fPIC", "m.c", "-o", "m.so"], cwd=folder, check=True)
        run = ctypes.CDLL(str(Path(folder) / "m.so")).run
    x = np.random.default_rng(1).standard_normal(COUNT).astype(np.float32)
    arrays = x, np.empty(COUNT, np.uint8), np.empty(COUNT // 32, np.uint8)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
    seconds = []
    for _ in range(RUNS):
        started = process_time()
        run(ctypes.c_long(COUNT // 32), *pointers)
        seconds.append(process_time() - started)
    return COUNT / min(seconds)


if __name__ == "__main__":
    main()

"""Emitted models, compiled or run by their own tools, answer every boundary case as the definition does."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mxnum import formats, modes
from mxnum.conformance import check
from mxnum.emit import reference_model
from tests.covering import covering

#: Formats whose elements and scales differ in kind; `nvfp4` has a tensor scale, the last has none.
FORMATS = (
    "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4_e2m1", "mxint8", "nvfp4", "e4m3:scale=float32",
    "mxfp4_e3m0", "mxint4",
)  # fmt: skip
SOURCES = ("float32", "float64", "bfloat16", "float16")
TYPES = {"float32": np.float32, "float64": np.float64, "bfloat16": np.uint16, "float16": np.uint16}
HELD = {"float32": "float", "float64": "double", "bfloat16": "uint16_t", "float16": "uint16_t"}


def cases():
    """Yield settings in which every two choices meet."""
    yield from covering(fmt=FORMATS, source=SOURCES, rounding=modes.Rounding, overflow=modes.Overflow, nonfinite=("block", "element"))


def rules_of(fmt: str, number: int):
    rules = [rule for rule in modes.scale_rules(formats.get(fmt)) if not getattr(rule, "error_power", 0)]
    return rules[number % len(rules)]


CASES = [{**case, "scale_rule": rules_of(case["fmt"], number)} for number, case in enumerate(cases())]


class InC:
    """A model in C, compiled to a library with functions for many blocks."""

    def __init__(self, folder: Path, fmt: str, source: str, rounding, **settings):
        self.format, self.source = formats.get(fmt), source
        self.random, self.tensor = rounding == "sr", self.format.tensor_scale is not None
        text = reference_model("c", fmt, source=source, rounding=rounding, name="m", **settings)
        (folder / "m.h").write_text(text)
        self.scale = np.dtype(f"u{max(1, self.format.scale.bits // 8)}")
        extra = ", tensor[i]" * self.tensor
        program = f"""#include "m.h"
        void quantize(long n, int k, const {HELD[source]} *x, const int32_t *tensor, const uint32_t *random,
                      uint8_t *codes, uint{self.scale.itemsize * 8}_t *scales) {{
            (void)tensor; (void)random;
            for (long i = 0; i < n; i++)
                scales[i] = m_quantize_block(x + i * k, k, codes + i * k{extra}{", random + i * k" * self.random});
        }}
        void dequantize(long n, const uint8_t *codes, const uint{self.scale.itemsize * 8}_t *scales,
                        const int32_t *tensor, float *x) {{
            (void)tensor;
            for (long i = 0; i < n; i++) m_dequantize_block(codes + i, 1, scales[i]{extra}, x + i);
        }}
        """
        (folder / "m.c").write_text(program)
        strict = "-std=c99 -O1 -Wall -Wextra -Werror -pedantic -Wno-unused-function -fsanitize=undefined"
        trap = "-fsanitize-undefined-trap-on-error -shared -fPIC"
        subprocess.run(["gcc", *strict.split(), *trap.split(), "m.c", "-o", "m.so"], cwd=folder, check=True)
        self.library = ctypes.CDLL(str(folder / "m.so"))

    def quantize(self, x, random=None, tensor_scale=1.0):
        x = np.ascontiguousarray(x)
        codes, scales = np.empty(x.shape, np.uint8), np.empty(len(x), self.scale)
        tensor = np.full(len(x), tensor_scale, np.float32)
        drawn = np.zeros(1, np.uint32) if random is None else np.ascontiguousarray(random, np.uint32)
        held = [each.ctypes.data_as(ctypes.c_void_p) for each in (x, tensor, drawn, codes, scales)]
        self.library.quantize(ctypes.c_long(len(x)), ctypes.c_int(x.shape[1]), *held)
        return codes, scales

    def dequantize(self, codes, scales, tensor_scale=1.0):
        codes, scales = np.ascontiguousarray(codes), np.ascontiguousarray(scales)
        x, tensor = np.empty(codes.shape, np.float32), np.full(len(codes), tensor_scale, np.float32)
        held = [each.ctypes.data_as(ctypes.c_void_p) for each in (codes, scales, tensor, x)]
        self.library.dequantize(ctypes.c_long(len(codes)), *held)
        return x

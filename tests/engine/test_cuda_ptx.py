"""Tests of the PTX of GPU kernels: its text, its results on a simulated warp, its registers.

No GPU is needed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxnum as mx
from mxnum.formats import ELEMENTS, FLOATS
from mxnum.memory.dtypes import numpy_dtype
from mxnum.modes import Nonfinite, Overflow, Rounding, ScaleRule
from proofs.machines.offline import ptx_of
from tests.engine.cuda.warp import Kernel, Memory
from tests.samples import generator

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("numba_cuda") is None, reason='numba-cuda is missing: pip install -e ".[cuda]"'
    ),
    pytest.mark.skipif(os.environ.get("NUMBA_ENABLE_CUDASIM") == "1", reason="numba's simulator compiles nothing"),
]
CAPABILITIES = [(9, 0), (10, 0)]
#: Memory bandwidth limits the speed of these kernels, so they need many threads. A multiprocessor
#: can run its full number of threads only if the kernel uses few registers.
TUNED = [
    (kind, "float32", element, "rne") for kind in ("quantize", "fake_quantize") for element in ("e4m3", "e2m1", "int8")
]
OTHERS = [
    ("quantize", "bfloat16", "e4m3", "rne"),
    ("quantize", "float16", "e2m1", "rne"),
    ("quantize", "float32", "e4m3", "sr"),
    ("quantize", "float32", "e5m2", "rtp"),
    ("fake_quantize", "bfloat16", "e4m3", "rne"),
    ("dequantize", "float32", "e4m3", "-"),
    ("dequantize", "float32", "e5m2", "-"),
    ("dequantize", "bfloat16", "int8", "-"),
    ("dequantize", "float64", "e2m1", "-"),
]


@cache
def compiled(
    kind: str, float_type: str, element: str, rounding: str, capability: tuple[int, int] = (9, 0), run: int = 32
) -> str:
    """Return the PTX of one of the engine's kernels."""
    from mxnum.engine.cuda import functions, vectors
    from mxnum.engine.cuda.driver import types

    def vector(name: str) -> Any:
        return types.Array(getattr(types, name), 1, "C")

    source, target = FLOATS[float_type], ELEMENTS[element]
    unsigned = f"uint{source.bits}" if source.bits <= 32 else "int64"
    if kind == "dequantize":
        kernel = vectors.dequantize_rows(run, functions.make_dequantized(target, source))
        signature = types.int64, vector("uint32"), vector("uint8"), vector(unsigned)
        return ptx_of(kernel, signature, capability)
    values = kind == "fake_quantize"
    modes = source, target, Rounding(rounding), Overflow.SATURATE, Nonfinite.BLOCK
    function = (functions.make_fake_quantized if values else functions.make_quantized)(*modes)
    scaling = vectors.Scaling(source, target, ScaleRule.FLOOR, Nonfinite.BLOCK, False)
    kernel = vectors.quantize_rows(run, scaling, ("seed", 30) if rounding == "sr" else ("nowhere", 0), function, values)
    out = vector(unsigned if values else "uint32")
    signature = (
        types.int64, vector(f"int{source.bits}"), vector("uint8"), vector("uint8"), vector(unsigned),
        types.UniTuple(types.int64, 5), out,
    )  # fmt: skip
    return ptx_of(kernel, signature, capability)


def instructions(text: str) -> list[str]:
    """Return the opcodes of the instructions in a kernel's PTX."""
    body = text[text.index(".entry") :]
    return re.findall(r"^\s+(?:@!?%p\d+ )?([a-z][a-z0-9_.]+)\s", body, re.M)


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", [*TUNED, *OTHERS], ids="-".join)
def test_kernels_use_vector_loads_and_no_fma_or_calls(case, capability):
    if case not in TUNED and capability == (10, 0):
        pytest.skip("kernels that are not tuned are tested for one compute capability")
    kind, float_type, _, _ = case
    found = instructions(compiled(*case, capability))
    bits = FLOATS[float_type].bits
    wide = {16: ["v4.u16"], 32: ["v4.u32"], 64: ["v2.u64"]}[bits]
    if kind != "dequantize":
        assert [op for op in found if op.startswith("ld.global")] == [f"ld.global.{w}" for w in wide]
        assert sum(op.startswith("shfl.sync.bfly") for op in found) == 3  # eight threads share a block of elements
    stores = [op for op in found if op.startswith("st.global")]
    if kind == "quantize":
        assert sorted(stores) == ["st.global.u32", "st.global.u8"]  # four codes; one scale
    else:
        assert stores == [f"st.global.{w}" for w in wide] * (2 if bits == 64 else 1)
    assert not [op for op in found if op.startswith(("fma", "mad.f", "call", "ld.local", "st.local", "div", "rem"))]
    assert not [op for op in found if "f64" in op or "ftz" in op or "approx" in op or "f16" in op]
    arithmetic = [op for op in found if op.endswith(".f32") and not op.startswith(("mov", "selp", "ld", "st"))]
    # PTX never fuses an instruction with an explicit rounding (``.rn``) into an fma.
    assert set(arithmetic) <= {"add.rn.f32", "sub.rn.f32", "mul.rn.f32"}


@cache
def ptxas() -> str | None:
    """Return the path of the assembler, from PATH or from the wheel of NVIDIA's compiler."""
    found = shutil.which("ptxas")
    if found is None:
        roots = importlib.util.find_spec("nvidia")
        places = [Path(p) for p in (roots.submodule_search_locations or [])] if roots else []
        wheels = [path for place in places for path in place.glob("*/bin/ptxas*")]
        found = str(wheels[0]) if wheels else None
    return found


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", TUNED, ids="-".join)
def test_all_threads_fit_a_multiprocessor(case, capability, tmp_path):
    if ptxas() is None:
        pytest.skip("ptxas is missing: it comes with mxnum[cuda]")
    source = tmp_path / "kernel.ptx"
    source.write_text(compiled(*case, capability))
    command = [ptxas(), "-v", f"-arch=sm_{capability[0]}{capability[1]}", str(source), "-o", str(tmp_path / "kernel")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    (registers,) = re.findall(r"Used (\d+) registers", said)
    assert int(registers) <= 32
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in said


# --- Results on a simulated warp


def vector(memory: Memory, array: np.ndarray) -> list[int]:
    """Store a vector in memory, and return the seven arguments that describe it to a kernel.

    The arguments are 0, 0, size, bytes of an element, address, shape and stride.
    """
    return [0, 0, array.size, array.itemsize, memory.place(array), array.size, array.itemsize]


def numbers(float_type: str, blocks: int, run: int) -> np.ndarray:
    """Return blocks of numbers of many magnitudes, with zeros, NaN and infinity."""
    rng = generator("warp", float_type, blocks, run)
    spread = 2 ** (FLOATS[float_type].exponent_bits - 1) - 4
    with np.errstate(all="ignore"):
        x = rng.standard_normal((blocks, run)) * np.exp2(rng.uniform(-spread, spread, (blocks, 1)))
        x = (x * np.exp2(rng.integers(-12, 1, x.shape))).astype(numpy_dtype(FLOATS[float_type]))
    x[0, 1], x[1, 2], x[2], x[3, ::3] = np.nan, -np.inf, 0, -0.0
    return x


def quantized_on_a_warp(
    kind: str, float_type: str, element: str, rounding: str, x: np.ndarray, threads: int, blocks: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes (or values) and the scales that a kernel computes on a simulated warp."""
    kernel, memory = Kernel(compiled(kind, float_type, element, rounding, run=x.shape[1])), Memory()
    codes = np.zeros(x.shape, np.uint8 if kind == "quantize" else x.dtype)
    scales = np.full(len(x), 77, np.uint8)
    unused = np.zeros(1, np.uint8)
    key = (5, 1, 2, 3, 0)  # the words of the seed 2**32 + 5 and of the stream 3 * 2**32 + 2
    out = codes.reshape(-1).view(np.uint32) if kind == "quantize" else codes
    arguments = [
        x.size // 4, *vector(memory, x), *vector(memory, unused), *vector(memory, scales), *vector(memory, unused),
        *key, *vector(memory, out),
    ]  # fmt: skip
    for block in range(blocks):
        kernel.run(arguments, memory, block, threads, blocks)
    return codes, scales


@pytest.mark.parametrize("case", [*TUNED, *(case for case in OTHERS if case[0] != "dequantize")], ids="-".join)
def test_compiled_kernels_compute_what_the_cpu_computes(case):
    kind, float_type, element, rounding = case
    fmt = mx.MXFormat(element)
    modes = {"seed": (1 << 32) + 5, "stream": (3 << 32) + 2} if rounding == "sr" else {}
    x = numbers(float_type, 37, 32)  # 37 blocks do not fill the last warp
    got, scales = quantized_on_a_warp(*case, x, 64, 2)
    if kind == "quantize":
        want = mx.quantize(x, fmt, rounding=rounding, **modes)
        assert np.array_equal(scales, want.scales.reshape(-1))
        assert np.array_equal(got, want.codes)
    else:
        want = mx.fake_quantize(x, fmt, rounding=rounding, **modes)
        kind_of_bits = f"u{x.itemsize}"
        assert np.array_equal(got.view(kind_of_bits), want.view(kind_of_bits))


@pytest.mark.parametrize("run", [4, 8, 16, 64, 128])
def test_blocks_of_other_lengths(run):
    x = numbers("float32", 11, run)
    codes, scales = quantized_on_a_warp("quantize", "float32", "e4m3", "rne", x, 32, 3)
    want = mx.quantize(x, mx.MXFormat("e4m3", block=run))
    assert np.array_equal(scales, want.scales.reshape(-1))
    assert np.array_equal(codes, want.codes)


@pytest.mark.parametrize("case", [case for case in OTHERS if case[0] == "dequantize"], ids="-".join)
def test_compiled_decoding(case):
    _, float_type, element, _ = case
    bits = ELEMENTS[element].bits
    codes = np.tile(np.arange(1 << bits, dtype=np.uint8), 512 >> bits).reshape(-1, 32)
    scales = generator("warp", element).integers(0, 256, len(codes), dtype=np.uint8)
    scales[:4] = 0, 1, 254, 255
    kernel, memory = Kernel(compiled(*case)), Memory()
    values = np.zeros(codes.shape, numpy_dtype(FLOATS[float_type]))
    words = codes.reshape(-1).view(np.uint32)
    kernel.run([words.size, *vector(memory, words), *vector(memory, scales), *vector(memory, values)], memory, 0, 32, 1)
    want = mx.MXArray.from_parts(codes, scales[:, None], mx.MXFormat(element)).dequantize(float_type)
    kind = f"u{values.itemsize}"
    assert np.array_equal(values.view(kind), want.view(kind))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # With this change, each lane exchanges values with itself.
        (r"shfl\.sync\.bfly\.b32(\s+\S+ \S+, )%r\d+, ", r"shfl.sync.bfly.b32\g<1>0, "),
        (r"max\.s32", "min.s32"),
        (r"mul\.rn\.f32", "add.rn.f32"),
        (r"(st\.global\.u8\s+\[%rd\d+)\]", r"\1+1]"),
        (r"1149239296", "1065353216"),  # with this change, elements are clamped at 1
    ],
)
def test_a_kernel_with_one_instruction_wrong_is_noticed(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = compiled("quantize", "float32", "e4m3", "rne")
    changed = re.sub(old, new, text, count=1)
    assert changed != text
    monkeypatch.setitem(globals(), "compiled", lambda *case, run: changed)
    x = numbers("float32", 37, 32)
    want = mx.quantize(x, mx.MXFormat("e4m3"))
    try:
        codes, scales = quantized_on_a_warp("quantize", "float32", "e4m3", "rne", x, 64, 2)
    except AssertionError:  # an address was outside an array, or a lane missed a shuffle
        return
    assert not (np.array_equal(codes, want.codes) and np.array_equal(scales, want.scales.reshape(-1)))


@pytest.mark.parametrize("kind", ["quantize", "dequantize", "scales", "tensor scale"])
def test_kernels_for_float_scales_use_integers_alone(kind):
    """Check that the kernels of NVFP4 compile, and compute with integers alone."""
    from mxnum.engine.cuda import float_scales, kernels
    from mxnum.engine.cuda.driver import types
    from mxnum.modes import FloatScaleRule

    fmt, source = mx.formats.get("nvfp4"), FLOATS["float32"]
    i64, two = types.int64, types.UniTuple(types.int64, 2)

    def memory(name: str) -> tuple[Any, ...]:
        return types.Array(getattr(types, name), 1, "C"), i64, two

    if kind == "scales":
        scale_of = float_scales.make_scale_of(source, fmt.element, fmt.scale, FloatScaleRule.NEAREST)
        kernel = kernels.block_scales(source, scale_of, fmt.scale.nan_code, False, None)
        bytes_, _, _ = memory("uint8")
        signature = i64, two, two, two, *memory("int32"), *memory("uint8"), *memory("uint32"), bytes_, two, bytes_
    elif kind == "tensor scale":
        kernel = float_scales.apply_once(float_scales.make_tensor_scale_of(source, fmt.element, fmt.scale))
        signature = i64, memory("int64")[0], memory("uint32")[0]
    else:
        reads, writes = ("int32", "uint8") if kind == "quantize" else ("uint8", "uint32")
        function = float_scales.make_dequantized(fmt.element, fmt.scale, source)
        if kind == "quantize":
            function = float_scales.make_quantized(source, fmt.element, fmt.scale, Rounding.SR, Overflow.SATURATE)
        kernel = kernels.map_with_tensor(function, "seed" if kind == "quantize" else "nowhere", 30)
        of_key = types.UniTuple(i64, 5)
        signature = (
            i64, two, two, *memory(reads), *memory("uint8"), *memory("uint32"), *memory("uint32"), of_key,
            *memory(writes),
        )  # fmt: skip
    found = instructions(ptx_of(kernel, signature, (9, 0)))
    assert any(op.startswith("st.global") for op in found)
    assert not [op for op in found if ".f32" in op or ".f64" in op or op.startswith("call")]

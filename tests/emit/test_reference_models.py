"""Tests that emitted reference models, in every language, compute the bits of the definition."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxnum as mx
from mxnum import formats, modes
from mxnum.conformance import check
from mxnum.definition import by_numpy
from mxnum.definition.word import dialect
from mxnum.emit import LANGUAGES, reference_model
from mxnum.emit.program import Program
from tests.covering import covering

#: Formats with different kinds of elements and scales: nvfp4 has a tensor scale, and
#: e4m3:scale=float32 has scales of 32 bits.
FORMATS = (
    "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4_e2m1", "mxint8", "nvfp4", "e4m3:scale=float32",
    "mxfp4_e3m0", "mxint4",
)  # fmt: skip
TYPES = {"float32": "float", "float64": "double", "bfloat16": "uint16_t", "float16": "uint16_t"}
VIEWS = {"float32": "Float32Array", "float64": "Float64Array", "bfloat16": "Uint16Array", "float16": "Uint16Array"}
COVERING = covering(
    fmt=FORMATS,
    source=tuple(TYPES),
    rounding=modes.Rounding,
    overflow=modes.Overflow,
    nonfinite=("block", "element"),
)


def settings(number: int, case: dict[str, Any]) -> dict[str, Any]:
    """Add a scale rule to a case; the rule varies with the number of the case."""
    rules = [r for r in modes.scale_rules(formats.get(case["fmt"])) if not getattr(r, "error_power", 0)]
    return {**case, "scale_rule": rules[number % len(rules)]}


CASES = [settings(number, case) for number, case in enumerate(COVERING)]
NAMES = ["-".join(map(str, case.values())) for case in CASES]


class Built:
    """An emitted model, and a program that calls it to quantize the blocks of a file.

    The program reads the files `x`, `tensor` and `random`, and writes the files `codes` and
    `scales`.
    """

    def __init__(self, folder: Path, fmt: str, source: str, **modes: Any):
        self.folder, self.format, self.source, self.modes = folder, formats.get(fmt), source, modes
        self.random, self.tensor = modes["rounding"] == "sr", self.format.tensor_scale is not None
        self.scale_bits = max(8, self.format.scale.bits)
        self.build()

    def build(self) -> None:
        raise NotImplementedError

    def run(self, blocks: int, length: int) -> None:
        raise NotImplementedError

    def write(self, language: str, file: str) -> None:
        text = reference_model(language, self.format, source=self.source, name="m", **self.modes)
        (self.folder / file).write_text(text)

    def quantize(self, x, random=None, tensor_scale=1.0):
        np.ascontiguousarray(x).tofile(self.folder / "x")
        np.full(len(x), tensor_scale, np.float32).tofile(self.folder / "tensor")
        np.ascontiguousarray([0] if random is None else random, np.uint32).tofile(self.folder / "random")
        self.run(*x.shape)
        codes = np.fromfile(self.folder / "codes", np.uint8).reshape(x.shape)
        return codes, np.fromfile(self.folder / "scales", f"u{self.scale_bits // 8}")

    @property
    def callable(self):
        """The quantizer as a function; its parameters are those that `check` expects."""
        if self.tensor and self.random:
            return lambda x, random, tensor_scale: self.quantize(x, random, tensor_scale)
        if self.tensor:
            return lambda x, tensor_scale: self.quantize(x, None, tensor_scale)
        return self.quantize

    #: True if the boundary cases of float scales take minutes, because they need long integers.
    slow = True

    def check(self) -> None:
        """Check the program at each rounding boundary, or on 200 random blocks if that is slow."""
        cases = {"level": 2, "count": 200} if self.slow and not self.format.scale.power_of_two else {}
        check(self.callable, format=self.format, source=self.source, **self.modes, strict=True, shrink=False, **cases)


class InC(Built):
    """A model in C, compiled to a library that traps undefined behaviour."""

    slow = False

    def build(self) -> None:
        self.write("c", "m.h")
        scale, extra = f"uint{self.scale_bits}_t", ", tensor[i]" * self.tensor + ", random + i * k" * self.random
        program = f"""#include "m.h"
        void run(long n, int k, const {TYPES[self.source]} *x, const int32_t *tensor, const uint32_t *random,
                 uint8_t *codes, {scale} *scales) {{
            (void)tensor; (void)random;
            for (long i = 0; i < n; i++) scales[i] = m_quantize_block(x + i * k, k, codes + i * k{extra});
        }}"""
        (self.folder / "m.c").write_text(program)
        strict = "-std=c99 -O1 -Wall -Wextra -Werror -pedantic -Wno-unused-function -fsanitize=undefined"
        trap = "-fsanitize-undefined-trap-on-error -shared -fPIC m.c -o m.so"
        subprocess.run(["gcc", *strict.split(), *trap.split()], cwd=self.folder, check=True)

    def run(self, blocks: int, length: int) -> None:
        library = ctypes.CDLL(str(self.folder / "m.so"))
        given = [np.fromfile(self.folder / name, np.uint8) for name in ("x", "tensor", "random")]
        made = [np.empty(blocks * length, np.uint8), np.empty(blocks, f"u{self.scale_bits // 8}")]
        pointers = [each.ctypes.data_as(ctypes.c_void_p) for each in (*given, *made)]
        library.run(ctypes.c_long(blocks), ctypes.c_int(length), *pointers)
        for name, array in zip(("codes", "scales"), made, strict=True):
            array.tofile(self.folder / name)


class InJavaScript(Built):
    """A model in JavaScript, run by Node.js."""

    def build(self) -> None:
        self.write("javascript", "m.mjs")
        wide = not self.format.scale.power_of_two
        tensor = ", tensor[i]" if not wide else ", BigInt(tensor[i])"
        extra = tensor * self.tensor + ", random.subarray(i * k, i * k + k)" * self.random
        program = f"""import {{ quantize_block }} from "./m.mjs";
        import {{ readFileSync, writeFileSync }} from "node:fs";
        const [n, k] = process.argv.slice(2).map(Number);
        const read = (name, Type) => new Type(new Uint8Array(readFileSync(name)).buffer);
        const x = read("x", {VIEWS[self.source]}), tensor = read("tensor", Int32Array);
        const random = read("random", Uint32Array);
        const codes = new Uint8Array(n * k), scales = new Uint{self.scale_bits}Array(n);
        for (let i = 0; i < n; i++) {{
            const block = quantize_block(x.subarray(i * k, i * k + k){extra});
            codes.set(block.codes, i * k);
            scales[i] = block.scale;
        }}
        writeFileSync("codes", codes);
        writeFileSync("scales", scales);"""
        (self.folder / "run.mjs").write_text(program)

    def run(self, blocks: int, length: int) -> None:
        subprocess.run(["node", "run.mjs", str(blocks), str(length)], cwd=self.folder, check=True)


class InSystemVerilog(Built):
    """A model in SystemVerilog, simulated by Icarus Verilog."""

    def build(self) -> None:
        self.write("systemverilog", "m.sv")

    def run(self, blocks: int, length: int) -> None:
        bits, scale, k = self.format.element.bits, self.format.scale.bits, length
        width, extra = formats.FLOATS[self.source].bits * k, ", tensor[i]" * self.tensor + ", random[i]" * self.random
        bench = f"""module bench;
            reg [{width - 1}:0] x [0:{blocks - 1}];
            reg [31:0] tensor [0:{blocks - 1}];
            reg [{32 * k - 1}:0] random [0:{blocks - 1}];
            reg [{scale + bits * k - 1}:0] block;
            integer i, file;
            initial begin
                $readmemh("x.hex", x); $readmemh("tensor.hex", tensor); $readmemh("random.hex", random);
                file = $fopen("answers.hex", "w");
                for (i = 0; i < {blocks}; i = i + 1) begin
                    block = m::quantize_block(x[i]{extra});
                    $fwrite(file, "%h\\n", block);
                end
                $fclose(file);
            end
        endmodule"""
        (self.folder / "bench.sv").write_text(bench)
        for name in ("x", "tensor", "random"):
            rows = np.fromfile(self.folder / name, np.uint8).reshape(-1)
            rows = rows if rows.size % blocks == 0 else np.zeros(blocks * 4 * k, np.uint8)
            lines = (row[::-1].tobytes().hex() for row in rows.reshape(blocks, -1))
            (self.folder / f"{name}.hex").write_text("\n".join(lines) + "\n")
        subprocess.run(["iverilog", "-g2012", "-o", "bench", "m.sv", "bench.sv"], cwd=self.folder, check=True)
        subprocess.run(["vvp", "bench"], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        words = [int(line, 16) for line in (self.folder / "answers.hex").read_text().split()]
        mask = (1 << bits) - 1
        codes = np.array([[(word >> (bits * i)) & mask for i in range(k)] for word in words], np.uint8)
        codes.tofile(self.folder / "codes")
        np.array([word >> (bits * k) for word in words], f"u{self.scale_bits // 8}").tofile(self.folder / "scales")


class InPython(Built):
    """A model in Python, run in the process of the test."""

    def build(self) -> None:
        self.module: dict[str, Any] = {}
        exec(reference_model("python", self.format, source=self.source, **self.modes), self.module)

    def quantize(self, x, random=None, tensor_scale=1.0):
        tensor = [int(np.float32(tensor_scale).view(np.int32))] * self.tensor
        blocks = []
        for i, row in enumerate(x.tolist() if x.dtype != np.uint16 else x):
            drawn = [random[i].tolist()] * self.random if random is not None else []
            blocks.append(self.module["quantize_block"](row, *tensor, *drawn))
        codes = np.array([codes for _, codes in blocks], np.uint8)
        return codes, np.array([scale for scale, _ in blocks], f"u{self.scale_bits // 8}")


def needs(tool: str):
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


def every_seventh(first: int):
    """Mark a test so that the fast tier runs only one case in seven, starting at case `first`."""
    return fast(*range(first, len(CASES), 7))


def fast(*numbers: int):
    """Mark a test so that the fast tier runs only the cases with the given numbers."""
    marks = [() if number in numbers else pytest.mark.full for number in range(len(CASES))]
    cases = zip(CASES, marks, NAMES, strict=True)
    return pytest.mark.parametrize("case", [pytest.param(case, marks=mark, id=name) for case, mark, name in cases])


@needs("gcc")
@every_seventh(0)
def test_c_on_every_boundary(case, tmp_path):
    InC(tmp_path, **case).check()


@needs("node")
@every_seventh(3)
def test_javascript_on_every_boundary(case, tmp_path):
    InJavaScript(tmp_path, **case).check()


@needs("iverilog")
@fast(1, 43, 64)  # with sr, a tensor scale, an integer
def test_systemverilog_on_every_boundary(case, tmp_path):
    InSystemVerilog(tmp_path, **case).check()


@every_seventh(2)
def test_python_on_every_boundary(case, tmp_path):
    InPython(tmp_path, **case).check()


@needs("gcc")
@pytest.mark.parametrize("target", list(TYPES))
@pytest.mark.parametrize("fmt", ["mxfp8_e5m2", "mxint8", "nvfp4", "e4m3:scale=float32"])
def test_decoding_in_c(fmt, target, tmp_path):
    """Check the decoded value of every element code under every kind of scale."""
    form, scale_bits = formats.get(fmt), max(8, formats.get(fmt).scale.bits)
    (tmp_path / "m.h").write_text(reference_model("c", fmt, target=target, name="m"))
    extra = ", tensor" * (form.tensor_scale is not None)
    (tmp_path / "m.c").write_text(f"""#include "m.h"
        void run(long n, const uint8_t *codes, uint{scale_bits}_t scale, int32_t tensor, {TYPES[target]} *x) {{
            (void)tensor; m_dequantize_block(codes, (int)n, scale{extra}, x);
        }}""")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "m.c", "-o", "m.so"], cwd=tmp_path, check=True)
    run = ctypes.CDLL(str(tmp_path / "m.so")).run
    codes = np.arange(1 << form.element.bits).astype(np.uint8)
    scales = [0, 1, 100, 127, 254, 255] if scale_bits == 8 else [0, 1, 0x3F800001, 0x7F7FFFFF, 0x7F800000, 0x7FC00000]
    for scale in [s for s in scales if form.scale.power_of_two or scale_bits > 8 or s < 128]:
        for tensor in (1.0, 2.0**-140) if extra else (1.0,):
            x = np.empty(codes.size, f"u{formats.FLOATS[target].bits // 8}")
            held = [each.ctypes.data_as(ctypes.c_void_p) for each in (codes, x)]
            bits = int(np.float32(tensor).view(np.int32))
            run(ctypes.c_long(codes.size), held[0], ctypes.c_uint32(scale), ctypes.c_int32(bits), held[1])
            given = np.full(codes.size, scale, f"u{scale_bits // 8}")
            held_scales = given.view(np.float32) if scale_bits == 32 else given
            kind = formats.FLOATS[target]
            right = by_numpy.dequantize(
                codes, held_scales, form.element, form.scale, (1,), kind, np.full(codes.size, tensor, np.float32)
            )
            assert (x == right).all(), (scale, tensor)


@needs("gcc")
def test_two_headers_in_one_program(tmp_path):
    for name in ("mxfp4_e2m1", "mxfp8_e4m3"):
        (tmp_path / f"{name}.h").write_text(reference_model("c", name))
    (tmp_path / "m.c").write_text('#include "mxfp4_e2m1.h"\n#include "mxfp8_e4m3.h"\nint used;\n')
    strict = "-std=c99 -Wall -Wextra -Werror -pedantic -Wno-unused-function -c m.c"
    subprocess.run(["gcc", *strict.split()], cwd=tmp_path, check=True)


def test_names_and_settings():
    text = reference_model("systemverilog", "mxfp4_e2m1", name="mine", rounding="sr", sr_bits=8)
    assert "package mine;" in text
    assert "sr_bits=8" in text
    assert "mxfp4_e2m1_quantize_block" in reference_model("c", "mxfp4_e2m1")


@pytest.mark.parametrize("language", list(LANGUAGES))
def test_comments_name_clauses(language):
    text = reference_model(language, "mxfp8_e4m3", overflow="ieee")
    for clause in ("OCP MX v1.0 5.3", "OCP MX v1.0 5.4.1", "OCP MX v1.0 6.3", "OFP8 v1.0 5", "IEEE 754-2019 4.3"):
        assert clause in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            {"language": "rust"},
            "Argument 'language' must be one of ['c', 'systemverilog', 'javascript', 'python'], not 'rust'",
        ),
        (
            {"format": "nvfp4", "scale_rule": "four_over_six_squared"},
            "'scale_rule' must be a rule that tries only one scale",
        ),
        ({"nonfinite": "raise"}, "'nonfinite' must be 'block' or 'element' for a model"),
        ({"name": "2 words"}, "'name' must be a name of letters, digits and _"),
        ({"sr_bits": 8}, "'sr_bits' must be left out unless rounding='sr'"),
        ({"source": "float128"}, "'source' must be one of"),
    ],
)
def test_what_has_no_model_raises(arguments, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        reference_model(**{"language": "c", **arguments})


def test_only_the_dialect_is_read():
    @dialect
    def branches(x):
        if x > 0:
            return x
        return 0

    with pytest.raises(NotImplementedError, match="branches: `x > 0` is not in the dialect"):
        Program().add(branches, "branches", 32)


PAGE = Path(__file__).parents[2] / "docs/howto/reference-model.md"


def block_of_page(language: str) -> str:
    """Return the code block in `language` from the how-to page about reference models."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    return text


@needs("gcc")
def test_the_c_program_of_the_page(tmp_path):
    (tmp_path / "mxfp4.h").write_text(reference_model("c", "mxfp4_e2m1", scale_rule="rceil"))
    (tmp_path / "main.c").write_text(block_of_page("c"))
    subprocess.run(["gcc", "-std=c99", "main.c", "-o", "main"], cwd=tmp_path, check=True)
    printed = subprocess.run(["./main"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    q = mx.quantize(np.float32([1, -2.6, 0.2]), "mxfp4_e2m1", scale_rule="rceil")
    assert printed == f"scale {q.scales[0]}, codes {q.codes[0]} {q.codes[1]} {q.codes[2]}\n"


@needs("node")
def test_the_javascript_of_the_page(tmp_path):
    (tmp_path / "nvfp4.mjs").write_text(reference_model("javascript", "nvfp4"))
    (tmp_path / "main.mjs").write_text(block_of_page("js"))
    printed = subprocess.run(["node", "main.mjs"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    values = [float(each) for each in re.findall(r"-?[0-9.]+", printed)]
    assert values == mx.fake_quantize(np.float32([0.1, -3, 0.5, 12]), "nvfp4").tolist()


@needs("iverilog")
def test_the_systemverilog_of_the_page(tmp_path):
    (tmp_path / "m.sv").write_text(reference_model("systemverilog", "mxfp8_e4m3", rounding="rtz"))
    (tmp_path / "page.sv").write_text(block_of_page("systemverilog"))
    (tmp_path / "bench.sv").write_text("""module bench;
        wire yes, no;
        check_encoder a(32'h3F900000, 8'd127, 8'h39, yes);
        check_encoder b(32'h3F900000, 8'd127, 8'h3A, no);
        initial begin #1 $display("%b%b", yes, no); end
    endmodule""")
    subprocess.run(["iverilog", "-g2012", "-o", "bench", "m.sv", "page.sv", "bench.sv"], cwd=tmp_path, check=True)
    printed = subprocess.run(["vvp", "bench"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert printed == "10\n"

"""Tests of dot products: a right adder tree is proved, and a tree that loses a bit is refuted."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.conformance import prove
from mxnum.formats import ELEMENTS
from mxnum.prove.claims import make_dot
from tests.prove.hardware import needs_yosys, write
from tests.prove.test_c import needs_clang


def module(element, terms, lost=0):
    """Return a Verilog module that sums fixed-point products and converts the sum to float32.

    The module clears the `lost` lowest bits of each product, which is a mistake if `lost` is not 0.
    """
    bits, m = element.bits, element.mantissa_bits
    wide = m + 1 + element.emax - element.emin
    width = 2 * wide + 3
    unit = 2 * (element.emin - m) + 127
    pairs = [f"product({'a'}[{bits} * {i} +: {bits}], b[{bits} * {i} +: {bits}])" for i in range(terms)]
    return f"""
module dot (input [{bits * terms - 1}:0] a, input [{bits * terms - 1}:0] b, output reg [31:0] value);
  function automatic [{wide - 1}:0] magnitude(input [{bits - 1}:0] code);
    reg [{wide - 1}:0] one;
    begin
      one = code[{m - 1}:0];
      if (code[{bits - 2}:{m}] != 0) one = {{1'b1, code[{m - 1}:0]}} << (code[{bits - 2}:{m}] - 1);
      magnitude = one;
    end
  endfunction
  function automatic signed [{width - 1}:0] product(input [{bits - 1}:0] p, input [{bits - 1}:0] q);
    reg [{2 * wide - 1}:0] size;
    begin
      size = magnitude(p) * magnitude(q);
      size = (size >> {lost}) << {lost};
      product = p[{bits - 1}] ^ q[{bits - 1}] ? -$signed({{3'b0, size}}) : $signed({{3'b0, size}});
    end
  endfunction
  wire signed [{width - 1}:0] total = {" + ".join(pairs)};
  wire [{width - 1}:0] size = total < 0 ? -total : total;
  integer i;
  always @* begin
    value = 0;
    for (i = 0; i < {width}; i = i + 1)
      if (size[i]) value = ((i + {unit}) << 23) | (({{32'b0, size}} << (23 - i)) & 32'h7FFFFF);
    value[31] = total < 0;
  end
endmodule
"""


COMPOSED = ["each product", "the sum of all products"]


@needs_yosys
def test_two_terms(tmp_path):
    """Check that a proof has two parts (products and sum), and that a refutation has one."""
    right = module(ELEMENTS["e2m1"], 2)
    proof = prove(write(tmp_path, right), "dot", "mxfp4_e2m1", terms=2)
    assert proof
    assert [part.name for part in proof.parts] == COMPOSED
    assert "has no input for a_scale or b_scale, so the scale is 1." in str(proof)
    for wrong in (
        module(ELEMENTS["e2m1"], 2, lost=1),
        right.replace("value[31] = total < 0", "value[31] = total <= 0"),
    ):
        refuted = prove(write(tmp_path, wrong), "dot", "mxfp4_e2m1", terms=2)
        assert (refuted.verdict, [part.name for part in refuted.parts]) == ("refuted", ["all inputs"])


SIX_BITS = [pytest.param(name, 4, marks=pytest.mark.full) for name in ("e3m2", "e2m3")]


@needs_yosys
@pytest.mark.parametrize(("name", "terms"), [("e2m1", 4), *SIX_BITS])
def test_four_terms(tmp_path, name, terms):
    files = write(tmp_path, module(ELEMENTS[name], terms))
    assert prove(files, "dot", name, terms=terms)
    wrong = write(tmp_path, module(ELEMENTS[name], terms, lost=1))
    assert prove(wrong, "dot", name, terms=terms).verdict == "refuted"


@needs_clang
@pytest.mark.parametrize("name", ["e2m1", *(pytest.param(name, marks=pytest.mark.full) for name in ("e3m2", "e2m3"))])
def test_four_terms_in_c(tmp_path, name):
    """Check that a C function that sums products as integers is proved."""
    element = ELEMENTS[name]
    m, sign = element.mantissa_bits, 1 << (element.bits - 1)
    (tmp_path / "dot.c").write_text(f"""#include <stdint.h>
    static int32_t fixed(uint8_t code) {{
        int32_t step = (code & {sign - 1}) >> {m}, one = code & {(1 << m) - 1};
        one = step ? (one | {1 << m}) << (step - 1) : one;
        return code & {sign} ? -one : one;
    }}
    uint32_t dot(const uint8_t *a, const uint8_t *b) {{
        int32_t total = (fixed(a[0]) * fixed(b[0]) + fixed(a[1]) * fixed(b[1]))
            + (fixed(a[2]) * fixed(b[2]) + fixed(a[3]) * fixed(b[3]));
        uint32_t size = total < 0 ? -(uint32_t)total : (uint32_t)total, value = 0;
        if (size) {{
            int top = 31 - __builtin_clz(size);
            value = ((uint32_t)(top + {2 * (element.emin - m) + 127}) << 23) | ((size << (23 - top)) & 0x7FFFFF);
        }}
        return total < 0 ? value | 0x80000000 : value;
    }}""")
    proof = prove(tmp_path / "dot.c", "dot", name, terms=4, seconds=900)
    assert proof
    assert [part.name for part in proof.parts] == COMPOSED


@pytest.mark.parametrize("name", ["e2m1", "e3m2", "e2m3", "e3m0", "int4"])
def test_the_claim_is_what_dot_computes(name):
    """Check `make_dot` against `matmul` for random codes and scales, some with subnormal sums."""
    random, element = np.random.default_rng(1), ELEMENTS[name]
    dot = make_dot(element, 4)
    codes = random.integers(0, 1 << element.bits, (2, 200, 4)).astype(np.uint8)
    scales = np.concatenate([random.integers(0, 255, (2, 150, 1)), random.integers(40, 66, (2, 50, 1))], 1)
    a, b = (
        mx.MXArray.from_parts(each, scale.astype(np.uint8), mx.MXFormat(name, block=4))
        for each, scale in zip(codes, scales, strict=True)
    )
    right = np.array([np.diag(mx.matmul(a, b.T, accumulate="exact"))]).view(np.uint32)[0]
    found = [
        dot(*(codes[:, i].astype(int).tolist()), int(scales[0, i, 0]), int(scales[1, i, 0])) & 0xFFFFFFFF
        for i in range(200)
    ]
    assert found == right.tolist()

"""Dot products of small elements: an adder tree is proved, one that loses a bit is refuted."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.formats import ELEMENTS
from mxnum.prove import prove
from mxnum.prove.claims import make_dot
from tests.prove.hardware import needs_yosys, write


def module(element, terms, lost=0):
    """Return a module that sums fixed-point products in a tree and rounds the sum to float32."""
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


@needs_yosys
def test_two_terms(tmp_path):
    right = write(tmp_path, module(ELEMENTS["e2m1"], 2))
    assert prove(right, "dot", "mxfp4_e2m1", terms=2)
    wrong = write(tmp_path, module(ELEMENTS["e2m1"], 2, lost=1))
    refuted = prove(wrong, "dot", "mxfp4_e2m1", terms=2)
    assert refuted.verdict == "refuted"
    assert "Not taken, so 1: a_scale or b_scale." in str(refuted)


@pytest.mark.full
@needs_yosys
@pytest.mark.parametrize(("name", "terms"), [("e2m1", 4), ("e3m2", 2), ("e2m3", 2)])
def test_more_terms_and_wider_elements(tmp_path, name, terms):
    files = write(tmp_path, module(ELEMENTS[name], terms))
    assert prove(files, "dot", name, terms=terms, seconds=900)


@pytest.mark.parametrize("name", ["e2m1", "e3m2", "e2m3", "e3m0", "int4"])
def test_the_claim_is_what_dot_computes(name):
    """Codes and scales at random, the scales also where sums are subnormal or overflow."""
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

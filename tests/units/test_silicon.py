"""Tests that matrix units reproduce recorded GPU outputs bit for bit, in float32 and float16."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from mxnum.reference import unit_dot
from tests import silicon

#: The recorded TF32 instructions add 4 products. The rule for 8 products is known only from
#: publications, so mxnum warns.
pytestmark = pytest.mark.filterwarnings("ignore:Unit '(hopper|blackwell)_tf32':mxnum.units.EvidenceWarning")
NAMES = silicon.names()
#: The reference is slow, so it computes only this many cases of each name.
OF_REFERENCE = 40


def test_the_data_cover_every_replayed_row():
    replayed = {name for name in mx.units.names() if mx.units.get(name).status("alignment").status == "replayed"}
    # In hopper_fp8_promoted, software adds sums of hopper_fp8, so there are no GPU outputs.
    assert {silicon.case(name).unit for name in NAMES} == replayed - {"hopper_fp8_promoted"}
    assert silicon.PATH.stat().st_size <= 1 << 20


@pytest.mark.parametrize("name", NAMES)
def test_instructions_give_the_outputs_of_gpus(name):
    unit, a, b, c, d = silicon.case(name)
    got = mx.mma(a[:, None, :], b[:, :, None], c[:, None, None], unit)
    assert got.ravel().view(d.dtype).tolist() == d.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_gives_the_outputs_of_gpus(name):
    unit, a, b, c, d = silicon.case(name)
    row = mx.units.get(unit)
    got = [unit_dot(a[i], b[i], row, c[i], k=a.shape[1]) for i in range(OF_REFERENCE)]
    assert got == d[:OF_REFERENCE].tolist()


@pytest.mark.filterwarnings("ignore::mxnum.units.EvidenceWarning")
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("H100/E4M3/d_fp32", {"fraction_bits": 12}),
        ("H100/E4M3/d_fp32", {"fraction_bits": 14}),
        ("H100/fp16/d_fp32", {"terms": 8}),
        ("H100/fp16/d_fp32", {"rounding": "rne"}),
        ("B200/E4M3/d_fp32", {"addend": "term"}),
        ("B200/E4M3/d_fp16", {"order": ()}),
        ("V100/fp16/d_fp32", {"fraction_bits": 24}),
    ],
)
def test_other_rules_miss_outputs(name, changes):
    unit, a, b, c, d = silicon.case(name)
    other = mx.units.get(unit).but(name="other", **changes)
    got = mx.mma(a[:, None, :], b[:, :, None], c[:, None, None], other)
    assert np.count_nonzero(got.ravel().view(d.dtype) != d) > 0.1 * len(d)

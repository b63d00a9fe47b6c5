"""Tests that the check of claim B12 gives the right verdict on made-up results."""

from __future__ import annotations

import pytest

from mxnum.lab.claims.rows import (
    b12,
)
from tests.lab.claims.made_up import followed, mlp

pytest.importorskip("scipy", reason="the extra 'experiments' is not installed")


N = 12


CALM, LOST, BACK = [None] * N, [(100 + i, None) for i in range(N)], [(100 + i, 200) for i in range(N)]


RATES = ("rate 0.034", "rate 0.048")


def test_each_part_of_the_recipe_has_a_test(tmp_path):
    arms = {"FP32": BACK, "E2M1": LOST, "LN E2M1": [(50 + i, 90) for i in range(N)], "E2M1, LN FP32": CALM}
    table = {f"{arm}, {rate}": followed(spans) for arm, spans in arms.items() for rate in RATES}
    here = mlp(tmp_path, "parts", table, horizon=500)
    found = b12.of_parts(here.json("parts.json"))
    assert [s.what for s in found] == list(b12.PARTS)
    assert [s.holds for s in found] == [True] * 4
    operands = {f"{name} alone": followed(BACK) for name in ("weights", "activations", "gradients")}
    delay = {"FP32": followed(BACK), "products": followed(CALM)} | operands
    mlp(tmp_path, "delay", delay, horizon=500)
    found = b12.CLAIM.run(here)
    assert [s.holds for s in found.statements] == [True] * 5 + [None]
    assert found.answer == (
        "At rates .034 and .048, 24 of 24 runs are runaways with everything in 4 bits, 0 with 4-bit products "
        "alone, 0 with 4-bit layer norm alone, 0 in FP32. At rate .024, 4-bit products delay the jump."
    )
    assert found.note.startswith("At rate 0.024 the jump comes later than in FP32 in these arms: products (exact test")
    mlp(tmp_path, "delay", delay | {"weights alone": followed(CALM)}, horizon=500)
    assert b12.CLAIM.run(here).statements[-1].holds is True
    table |= {f"LN E2M1, {rate}": followed(LOST) for rate in RATES}
    again = b12.of_parts(mlp(tmp_path, "parts", table, horizon=500).json("parts.json"))
    assert [s.holds for s in again] == [True, None, None, True]

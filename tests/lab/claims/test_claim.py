"""Tests that every file of `rows` is a complete claim with one check."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from mxnum.lab.claims import CLAIMS, Claim, Evidence, reproduce, rows

NAMES = [path.stem for path in Path(rows.__file__).parent.glob("*.py") if path.stem != "__init__"]


def test_every_file_is_a_claim_in_the_order_of_the_ledger():
    expected = [*(f"I{n}" for n in (1, 2, 3, 4, 5, "6a", "6b", "6c", 7, 8, 9, 10))]
    expected += [f"M{n}" for n in range(1, 12)] + ["D1", *(f"B{n}" for n in range(1, 14))]
    assert list(CLAIMS) == expected
    assert {f"{name[0].upper()}{name[1:].lstrip('0')}" for name in NAMES} == set(expected)


def test_every_claim_is_complete():
    for id, claim in CLAIMS.items():
        assert id == claim.id
        assert claim.sentence.endswith(".")
        assert claim.how.endswith(".")
        assert not claim.title.endswith(".")
        assert bool(claim.command) == bool(claim.needs)


def test_a_claim_of_ones_own(tmp_path):
    mine = Claim("B99", "Mine", "It is so.", "By looking.", needs=(("a.json", "b.json"),), command="make a")
    with patch.dict(CLAIMS):
        mine.check(lambda context: Evidence(note=context.first("a.json", "b.json")))
        assert (
            reproduce(["B99"], results=tmp_path)["B99"].remark
            == "The check needs the results file a.json: run `make a`."
        )
        (tmp_path / "b.json").write_text('"seen"')
        assert reproduce(["B99"], results=tmp_path)["B99"].evidence.note == "seen"
        with pytest.raises(ValueError, match="'id' must be the id of a new claim, not 'B99'"):
            Claim("B99", "Another", "It is not.", "By looking.").check(lambda context: Evidence())

"""The ledger has every claim once, in full."""

from __future__ import annotations

from mxnum.lab.claims import CLAIMS
from mxnum.lab.claims.registry import checks


def test_every_claim_is_there():
    expected = [*(f"I{n}" for n in (1, 2, 3, 4, 5, "6a", "6b", "6c", 7, 8, 9, 10))]
    expected += [f"M{n}" for n in range(1, 12)] + [f"B{n}" for n in range(1, 13)]
    assert list(CLAIMS) == expected
    assert all(id == claim.id for id, claim in CLAIMS.items())


def test_every_claim_says_what_how_and_who():
    for claim in CLAIMS.values():
        assert claim.sentence.endswith(".")
        assert claim.how.endswith(".")
        assert claim.source
        assert not claim.title.endswith(".")


def test_a_claim_that_is_not_checked_says_what_would_decide_it():
    for id in set(CLAIMS) - set(checks()) - {"B1", "B2", "B3"}:
        assert CLAIMS[id].scale, id

from mxnum.lab.claims.rows.i03 import derived


def test_the_derived_gaps_are_the_claimed_ones():
    gaps = derived()
    assert len(gaps) == 125  # the gaps between 126 positive codes
    assert [round(g, 1) for g in gaps[:7]] == [100, 50, 33.3, 25, 20, 16.7, 14.3]
    binade = gaps[7:15]
    assert binade[0] == 12.5
    assert round(binade[-1], 1) == 6.7
    assert binade == sorted(binade, reverse=True)

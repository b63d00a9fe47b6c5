from __future__ import annotations

import pytest

from mxnum.output.text_table import text_table

NAMES = "arm", "median start", "ends well", "hazard ratio"
ROWS = [("plain", "12", "yes", "-"), ("an arm of a long name", "7", "no", "1.5 (0.2 to 9.9)")]


def test_a_table_without_a_width_is_as_wide_as_it_needs_to_be():
    assert text_table(NAMES, ROWS) == (
        "arm                    median start  ends well      hazard ratio\n"
        "---------------------  ------------  ---------  ----------------\n"
        "plain                            12  yes                       -\n"
        "an arm of a long name             7  no         1.5 (0.2 to 9.9)"
    )


def test_headings_are_broken_before_the_table_is_split():
    assert text_table(NAMES, ROWS, 55) == (
        "                       median  ends\n"
        "arm                     start  well      hazard ratio\n"
        "---------------------  ------  ----  ----------------\n"
        "plain                      12  yes                  -\n"
        "an arm of a long name       7  no    1.5 (0.2 to 9.9)"
    )
    assert text_table(NAMES, ROWS, 50).splitlines()[1] == "arm                    start well     hazard ratio"


def test_columns_that_do_not_fit_follow_in_a_second_table():
    first, second = text_table(NAMES, ROWS, 48).split("\n\n")
    assert first.splitlines()[0] == "arm                    median start  ends well"
    assert second.splitlines()[-1] == "an arm of a long name  1.5 (0.2 to 9.9)"


@pytest.mark.parametrize("width", range(1, 80))
def test_nothing_is_lost_at_any_width(width):
    found = text_table(NAMES, ROWS, width)
    assert all(found.count(cell) >= 1 for row in ROWS for cell in row)
    narrowest = len(ROWS[1][0]) + 1 + len(ROWS[1][3])
    assert max(map(len, found.splitlines())) <= max(width, narrowest)


def test_tables_without_rows_or_columns():
    assert text_table(["a", "b"], []) == "a  b\n-  -"
    assert text_table(["a", "b"], [], 2) == "a b\n- -"
    assert text_table([], []) == ""

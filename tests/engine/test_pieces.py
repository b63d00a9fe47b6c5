"""Work in threads: every piece once, answers in order, errors not lost."""

from __future__ import annotations

import threading

import pytest

from mxnum.engine import pieces


def test_answers_come_in_order_from_threads_of_their_own():
    seen = {}

    def work(piece):
        seen[piece] = threading.current_thread()
        return piece * piece

    assert pieces.in_pieces(work, [3, 1, 2]) == [9, 1, 4]
    assert seen[3] is threading.current_thread()
    assert len(set(seen.values())) == 3


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_an_error_in_any_thread_is_raised(wrong):
    def work(piece):
        if piece == wrong:
            raise ValueError(str(piece))

    with pytest.raises(ValueError, match=str(wrong)):
        pieces.in_pieces(work, [0, 1, 2])


@pytest.mark.parametrize(("length", "parts", "step"), [(10, 3, 1), (0, 2, 1), (100, 3, 32), (5, 4, 8), (64, 2, 32)])
def test_bounds_cover_everything_in_steps(length, parts, step):
    cuts = pieces.bounds(length, parts, step)
    assert cuts == sorted(cuts)
    assert (cuts[0], cuts[-1], len(cuts)) == (0, length, parts + 1)
    assert all(cut % step == 0 for cut in cuts[:-1] if cut < length)


def test_threads_worth_their_cost(monkeypatch):
    monkeypatch.setattr(pieces.numba, "get_num_threads", lambda: 5)
    assert [pieces.worth(work, 10, 3) for work in (0, 19, 20, 30, 900)] == [1, 1, 2, 3, 3]
    assert pieces.worth(900, 10, None) == 5

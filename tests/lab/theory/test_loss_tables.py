"""Tests of tables of losses: rows that are read or left out, and errors that name the line."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.lab.theory import LossTable, loss_table, read_losses

N, D = (a.ravel() for a in np.meshgrid([1e6, 2e6, 4e6], [1e8, 2e8, 4e8]))
L = 1 + 100 / N**0.3 + 100 / D**0.3


def write(path, lines, head="params,tokens,loss"):
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def rows(losses=L, **more):
    return [f"{n},{d},{v}" + "".join(f",{m}" for m in more.values()) for n, d, v in zip(N, D, losses, strict=True)]


def test_what_is_written_is_read(tmp_path):
    table = read_losses(write(tmp_path / "x.csv", rows()))
    assert isinstance(table, LossTable)
    assert table.parameters.tolist() == N.tolist()
    assert table.losses.tolist() == L.tolist()
    assert (len(table), table.left_out) == (9, 0)
    assert table.columns == {"parameters": "params", "tokens": "tokens", "loss": "loss"}
    assert table.flops[0] == 6 * N[0] * D[0]
    assert len(table.where(N == 1e6)) == 3


def test_columns_by_usual_and_by_given_names(tmp_path):
    path = write(
        tmp_path / "x.csv", rows(), head="﻿ N ,D, L"
    )  # the header line begins with a byte order mark and contains blanks
    assert read_losses(path).columns == {"parameters": "N", "tokens": "D", "loss": "L"}
    path = write(tmp_path / "y.csv", rows(), head="size,seen,end")
    assert len(read_losses(path, parameters="size", tokens="seen", loss="end")) == 9
    with pytest.raises(
        ValueError, match=r"^Argument 'parameters' must name a column .*'size'.*no column called parameters"
    ):
        read_losses(path)
    with pytest.raises(ValueError, match=r"^Argument 'loss' must name a column .*, not 'least'\.$"):
        read_losses(path, parameters="size", tokens="seen", loss="least")


def test_rows_of_a_value(tmp_path):
    lines = [row + ",a" for row in rows()] + [row + ",b" for row in rows(2 * L)]
    path = write(tmp_path / "x.csv", lines, head="params,tokens,loss,arm")
    assert read_losses(path, where={"arm": "b"}).losses.tolist() == (2 * L).tolist()
    with pytest.raises(ValueError, match=r"a row with arm=c; it has none"):
        read_losses(path, where={"arm": "c"})
    with pytest.raises(ValueError, match=r"must name a column .*, not 'kind'"):
        read_losses(path, where={"kind": "c"})


def test_rows_without_a_loss_are_left_out_and_counted(tmp_path):
    path = write(tmp_path / "x.csv", [*rows(), "1e6,1e8,", "1e6,1e8,NaN", "1e6,1e8"])
    assert (len(read_losses(path)), read_losses(path).left_out) == (9, 3)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1e6,1e8,-1", r"line 11: loss must be a positive number, not '-1'"),
        ("1e6,1e8,inf", r"line 11: loss must be a positive number, not 'inf'"),
        ("1e6,much,1", r"line 11: tokens must be a positive number, not 'much'"),
        (",1e8,1", r"line 11: params must be a positive number, not ''"),
        ("1e6,1e8,1,2", r"line 11, has more values than there are headings"),
    ],
)
def test_lines_that_are_refused(tmp_path, line, said):
    with pytest.raises(ValueError, match=said) as problem:
        read_losses(write(tmp_path / "x.csv", [*rows(), line]))
    assert str(problem.value).count(".") <= 3


def test_files_that_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"cannot be fitted: 'losses' must be losses of at least 6 runs, not 2\.$"):
        read_losses(write(tmp_path / "x.csv", rows()[:2]))
    with pytest.raises(ValueError, match="a different heading for each column"):
        read_losses(write(tmp_path / "x.csv", rows(), head="N,D,D"))
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="UTF-8"):
        read_losses(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("")
    with pytest.raises(ValueError, match="must name a column"):
        read_losses(tmp_path / "x.csv")
    with pytest.raises(FileNotFoundError):
        read_losses(tmp_path / "y.csv")


def test_sequences_that_are_refused():
    with pytest.raises(ValueError, match=r"'tokens' must be at least 3 different numbers, not 1"):
        loss_table(N, np.full(9, 1e8), L)
    with pytest.raises(ValueError, match=r"'parameters' must be of the same length as 'losses', not 8"):
        loss_table(N[:8], D, L)
    with pytest.raises(ValueError, match=r"'losses' must be positive and finite, not nan at index 3"):
        loss_table(N, D, np.where(np.arange(9) == 3, np.nan, L))
    with pytest.raises(TypeError, match="'tokens' must be a sequence of numbers"):
        loss_table(N, "many", L)
    with pytest.raises(ValueError, match="an array of 2 axes"):
        loss_table(N.reshape(3, 3), D, L)

from __future__ import annotations

from pathlib import Path

import pytest

from mxnum.cli.figure_files import check_figure, write_figure


def test_files_that_cannot_be_written_are_refused_before_any_work(tmp_path):
    check_figure(None)
    with pytest.raises(ValueError, match=r"must be a \.png, \.svg or \.pdf file, not '.*x\.gif'"):
        check_figure(tmp_path / "x.gif")
    with pytest.raises(FileNotFoundError, match="No such folder"):
        check_figure(Path("nowhere") / "x.png")


def test_a_figure_that_fails_leaves_nothing(tmp_path):
    class Broken:
        def savefig(self, path, **options):
            path.write_bytes(b"half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_figure(tmp_path / "x.png", Broken)
    assert list(tmp_path.iterdir()) == []

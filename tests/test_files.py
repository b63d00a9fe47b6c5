from __future__ import annotations

import os

import pytest

from mxnum.files import remove_abandoned, written_whole


def test_the_file_appears_at_the_end(tmp_path):
    path = tmp_path / "x.bin"
    with written_whole(path) as partial:
        partial.write_bytes(b"abc")
        assert not path.exists()
    assert path.read_bytes() == b"abc"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_what_was_there(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")

    def fail():
        with written_whole(path) as partial:
            partial.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_removed(tmp_path):
    import subprocess
    import sys

    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for name in (f"a/.x.npz.{gone.pid}.partial", f".y.json.{os.getpid()}.partial", ".z.partial", "kept.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    remove_abandoned(tmp_path)
    left = sorted(p.name for p in tmp_path.rglob("*") if p.is_file())
    assert left == [f".y.json.{os.getpid()}.partial", ".z.partial", "kept.json"]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with (
        pytest.raises(FileNotFoundError, match=r"No such folder: '.*/nowhere'$"),
        written_whole(tmp_path / "nowhere/x"),
    ):
        pass

from __future__ import annotations

import pytest

from mxnum.files import written_whole


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

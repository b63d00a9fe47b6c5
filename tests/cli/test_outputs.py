from __future__ import annotations

from pathlib import Path

import pytest

from mxnum.cli.outputs import check_output


def test_new_files_and_devices_need_no_force(tmp_path):
    for path in (None, tmp_path / "new", Path("/dev/null"), Path("/dev/stdout")):
        check_output("OUT", path, False)


def test_files_that_exist_need_force(tmp_path):
    path = tmp_path / "there"
    path.touch()
    (tmp_path / "link").symlink_to(path)
    for each in (path, tmp_path / "link"):
        with pytest.raises(ValueError, match=r"^OUT must be a new file unless --force is given: "):
            check_output("OUT", each, False)
        check_output("OUT", each, True)


def test_dash_is_not_a_file():
    with pytest.raises(ValueError, match=r"OUT must be a file, not '-'; for standard output, give /dev/stdout"):
        check_output("OUT", Path("-"), True)

from __future__ import annotations

import errno
import importlib.util
import os
import stat
import threading
from pathlib import Path
from zipfile import BadZipFile

import pytest

import mxnum as mx
from mxnum.output.files import is_stream, reading, remove_abandoned, written_whole


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


def test_partial_files_of_killed_processes_are_removed(tmp_path):
    import subprocess
    import sys

    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    kept = [f".y.json.0123abcd.{os.getpid()}.partial", f".y.part.{gone.pid}.partial", ".z.partial", "kept.json"]
    of_another_machine = f".x.npz.89abcdef.{gone.pid}.partial"
    for name in (f"a/.x.npz.0123abcd.{gone.pid}.partial", *kept, of_another_machine):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (0, 0))
    os.utime(tmp_path / of_another_machine)
    remove_abandoned(tmp_path)
    left = {p.name for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {*kept, of_another_machine}


def test_two_writers_do_not_mix(tmp_path):
    # Regression: two simultaneous writers used the same partial file, and the second deleted what
    # the first had written.
    path = tmp_path / "x.bin"
    with written_whole(path) as first:
        first.write_bytes(b"first")
        with written_whole(path) as second:
            second.write_bytes(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["x.bin"]


def test_long_names(tmp_path):
    # Regression: the name of the partial file was too long for some valid names.
    for name in ("n" * 255, "\N{GRINNING FACE}" * 63):
        write(tmp_path / name)
        assert (tmp_path / name).read_bytes() == b"new"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with (
        pytest.raises(FileNotFoundError, match=r"No such folder: '.*/nowhere'$"),
        written_whole(tmp_path / "nowhere/x"),
    ):
        pass


def write(path, content=b"new"):
    with written_whole(path) as partial:
        partial.write_bytes(content)


# The tests below overwrite existing files, including files with unusual permissions.
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o620])
def test_a_file_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")
    path.chmod(mode)
    with written_whole(path) as partial:
        # The partial file has no wider permissions than the target.
        assert stat.S_IMODE(partial.stat().st_mode) & ~mode == 0
        partial.write_bytes(b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", mode)


def test_new_files_have_the_usual_mode(tmp_path):
    usual, path = tmp_path / "usual", tmp_path / "x.bin"
    usual.touch()
    write(path)
    assert path.stat().st_mode == usual.stat().st_mode


def test_a_link_is_followed_to_its_target(tmp_path):
    (tmp_path / "data").mkdir()
    target, link = tmp_path / "data/x.bin", tmp_path / "link"
    link.symlink_to("data/x.bin")
    for content in (b"first", b"second"):  # the first write creates the target, and the second replaces the target
        write(link, content)
        assert link.is_symlink()
        assert target.read_bytes() == content
    assert os.listdir(tmp_path / "data") == ["x.bin"]
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links") as raised:
        write(tmp_path / "loop")
    assert raised.value.filename == str(tmp_path / "loop")
    link.unlink()
    link.symlink_to("nowhere/x.bin")
    with pytest.raises(FileNotFoundError, match="No such folder"):
        write(link)


def test_other_names_of_a_file_keep_what_it_was(tmp_path):
    path, other = tmp_path / "x.bin", tmp_path / "other"
    path.write_bytes(b"old")
    other.hardlink_to(path)
    write(path)
    assert (path.read_bytes(), other.read_bytes()) == (b"new", b"old")


def test_a_fifo_is_written_into(tmp_path):
    path, got = tmp_path / "fifo", []
    os.mkfifo(path)
    assert is_stream(path)
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()), daemon=True)
    reader.start()
    with written_whole(path) as partial, partial.open("wb") as file:
        file.write(b"??????")
        file.seek(0)  # a writer may seek
        file.write(b"abc")
    reader.join(10)
    assert got == [b"abc???"]
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert os.listdir(tmp_path) == ["fifo"]


def test_devices_are_written_into():
    for name in ("/dev/null", "/dev/full"):
        before = os.stat(name)
        if name == "/dev/null":
            write(name)
        else:
            with pytest.raises(OSError, match="'/dev/full'") as raised:
                write(name)
            assert raised.value.errno == errno.ENOSPC
        assert (os.stat(name).st_ino, os.stat(name).st_mode) == (before.st_ino, before.st_mode)


def test_standard_output_is_written_as_a_stream(tmp_path, capfd):
    path = Path("/dev/stdout")
    assert is_stream(path)
    write(path, b"told")
    assert capfd.readouterr().out == "told"


def test_what_cannot_be_written_is_named(tmp_path, monkeypatch):
    with pytest.raises(IsADirectoryError) as raised:
        write(tmp_path)
    assert raised.value.filename == str(tmp_path)
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")
    path.chmod(0o444)
    # Pretend that access is denied, since root may write to every file.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError) as raised:
        write(path)
    assert raised.value.filename == str(path)
    monkeypatch.undo()

    def fill():
        with written_whole(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: .*x.bin'$"):
        fill()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.bin"]
    with pytest.raises(OSError, match="File name too long") as raised:
        write(tmp_path / ("n" * 256))
    assert raised.value.filename.endswith("nnn")


def test_errors_of_readers_become_one_sentence_about_the_file(tmp_path):
    # Regression: `reading` turned only two types of errors into a message that names the file.
    path, told = tmp_path / "x.npz", {}
    for problem in (
        MemoryError("8 EiB"),
        KeyError("scales"),
        BadZipFile("b'...'"),
        NotImplementedError("compression type 99. Ask another reader."),
        ValueError("pass allow_pickle=True"),
        OSError("a bad\nblock"),
        RecursionError(),
    ):
        with pytest.raises(ValueError, match=r"^File '.*x.npz' cannot be read: ") as raised, reading(path):
            raise problem
        told[type(problem).__name__] = str(raised.value).split(": ")[1]
    assert told == {
        "MemoryError": "the array that it describes does not fit into memory.",
        "KeyError": "it lacks 'scales'.",
        "BadZipFile": "it is a damaged archive.",
        "NotImplementedError": "compression type 99.",
        "ValueError": "it contains Python objects, or is not a file of arrays.",
        "OSError": "a bad block.",
        "RecursionError": "RecursionError.",
    }
    with pytest.raises(FileNotFoundError), reading(path):
        path.read_bytes()
    with pytest.raises(ValueError, match=r"^File '.*x.npz' is known already$"), reading(path):
        raise ValueError(f"File {str(path)!r} is known already")


def test_an_empty_path_is_refused(tmp_path, monkeypatch):
    """Check that an empty path raises an error and is not taken for the current folder."""
    from mxnum.interop import checkpoints, gguf, gpt_oss, safetensors
    from mxnum.lab import claims
    from mxnum.lab.claims.reproduction import reproduce_into
    from mxnum.lab.studies import studies, study_file
    from mxnum.lab.studies.run_study import run_study
    from mxnum.lab.theory import read_losses

    monkeypatch.chdir(tmp_path)
    q = mx.quantize([1.0] * 32, "mxfp4_e2m1")
    safetensors.save("model.safetensors", {"w": q})
    for argument, call in (
        ("path", lambda: checkpoints.Checkpoint("")),
        ("path", lambda: safetensors.load("")),
        ("path", lambda: safetensors.save("", {"w": q})),
        ("path", lambda: gpt_oss.load_tensor("", "w")),
        ("path", lambda: mx.MXArray.load("")),
        ("path", lambda: q.save("")),
        ("path", lambda: read_losses("")),
        ("path", lambda: studies.read("")),
        ("folder", lambda: study_file.folders_of("mine", "")),
        ("store", lambda: run_study("quick", "")),
        ("folder", lambda: reproduce_into("")),
        ("results", lambda: claims.reproduce([], results="")),
    ):
        with pytest.raises(ValueError, match=f"Argument '{argument}' must be the path of a file or a folder, not ''"):
            call()
    if importlib.util.find_spec("gguf") is not None:
        with pytest.raises(ValueError, match="Argument 'path' must be the path of a file or a folder, not ''"):
            gguf.names("")
    if importlib.util.find_spec("torch") is not None:
        from mxnum.lab import language_model

        with pytest.raises(ValueError, match="Argument 'path' must be the path of a file or a folder, not ''"):
            language_model.Text("")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]

import numpy as np
import pytest

from mxnum.lab import storage


def test_round_trips(tmp_path):
    storage.write_json(tmp_path / "a" / "b.json", {"x": [1, None]})
    assert storage.read_json(tmp_path / "a" / "b.json") == {"x": [1, None]}
    storage.write_arrays(tmp_path / "c.npz", {"x": np.arange(3), "y": np.float32(2)})
    arrays = storage.read_arrays(tmp_path / "c.npz")
    assert arrays["x"].tolist() == [0, 1, 2]
    assert arrays["y"].dtype == np.float32


@pytest.mark.parametrize("size", [0, 200])
@pytest.mark.parametrize(("name", "read"), [("a.npz", storage.read_arrays), ("a.json", storage.read_json)])
def test_a_damaged_file_is_named(tmp_path, name, read, size):
    storage.write_arrays(tmp_path / "a.npz", {"x": np.arange(300)})
    storage.write_json(tmp_path / "a.json", {"x": list(range(300))})
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:size])
    with pytest.raises(ValueError, match=rf"File '.*{name}' cannot be read: "):
        read(tmp_path / name)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.json"
    storage.write_json(path, 1)
    with pytest.raises(TypeError):
        storage.write_json(path, {"x": object()})
    assert storage.read_json(path) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_the_environment_names_what_bits_depend_on():
    table = storage.environment()
    assert {"mxnum", "numpy", "numba", "processor", "cores"} <= set(table)
    assert all(table[name] for name in ("mxnum", "numpy", "numba", "processor"))
    pytest.importorskip("threadpoolctl", reason="the extra 'experiments' is not installed")
    assert len(table["blas"].split()) == 3


def test_lists_of_numbers_take_one_line(tmp_path):
    value = {"a": [1.5, None, 2], "b": [{"c": ["x [ y", "z,\n  w"]}], "d": []}
    storage.write_json(tmp_path / "a.json", value)
    assert storage.read_json(tmp_path / "a.json") == value
    assert ' "a": [ 1.5, null, 2 ],' in (tmp_path / "a.json").read_text().splitlines()

"""Tests of reading checkpoints of several programs, and a checkpoint larger than memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.interop import safetensors
from mxnum.interop.checkpoints import Checkpoint, to_tensors
from tests import samples

E4M3 = ml_dtypes.float8_e4m3fn
FP8 = "e4m3:block=128,scale=float32"


def example(fmt, shape=(8, 64), **options):
    return mx.quantize(samples.generator("checkpoint", fmt).standard_normal(shape).astype(np.float32), fmt, **options)


#: The layouts that can be written, by the name that `Checkpoint.layout` reports. Each entry has the
#: name that `to_tensors` takes, and a function that makes a weight.
WRITTEN = {
    "nvfp4 compressed_tensors": ("compressed_tensors", lambda: example("nvfp4", arithmetic="compressed_tensors")),
    "nvfp4 modelopt": ("modelopt", lambda: example("nvfp4")),
    "mxfp4 compressed_tensors": ("compressed_tensors", lambda: example("mxfp4_e2m1")),
    "mxfp4 gpt_oss": ("gpt_oss", lambda: example("mxfp4_e2m1")),
    "fp8": ("deepseek", lambda: example(FP8, (200, 300), block_shape=(128, 128))),
}


@pytest.mark.parametrize("layout", WRITTEN)
def test_written_weights_are_read_back(tmp_path, layout):
    kind, make = WRITTEN[layout]
    q, others = make(), {"norm.weight": np.ones(3, np.float32), "l.bias": np.ones(2, ml_dtypes.bfloat16)}
    tensors = {**to_tensors("l.weight", q, kind), **others, "l.input_scale": np.ones(1, np.float32), "own": q}
    safetensors.save(tmp_path / "m.safetensors", tensors)
    checkpoint = Checkpoint(tmp_path / "m.safetensors")
    assert set(checkpoint.names()) == {"l.weight", "l.input_scale", "own", *others}
    assert checkpoint.layout("l.weight") == layout
    assert checkpoint.tensor("l.weight").equals(q)
    assert checkpoint.layout("own") == "mxnum"
    assert checkpoint.tensor("own").equals(q)
    for name, array in others.items():
        assert checkpoint.layout(name) == "plain"
        assert np.array_equal(checkpoint.tensor(name), array)
    again = to_tensors("l.weight", checkpoint.tensor("l.weight"), kind)
    assert all(again[name].tobytes() == tensors[name].tobytes() for name in again)


def test_scales_of_mxfp8_are_bytes_for_compressed_tensors(tmp_path):
    # Regression: scales had the type float8_e8m0fnu, and compressed_tensors took values for codes.
    q = example("mxfp8_e4m3")
    tensors = to_tensors("l.weight", q, "compressed_tensors")
    assert tensors["l.weight_scale"].dtype == np.uint8
    assert np.array_equal(tensors["l.weight_scale"], q.scales)
    safetensors.save(tmp_path / "m.safetensors", tensors)
    assert Checkpoint(tmp_path / "m.safetensors").tensor("l.weight").equals(q)


def test_a_folder_with_a_configuration(tmp_path):
    q = example("e4m3:block=64,scale=float32", (100, 130), block_shape=(64, 64))
    other = example("nvfp4")
    safetensors.save(tmp_path / "model-1.safetensors", to_tensors("a.weight", q, "deepseek"))
    safetensors.save(tmp_path / "model-2.safetensors", to_tensors("b.weight", other, "modelopt"))
    # Regression: the error message said "File" although the path was a folder.
    with pytest.raises(
        ValueError, match=r"Folder '.*' must hold 'a.weight' in the layout fp8: Argument 'scales' must be of"
    ):
        Checkpoint(tmp_path).tensor("a.weight")
    with pytest.raises(
        ValueError, match=r"File '.*' must hold 'a.weight' in the layout fp8: Argument 'scales' must be of"
    ):
        Checkpoint(tmp_path / "model-1.safetensors").tensor("a.weight")
    assert Checkpoint(tmp_path, block_shape=(64, 64)).tensor("a.weight").equals(q)
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.tensor("a.weight").equals(q)
    assert checkpoint.tensor("b.weight").equals(other)
    # Truncated JSON and JSON whose content is not an object raise an error.
    for text, why in [
        ("{", "Expecting"),
        ("[]", "its content is a list, not a JSON object"),
        ('{"quantization_config": "fp8"}', "quantization_config is a str, not a JSON object"),
    ]:
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match=rf"^File '.*config.json' must be a configuration in JSON: {why}"):
            Checkpoint(tmp_path)
    (tmp_path / "config.json").write_text('{"quantization_config": {"weight_block_size": 64}}')
    with pytest.raises(TypeError, match="'weight_block_size' must be a tuple of block lengths, not 64"):
        Checkpoint(tmp_path)
    (tmp_path / "config.json").unlink()
    safetensors.save(tmp_path / "model-3.safetensors", to_tensors("b.weight", other, "modelopt"))
    with pytest.raises(ValueError, match=r"must hold each tensor once, not 'b.weight' twice"):
        Checkpoint(tmp_path)
    index = {"weight_map": {"a.weight": "model-1.safetensors", "b.weight": "model-3.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    checkpoint = Checkpoint(tmp_path, block_shape=(64, 64))
    assert checkpoint.tensor("a.weight").equals(q)
    assert checkpoint.tensor("b.weight").equals(other)
    for text, why in [
        ("{}", "it lacks 'weight_map'"),
        ("[]", "its content is a list, not a JSON object"),
        ('{"weight_map": []}', "weight_map is a list, not a JSON object"),
        # Regression: the reader opened files outside the index's folder. If the index had a number
        # in place of a file name, an unrelated error was raised.
        ('{"weight_map": {"a": 3, "b": "c"}}', "it lists 'a' in the file 3, which is not in the index's folder"),
        ('{"weight_map": {"a": "../x"}}', "it lists 'a' in the file '../x', which is not in the index's folder"),
        ('{"weight_map": {"a": "b/../../x"}}', "it lists 'a' in the file 'b/../../x', which"),
        (json.dumps({"weight_map": {"a": str(tmp_path / "model-1.safetensors")}}), "it lists 'a' in the file '/"),
    ]:
        (tmp_path / "model.safetensors.index.json").write_text(text)
        with pytest.raises(ValueError, match=rf"index.json' must be an index in JSON: {why}"):
            Checkpoint(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"c": "model-1.safetensors"}}')
    with pytest.raises(ValueError, match=r"model-1.safetensors' must hold 'c', because the folder's index says so\.$"):
        Checkpoint(tmp_path)
    (tmp_path / "consolidated.safetensors.index.json").write_text('{"weight_map": {}}')
    # If a folder has several index files, the reader takes the file with the usual name.
    with pytest.raises(ValueError, match=r"must hold 'c', because the folder's index"):
        Checkpoint(tmp_path)
    (tmp_path / "model.safetensors.index.json").rename(tmp_path / "other.safetensors.index.json")
    with pytest.raises(ValueError, match=r"must hold one index, not 'consolidated.* and 'other.safetensors.index"):
        Checkpoint(tmp_path)


def test_an_index_leads_to_links_and_folders(tmp_path):
    """Check an index that names a file in a subfolder, which links to a file in another folder."""
    q = example("mxfp4_e2m1")
    (tmp_path / "blobs").mkdir()
    safetensors.save(tmp_path / "blobs/1", to_tensors("w", q, "gpt_oss"))
    (tmp_path / "model/part").mkdir(parents=True)
    (tmp_path / "model/part/a.safetensors").symlink_to(tmp_path / "blobs/1")
    index = {"weight_map": {"w_blocks": "part/a.safetensors", "w_scales": "part/a.safetensors"}}
    (tmp_path / "model/model.safetensors.index.json").write_text(json.dumps(index))
    assert Checkpoint(tmp_path / "model").tensor("w").equals(q)


def test_two_weights_of_one_name_are_refused(tmp_path):
    # Regression: if two weights had the same name, the later weight was silently used.
    q = example("mxfp4_e2m1")
    packed, blocks = to_tensors("w", q, "compressed_tensors"), to_tensors("w", q, "gpt_oss")
    dots = {name.replace("_", "."): part for name, part in blocks.items()}
    for tensors, layouts in [
        ({**packed, "w": np.ones(3)}, "mxfp4 compressed_tensors and plain"),
        ({**packed, "w": q}, "mxnum and mxfp4 compressed_tensors"),
        ({**packed, "w": np.ones((8, 64), E4M3)}, "mxfp4 compressed_tensors and fp8"),
        ({**blocks, **dots}, "mxfp4 gpt_oss and mxfp4 gpt_oss"),
    ]:
        safetensors.save(tmp_path / "m.safetensors", tensors)
        with pytest.raises(ValueError, match=rf"must hold each weight once, not 'w' as {layouts}\.$"):
            Checkpoint(tmp_path / "m.safetensors")


@pytest.mark.parametrize("layout", ["fp8", "nvfp4 modelopt"])
def test_a_zero_point_that_is_not_zero_is_refused(tmp_path, layout):
    """Check that a zero point other than zero raises an error."""
    kind, make = WRITTEN[layout]
    q, path = make(), tmp_path / "m.safetensors"
    tensors = to_tensors("w", q, kind)
    safetensors.save(path, {**tensors, "w_zero_point": np.zeros((8, 1), E4M3)})
    assert Checkpoint(path).tensor("w").equals(q)
    safetensors.save(path, {**tensors, "w_zero_point": np.full((8, 1), -2, E4M3)})
    with pytest.raises(
        ValueError, match=r"'w_zero_point' must be zero, because mxnum's formats have no zero point, not 2\.0"
    ):
        Checkpoint(path).tensor("w")


def test_parts_of_a_weight_may_lie_in_two_files(tmp_path):
    q = example(FP8, (200, 300), block_shape=(128, 128))
    for i, (name, part) in enumerate(to_tensors("w", q, "deepseek").items()):
        safetensors.save(tmp_path / f"{i}.safetensors", {name: part})
    assert Checkpoint(tmp_path).names() == ["w"]
    assert Checkpoint(tmp_path).tensor("w").equals(q)


@pytest.mark.parametrize("layout", ["deepseek", "modelopt", "compressed_tensors"])
@pytest.mark.parametrize("tile", [(96, 96), (64, 32), (1, 40)])
def test_block_shape_sets_the_tiles_under_each_name(tmp_path, layout, tile):
    # Regression: `block_shape` had an effect only if the scales were named weight_scale_inv. If
    # they were named weight_scale, tiles of 96 x 96 were read as tiles of 128 x 128.
    q = example(f"e4m3:block={tile[1]},scale=float32", (192, 192), block_shape=tile)
    rows = example("e4m3:block=192,scale=float32", (192, 192))
    one = example("e4m3:block=192,scale=float32", (192, 192), block_shape=(192, 192))
    parts = {"rows": rows.elements, "rows_scale": rows.scales, "one": one.elements, "one_scale_inv": one.scales}
    safetensors.save(tmp_path / "m.safetensors", {**to_tensors("w", q, layout), **parts})
    checkpoint = Checkpoint(tmp_path / "m.safetensors", block_shape=tile)
    for name, want in (("w", q), ("rows", rows), ("one", one)):
        assert np.array_equal(checkpoint.tensor(name).dequantize(), want.dequantize())
    with pytest.raises(ValueError, match="'scales' must be of shape"):
        Checkpoint(tmp_path / "m.safetensors", block_shape=(200, 200)).tensor("w")


def test_a_weight_with_two_tensors_of_scales_is_rejected(tmp_path):
    q = example("e4m3:block=32,scale=float32", (32, 32), block_shape=(32, 32))
    tensors = to_tensors("w", q, "deepseek") | to_tensors("w", q, "modelopt")
    safetensors.save(tmp_path / "m.safetensors", tensors)
    with pytest.raises(ValueError, match="Weight 'w' must have one tensor of scales, not both 'w_scale_inv' and"):
        Checkpoint(tmp_path / "m.safetensors").tensor("w")


def test_direction_of_a_global_scale_comes_from_names_or_the_caller(tmp_path):
    q = mx.quantize(np.ones((2, 32), np.float32), "nvfp4", tensor_scale=2.0**-3)
    path = tmp_path / "m.safetensors"
    safetensors.save(path, to_tensors("w", q, "modelopt"))
    for method in ("modelopt", "of another", None):
        (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": method}}))
        assert Checkpoint(path).tensor("w").equals(q)
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "compressed-tensors"}}))
    with pytest.raises(ValueError, match=r"must be given for 'w', because its tensors are named as in modelopt, but"):
        Checkpoint(path).tensor("w")
    assert Checkpoint(path, direction="decode").tensor("w").equals(q)
    assert Checkpoint(path, direction="encode").tensor("w").tensor_scale == 2.0**3


def test_names_of_fused_experts(tmp_path):
    q = mx.quantize(np.ones((3, 4, 32), np.float32), "nvfp4", tensor_scale=np.ones((3, 1, 1), np.float32))
    parts = dict(zip(("", "_weight_scale", "_weight_scale_2"), to_tensors("x", q, "modelopt").values(), strict=True))
    safetensors.save(tmp_path / "m.safetensors", {f"experts.gate_up_proj{end}": part for end, part in parts.items()})
    assert Checkpoint(tmp_path / "m.safetensors").tensor("experts.gate_up_proj").equals(q)


def test_similar_tensors_are_not_taken_for_quantized_weights(tmp_path):
    scales = np.ones((2, 2), np.float32)
    plain = {
        "a.weight_packed": np.ones((2, 4), np.int32), "a.weight_scale": scales, "a.weight_global_scale": scales,
        "b.weight": np.ones((2, 4), np.int8), "b.weight_scale": scales,
        "c.weight": np.ones((2, 4), np.uint8), "c.weight_scale": scales,
    }  # fmt: skip
    safetensors.save(tmp_path / "m.safetensors", plain)
    checkpoint = Checkpoint(tmp_path / "m.safetensors")
    assert {name: checkpoint.layout(name) for name in checkpoint.names()} == dict.fromkeys(plain, "plain")


@pytest.mark.parametrize(("layout", "missing"), [("modelopt", "w_scale_2"), ("compressed_tensors", "w_global_scale")])
def test_a_missing_global_scale_raises(tmp_path, layout, missing):
    # Regression: without the global scale, the packed bytes were returned as a plain weight.
    parts = to_tensors("w", example("nvfp4", arithmetic="compressed_tensors"), layout)
    elements = next(iter(parts))
    safetensors.save(tmp_path / "m.safetensors", {name: part for name, part in parts.items() if name != missing})
    checkpoint = Checkpoint(tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match=f"must hold '{missing}' as well as '{elements}' and 'w_scale'"):
        checkpoint.tensor(elements)
    assert checkpoint.tensor("w_scale").shape == parts["w_scale"].shape


#: A program that reads a tile of each weight of a checkpoint, and prints how much memory the
#: reading took.
READ = """
import resource, sys
from mxnum.interop.checkpoints import Checkpoint

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

checkpoint = Checkpoint(sys.argv[1])
first = checkpoint.tensor("0.weight")[:128, :128].dequantize()
before, elements = peak(), 0
for name in checkpoint.names():
    weight = checkpoint.tensor(name)
    assert weight[-128:, -128:].dequantize().shape == (128, 128)
    elements += weight.size
print(elements, peak() - before)
"""


def test_a_checkpoint_larger_than_memory(tmp_path):
    """Check that a sparse file twice as large as memory is read with little memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    shape, header, start = (1 << 15, 1 << 16), {}, 0
    count = 2 * memory // (1 << 31) + 1
    for i in range(count):
        for name, kind, lengths, size in (
            ("weight", "F8_E4M3", shape, 1 << 31),
            ("weight_scale_inv", "F32", (1 << 8, 1 << 9), 1 << 19),
        ):
            header[f"{i}.{name}"] = {"dtype": kind, "shape": lengths, "data_offsets": [start, start + size]}
            start += size
    text, path = json.dumps(header).encode(), tmp_path / "m.safetensors"
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        try:
            file.truncate(8 + len(text) + start)
        except OSError:
            pytest.skip("the file system does not support files of this size")
    if path.stat().st_blocks * 512 > 1 << 30:
        pytest.skip("the file system does not support sparse files")
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    elements, more = map(int, done.stdout.split())
    assert elements == count << 31
    assert path.stat().st_size > 2 * memory
    # The scales of each weight, and the rows that contain the tile, may be in memory.
    assert more < count * ((1 << 19) + 128 * shape[1]) + (32 << 20)


def test_mistakes(tmp_path):
    with pytest.raises(ValueError, match=r"must hold files that end in .safetensors; it has none"):
        Checkpoint(tmp_path)
    safetensors.save(tmp_path / "m.safetensors", {"x": np.ones(2)})
    with pytest.raises(ValueError, match=r"'name' must be one of \['x'\], not 'y'"):
        Checkpoint(tmp_path).tensor("y")
    with pytest.raises(ValueError, match="'direction' must be one of"):
        Checkpoint(tmp_path, direction="up")
    q = example("nvfp4")
    for call, message in [
        (lambda: to_tensors("w", q, "other"), "'layout' must be one of"),
        (lambda: to_tensors("w", q, "deepseek"), "'layout' must be one that stores nvfp4, not 'deepseek'"),
        (lambda: to_tensors("w", example("mxfp4_e2m1"), "modelopt"), "'layout' must be one that stores mxfp4_e2m1"),
        (lambda: to_tensors("w", q, "gpt_oss"), "of E8M0 scales"),
        (lambda: to_tensors("w", example(FP8), "deepseek", global_scale=1.0), "'global_scale' must be left out for"),
        (lambda: to_tensors("w", np.ones(2), "deepseek"), "'q' must be an MXArray"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            call()


def test_the_official_libraries_read_files_that_are_written_here(tmp_path):
    """Check that the packages safetensors and compressed-tensors read the files of mxnum.

    For files in the layout of ModelOpt, compressed-tensors has a converter.
    """
    load_file = pytest.importorskip("safetensors.torch", reason="the package safetensors is not installed").load_file
    pytest.importorskip("compressed_tensors", reason="compressed_tensors is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
        from compressed_tensors.entrypoints.convert.converters.modelopt_nvfp4 import ModelOptNvfp4Converter
        from compressed_tensors.quantization import QuantizationScheme
        from compressed_tensors.quantization.quant_scheme import NVFP4
    # The tensor scale is a power of two, so that nothing is rounded twice.
    q = mx.quantize(samples.generator("official").standard_normal((8, 64)), "nvfp4", tensor_scale=2.0**-9)
    for layout in ("modelopt", "compressed_tensors"):
        safetensors.save(tmp_path / "m.safetensors", to_tensors("l.weight", q, layout))
        tensors = load_file(tmp_path / "m.safetensors")
        if layout == "modelopt":
            tensors = ModelOptNvfp4Converter(targets=["l"]).process(tensors)
        own = {name.removeprefix("l."): tensor for name, tensor in tensors.items()}
        assert set(own) == {"weight_packed", "weight_scale", "weight_global_scale"}
        read = NVFP4PackedCompressor.decompress(own, QuantizationScheme(**NVFP4, targets=["Linear"]))["weight"]
        assert np.array_equal(read.float().numpy(), q.dequantize("bfloat16").astype(np.float32))
        converted = {f"l.{name}": tensor for name, tensor in own.items()}
        safetensors.save(tmp_path / "again.safetensors", converted)
        assert Checkpoint(tmp_path / "again.safetensors").tensor("l.weight").equals(q)


def test_the_official_library_reads_and_writes_mxfp4(tmp_path):
    """Check that mxnum and compressed-tensors read each other's MXFP4 files."""
    load_file = pytest.importorskip("safetensors.torch", reason="the package safetensors is not installed").load_file
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("compressed_tensors", reason="compressed_tensors is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
        from compressed_tensors.quantization import QuantizationScheme
        from compressed_tensors.quantization.quant_scheme import MXFP4
    scheme, q = QuantizationScheme(**MXFP4, targets=["Linear"]), example("mxfp4_e2m1")
    safetensors.save(tmp_path / "m.safetensors", to_tensors("l.weight", q, "compressed_tensors"))
    stored = {name.removeprefix("l."): tensor for name, tensor in load_file(tmp_path / "m.safetensors").items()}
    read = MXFP4PackedCompressor.decompress(dict(stored), scheme)["weight"]
    assert np.array_equal(read.float().numpy(), q.dequantize())
    powers = torch.from_numpy(np.exp2(q.scales.astype(np.float32) - 127))
    made = MXFP4PackedCompressor.compress({"weight": read.float(), "weight_scale": powers}, scheme)
    safetensors.save(tmp_path / "again.safetensors", {f"l.{name}": tensor for name, tensor in made.items()})
    again = Checkpoint(tmp_path / "again.safetensors").tensor("l.weight")
    assert np.array_equal(again.scales, q.scales)
    assert np.array_equal(again.codes & 7, q.codes & 7)  # zeros lose their signs in compressed-tensors
    assert np.array_equal(again.dequantize(), q.dequantize())

"""Tests that optional packages load only when used, and that errors name the missing extra."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import mxnum as mx
from mxnum.plots import histogram

ROOT = Path(__file__).parents[1]


def interop(name):
    return importlib.import_module(f"mxnum.interop.{name}")


def loaded_anew(name):
    """Import a module again as if for the first time, and return it."""
    spec = importlib.util.find_spec(name)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def eight_bits():
    return mx.quantize(np.ones((2, 32), np.float32), "mxfp8_e4m3")


def explore_with_a_plot(folder):
    from mxnum.cli.command_explore import explore

    np.save(folder / "x.npy", np.ones(32, np.float32))
    explore(folder / "x.npy", plot=folder / "x.png", top=1, sample=0)


def on_a_cluster():
    from mxnum.lab.studies.sweep import cluster

    with cluster("tcp://nowhere:1"):
        pass


#: For each optional package: its name, the extra that installs it, and a call that needs it.
NEEDS = [
    ("torch", "torch", lambda _: interop("torch").to_torch(eight_bits())),
    ("torch", "torch", lambda _: interop("torch").from_torch(None, None)),
    ("torch", "torch", lambda _: interop("torch").quantize(None, "mxfp8_e4m3")),
    ("torchao", "torchao", lambda _: interop("torchao").from_torchao(None)),
    ("torch", "torch", lambda _: loaded_anew("mxnum.torch")),
    ("onnx", "onnx", lambda _: interop("onnx").to_onnx(eight_bits(), "x")),
    ("onnx", "onnx", lambda _: interop("onnx").from_onnx(None, None)),
    ("gguf", "gguf", lambda _: interop("gguf").load_tensor("x.gguf", "x")),
    ("dask", "distributed", lambda _: interop("dask").quantize(np.ones(32), "mxfp8_e4m3")),
    ("dask", "distributed", lambda _: interop("dask").fake_quantize(np.ones(32), "mxfp8_e4m3")),
    ("distributed", "distributed", lambda _: on_a_cluster()),
    ("matplotlib", "plots", lambda _: histogram(np.ones(32, np.float32), "mxfp8_e4m3")),
    ("matplotlib", "plots", explore_with_a_plot),
    ("jinja2", "reproduce", lambda _: importlib.import_module("mxnum.lab.claims.document").html(None, "", {}, None)),
    ("hypothesis", "test", lambda _: loaded_anew("mxnum.conformance.strategies")),
    ("z3", "prove", lambda _: importlib.import_module("mxnum.conformance").prove("x.sv", "encode", "mxfp8_e4m3")),
    ("flint", "proofs", lambda _: importlib.import_module("mxnum.analysis.arithmetics").ArbArithmetic(64)),
]


@pytest.mark.parametrize(("package", "extra", "call"), NEEDS, ids=[f"{i}-{n[0]}" for i, n in enumerate(NEEDS)])
def test_a_missing_package_is_named_with_its_extra(package, extra, call, monkeypatch, tmp_path):
    if package == "matplotlib" and call is explore_with_a_plot:
        pytest.importorskip("typer", reason="the extra cli is not installed")
    for loaded in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, loaded, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError) as caught:
        call(tmp_path)
    assert str(caught.value) == f"Package '{package}' is not installed; install it with pip install \"mxnum[{extra}]\"."


def test_extras_contain_the_packages_that_errors_name():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package, extra, _ in NEEDS:
        distribution = {"flint": "python-flint", "z3": "z3-solver"}.get(package, package)
        assert any(re.match(rf"{distribution}\b", requirement) for requirement in extras[extra]), (package, extra)


def test_modules_that_need_no_optional_package():
    q = mx.quantize(np.ones((2, 64), np.float32), "mxfp4_e2m1")
    modules = "views safetensors checkpoints nvfp4 fp8 gpt_oss swizzle gguf torch torchao onnx dask"
    for name in modules.split():
        assert interop(name) is not None
    assert interop("gguf").from_gguf_blocks(interop("gguf").to_gguf_blocks(q)).equals(q)
    assert interop("gpt_oss").from_gpt_oss(*interop("gpt_oss").to_gpt_oss(q)).equals(q)

"""Tests of the choice of an engine by an array's device, and of the error for a missing engine."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from mxnum.engine import dispatch
from mxnum.engine.quantizing import host


def test_host_arrays_take_the_host_engine():
    assert dispatch.engine(x=np.zeros(3), scales=None) is host


def said(hide_numba_cuda: bool) -> dict[str, str]:
    """Return the error for an array that claims to be on a GPU, in a process without a GPU."""
    script = f"""
import importlib.util, json, sys, types
import numpy as np, mxnum as mx
find = importlib.util.find_spec
if {hide_numba_cuda}:
    importlib.util.find_spec = lambda name, package=None: None if name == "numba_cuda" else find(name, package)
x = np.zeros(64, np.float32)
away = types.SimpleNamespace(__cuda_array_interface__={{**x.__array_interface__, "version": 3}})
try:
    mx.quantize(away, "mxint8")
except Exception as problem:
    print(json.dumps({{"type": type(problem).__name__, "text": str(problem)}}))
"""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "NUMBA_ENABLE_CUDASIM": "0"}
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    return json.loads(answer.stdout)


def test_a_missing_extra_is_named():
    assert said(True) == {
        "type": "ModuleNotFoundError",
        "text": 'Arrays on a GPU need numba-cuda, which comes with: pip install "mxnum[cuda]"',
    }


@pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is missing")
def test_a_missing_driver_is_said_in_one_sentence():
    found = said(False)
    assert found["type"] == "RuntimeError"
    assert found["text"].startswith("Arrays on a GPU need a CUDA driver and a GPU that numba-cuda can use; reason: ")
    assert "\n" not in found["text"]

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numba

PLUGIN = Path(__file__).parents[2] / "mxnum" / "conformance"
KERNELS = """
import mxnum as mx
import pytest

@pytest.mark.parametrize("claimed", ["rna", "rne"])
def test_kernel(mx_check, claimed):
    kernel = lambda x: mx.encode(x, "e2m1", rounding="rna")
    report = mx_check(kernel, format="mxfp4_e2m1", operation="encode", rounding=claimed)
    assert report.cases > 5000

def test_arrays(mx_check_arrays):
    def kernel(x):
        q = mx.quantize(x, "mxfp4_e2m1")
        return q.codes, q.scales

    assert mx_check_arrays(kernel, format="mxfp4_e2m1", shapes=[(3, 33)]).is_equal
"""


def pytest_run(path):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "pytest_mxnum",
        "-p",
        "no:cacheprovider",
        str(path),
    ]
    root = str(PLUGIN.parents[1])
    environment = {"PYTHONPATH": f"{PLUGIN}:{root}", "PATH": "/usr/bin:/bin", "HOME": str(path.parent)}
    if numba.config.CACHE_DIR:  # reuse loops that other tests have compiled
        environment["NUMBA_CACHE_DIR"] = str(numba.config.CACHE_DIR)
    # An installed mxnum registers the same plugin with pytest. Autoloading is off, so that only the
    # option `-p pytest_mxnum` loads the plugin.
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return subprocess.run(command, capture_output=True, text=True, cwd=path.parent, env=environment)


def test_the_fixtures(tmp_path):
    """Check that pytest passes for right kernels, and shows a failing input for a wrong kernel."""
    path = tmp_path / "test_kernels.py"
    path.write_text(KERNELS)
    answer = pytest_run(path)
    assert answer.returncode == 1, answer.stdout
    assert re.findall(r"^FAILED .*::(\S+)", answer.stdout, re.M) == ["test_kernel[rne]"]
    assert "1 failed, 2 passed" in answer.stdout
    assert answer.stdout.count("Smallest failing input found") == 1


def test_loading_the_plugin_imports_nothing():
    probe = (
        "import sys; sys.path.insert(0, sys.argv[1]); import pytest; before = set(sys.modules); import pytest_mxnum; "
    )
    probe += "print(sorted(m for m in set(sys.modules) - before if not m.startswith('typing')))"
    answer = subprocess.run([sys.executable, "-c", probe, str(PLUGIN)], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "['pytest_mxnum']"

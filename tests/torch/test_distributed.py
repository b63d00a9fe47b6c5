"""Tests that an emulated model in two processes equals one in a single process, bit for bit.

All sums are exact, so their order does not change the results.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
mxt = pytest.importorskip("mxnum.torch")
from tests.torch import worker  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without processes")


@pytest.mark.filterwarnings("ignore::mxnum.units.EvidenceWarning")
@pytest.mark.parametrize("how", worker.SUMS)
def test_two_processes_train_the_model_of_one(how, tmp_path):
    (one, state), (two, other) = in_two_processes(how, tmp_path)
    alone = worker.model()
    start = {name: value.clone() for name, value in alone.state_dict().items()}
    mxt.emulate(alone, worker.RECIPE, accumulate=worker.SUMS[how], seed=5)
    whole = worker.train(alone, 0, 1)
    assert torch.equal(torch.cat([one, two]), whole)
    for name, value in alone.state_dict().items():
        assert torch.equal(state[name], value), name
        assert torch.equal(other[name], value), name
        assert not torch.equal(start[name], value)


def test_a_sharded_head_is_centered_as_a_whole_one(tmp_path):
    """Check a last layer of 33 rows. One process holds 17 rows, and the other holds 16 rows.

    The vocabulary has only 32 symbols, so the 33rd row belongs to no symbol.
    """
    (one, state), (two, other) = in_two_processes("center", tmp_path)
    assert len(one) == 17
    assert len(two) == 16
    alone = worker.head()
    mxt.center_output_weights(alone, "0", vocabulary=32)
    assert not torch.equal(alone[0].weight, worker.head()[0].weight)
    for name, value in alone.state_dict().items():
        assert torch.equal(state[name], value), name
        assert torch.equal(other[name], value), name
    assert torch.equal(torch.cat([one, two]), state["0.weight"])


def in_two_processes(how, tmp_path):
    """Run worker.py in two processes, and return the results that each process stores."""
    if how in ("fsdp", "center") and torch.__version__ < (2, 6):
        pytest.skip("torch.distributed.fsdp has no fully_shard")
    command = [sys.executable, str(Path(worker.__file__)), how, str(tmp_path)]
    started = [
        subprocess.Popen([*command, str(rank), "2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]
    said = [process.communicate(timeout=240)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(said)
    return [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]

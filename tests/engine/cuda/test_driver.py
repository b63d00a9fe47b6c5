"""Tests of kernel launches, of the memory of arrays, and of the simulator's fma."""

from __future__ import annotations

import numpy as np
import pytest

import mxnum as mx
from tests.samples import generator


def test_kernels_cover_everything_whatever_the_number_of_threads(device, monkeypatch):
    from mxnum.engine.cuda import driver

    x = generator("threads").standard_normal((3, 96)).astype(np.float32)
    want = mx.quantize(x, "mxfp8_e4m3", axis=0), mx.quantize(x, "mxfp8_e4m3")
    for threads, blocks in ((2, 1), (3, 2), (64, 1)) if driver.SIMULATED else ((32, 1), (256, 1000)):
        monkeypatch.setattr(driver, "THREADS", threads)
        monkeypatch.setattr(driver, "BLOCKS_PER_MULTIPROCESSOR", blocks)
        assert mx.quantize(device(x), "mxfp8_e4m3", axis=0).to_host().equals(want[0])
        if threads % 8 == 0:  # eight threads share a block of 32 elements
            assert mx.quantize(device(x), "mxfp8_e4m3").to_host().equals(want[1])


def test_memory_reaches_from_the_first_to_the_last_element(device):
    from mxnum.engine.cuda import driver
    from mxnum.memory.device import described

    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for view in (lambda a: a, lambda a: a[::-1, 1::2], lambda a: a[2:3, ::-3]):
        array = view(described("x", device(x)))
        vector, at = driver.memory(array, signed=True)
        places = np.indices(array.shape).reshape(2, -1).T @ np.array(array.strides) + at
        found = np.asarray(vector.copy_to_host()).view(np.float32)[places].reshape(array.shape)
        assert np.array_equal(found, view(x))
    assert driver.memory(described("x", device(x))[:0], signed=True)[0].size == 0


def test_the_simulated_fma_rounds_once():
    from mxnum.engine.cuda import driver

    if not driver.SIMULATED:
        pytest.skip("on a GPU, the fused multiply-add is an instruction")
    a, c = (int(np.float32(value).view(np.int32)) for value in (1 + 2.0**-12, -1 - 2.0**-11))
    assert driver.fma_float32(a, a, c) == np.float32(2.0**-24).view(np.int32)

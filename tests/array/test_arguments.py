"""Tests of arguments that are arrays; tests/test_errors.py checks the messages."""

from __future__ import annotations

import numpy as np
import pytest

from mxnum.array import arguments
from mxnum.engine.quantizing import host


def test_codes_keep_their_high_bits_zero():
    codes = np.array([0, 15], np.uint8)
    assert arguments.checked_codes("codes", codes, 4) is codes
    with pytest.raises(ValueError, match="'codes' must be below 8, not 15"):
        arguments.checked_codes("codes", codes, 3)
    assert arguments.checked_codes("codes", np.zeros(3, np.uint16), 12).dtype == np.uint16


def test_scales_have_the_shape_of_the_blocks():
    scales = np.zeros((2, 3), np.uint8)
    assert arguments.checked_scales(scales, (2, 3)) is scales
    with pytest.raises(ValueError, match="'scales' must be of shape"):
        arguments.checked_scales(scales, (3, 2))


def test_layouts_are_resolved_once():
    made = arguments.layout_of("mxfp4_e2m1", (4, 70), None, None, None, None)
    assert (made.format.name, made.blocks, made.of_scales) == ("mxfp4_e2m1", (1, 32), (4, 3))
    assert arguments.layout_of("mxfp4_e2m1", (4, 70), None, None, None, None) is made
    shape, layout = arguments.packed_layout("mxfp4_e2m1", (4, 35), 70, None, None, None, None)
    assert shape == (4, 70)
    assert layout == made
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"'packed' must be an array of 35 bytes per row for 70 codes of 4 bits, not \(4, 36\)"
        ):
            arguments.packed_layout("mxfp4_e2m1", (4, 36), 70, None, None, None, None)
        with pytest.raises(ValueError, match="'packed' must be an array of at least one axis"):
            arguments.packed_layout("mxfp4_e2m1", (), 70, None, None, None, None)
        with pytest.raises(TypeError, match=r"'length' must be an integer, not 70\.0"):
            arguments.packed_layout("mxfp4_e2m1", (4, 35), 70.0, None, None, None, None)


def test_results_go_to_writable_arrays_of_the_right_kind():
    out = np.zeros(3, np.float32)
    assert arguments.checked_out(None, (3,), out.dtype) is None
    assert arguments.checked_out(out, (3,), out.dtype) is out
    out.flags.writeable = False
    with pytest.raises(ValueError, match="'out' must be writable"):
        arguments.checked_out(out, (3,), out.dtype)


def test_results_do_not_lie_on_one_another():
    # Regression: output arrays whose elements share memory were accepted. numpy's broadcast arrays
    # are read-only, but arrays of torch and `as_strided` are writable.
    out = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (3, 2), (0, 0))
    with pytest.raises(
        ValueError, match=r"'out' must be an array whose elements do not share memory, not 'one of strides"
    ):
        arguments.checked_out(out, (3, 2), out.dtype)
    for fine in (np.zeros((1, 3), np.float32)[:, ::-1], np.zeros((0, 3), np.float32), out[:1, :1]):
        assert arguments.checked_out(fine, fine.shape, out.dtype) is fine


def test_options_of_the_host_are_refused_elsewhere():
    assert arguments.host_options(host, threads=2) == {"threads": 2}
    assert arguments.host_options(None, threads=None) == {}
    with pytest.raises(ValueError, match="'threads' must be left out for arrays on a GPU"):
        arguments.host_options(None, threads=2)
    assert arguments.checked_threads(3) == 3
    assert arguments.owned(3) == 3

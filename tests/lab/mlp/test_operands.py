from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import mxnum as mx
from mxnum.lab.mlp.config import Experiment
from mxnum.lab.mlp.model import Network, _Pass
from mxnum.lab.mlp.operands import Buffers, affine, in_last_bin, is_repeatable, rounded
from mxnum.recipe import BFLOAT16, FLOAT32, Operand, Recipe

X = np.random.default_rng(0).standard_normal((2, 64, 96)).astype(np.float32)
AFFINE = np.random.default_rng(1).uniform(0.5, 1, (3, 2, 64)).astype(np.float32)
SEEDS = (11, 12)


def round_x(operand, axis=-1, **keywords):
    return rounded(X, operand, axis, np.empty_like(X), **keywords)


def test_plain_rounding_is_the_public_function():
    for axis in (-1, -2):
        operand = Operand("mxfp4_e2m1", scale_rule="even", rounding="rna", block_size=16)
        expected = mx.fake_quantize(X, "mxfp4_e2m1", axis=axis, scale_rule="even", rounding="rna", block_size=16)
        assert np.array_equal(round_x(operand, axis), expected)


def test_nothing_and_bfloat16():
    assert round_x(FLOAT32) is X
    assert round_x(BFLOAT16, already_bf16=True) is X
    assert np.array_equal(round_x(BFLOAT16), X.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.parametrize("axis", [-1, -2])
def test_stochastic_rounding_takes_each_runs_own_seed(axis):
    ours = round_x(Operand("mxfp4_e2m1", rounding="sr"), axis, seeds=SEEDS, stream=9)
    for run, seed in enumerate(SEEDS):
        alone = mx.fake_quantize(X[run], "mxfp4_e2m1", axis=axis, rounding="sr", seed=seed, stream=9)
        assert np.array_equal(ours[run], alone)


def test_released_bump_by_its_definition():
    # A row has two blocks. For each position within a block, the paper's released code compares the
    # elements at this position in all blocks of the row, and finds the maximum. If the mantissa of
    # this maximum is above 1.75, the code doubles the scale of all these elements.
    x = np.ones((1, 64), np.float32)
    x[0, 3], x[0, 35] = 1.9, 0.2  # The maximum at position 3 is 1.9, whose mantissa is above 1.75.
    x[0, 40] = 7.0  # The maximum at position 8 is 7.0, whose mantissa is 1.75, not above 1.75.
    x[0, 9] = 0.96  # The maximum at position 9 is 1, whose mantissa is not above 1.75.
    ours = rounded(x, Operand("mxfp8_e4m3", scale_rule="released_bump"), -1, np.empty_like(x))
    plain = mx.fake_quantize(x, "mxfp8_e4m3")
    assert plain[0, 3] == 1.75
    assert ours[0, 3] == 1.875  # 1.9 rounds to 1.875 under the doubled scale
    elsewhere = np.ones(64, bool)
    elsewhere[[3, 35]] = False
    assert np.array_equal(ours[0, elsewhere], plain[0, elsewhere])
    transposed = rounded(
        np.ascontiguousarray(x.T), Operand("mxfp8_e4m3", scale_rule="released_bump"), -2, np.empty((64, 1), np.float32)
    )
    assert np.array_equal(transposed.T, ours)
    rows = np.asfortranarray(np.vstack([x, -x]))
    in_columns = rounded(rows, Operand("mxfp8_e4m3", scale_rule="released_bump"), -1, np.empty_like(rows))
    assert np.array_equal(in_columns, np.vstack([ours, -ours]))
    with pytest.raises(ValueError, match="needs rows of whole blocks of 32, not 40 elements"):
        rounded(x[:, :40], Operand("mxfp8_e4m3", scale_rule="released_bump"), -1, np.empty((1, 40), np.float32))


def test_a_clamped_block_of_the_paper():
    x = np.array([0.897, 0.96, 0.92, 0.5], np.float32).reshape(1, 1, 4)
    ours = affine(x, Operand("mxfp8_e4m3", error="clamp"), (0,), 0, 0)
    assert ours.ravel().tolist() == [0.875, 0.875, 0.875, 0.5]
    assert in_last_bin(x, Operand("mxfp8_e4m3")).ravel().tolist() == [True, True, True, False]
    rceil = affine(x, Operand("mxfp8_e4m3", error="clamp", scale_rule="rceil"), (0,), 0, 0)
    assert np.array_equal(rceil, x)


def test_errors_of_the_same_size():
    e = affine(AFFINE, Operand("mxfp4_e2m1"), SEEDS, 4, 0) - AFFINE
    assert np.array_equal(AFFINE + e, mx.fake_quantize(AFFINE, "mxfp4_e2m1"))
    signs = affine(AFFINE, Operand("mxfp4_e2m1", error="random_sign"), SEEDS, 4, 0) - AFFINE
    assert np.allclose(np.abs(signs), np.abs(e), atol=1e-6)
    assert 0.3 < (np.sign(signs) == np.sign(e)).mean() < 0.7
    one_sided = affine(AFFINE, Operand("mxfp4_e2m1", error="one_sided"), SEEDS, 4, 0) - AFFINE
    assert np.allclose(one_sided, -np.abs(e), atol=1e-6)
    shuffled = affine(AFFINE, Operand("mxfp4_e2m1", error="shuffle"), SEEDS, 4, 0) - AFFINE
    assert np.allclose(np.sort(shuffled, axis=-1), np.sort(e, axis=-1), atol=1e-6)
    for error in ("random_sign", "shuffle"):
        operand = Operand("mxfp4_e2m1", error=error)
        assert not np.array_equal(affine(AFFINE, operand, SEEDS, 4, 0), affine(AFFINE, operand, SEEDS, 5, 0))
        assert np.array_equal(affine(AFFINE, operand, SEEDS, 4, 0), affine(AFFINE, operand, SEEDS, 4, 0))


def test_grid_and_stochastic_affine():
    on_grid = affine(AFFINE, Operand(error="grid", step=0.25), SEEDS, 0, 0)
    assert set(np.unique(on_grid)) <= {0.5, 0.75, 1.0}
    assert np.abs(on_grid - AFFINE).max() <= 0.125
    operand = Operand("mxfp4_e2m1", rounding="sr", scale_rule="rceil")
    mean = np.mean([affine(AFFINE, operand, SEEDS, step, 0) for step in range(400)], axis=0)
    assert np.abs(mean - AFFINE).max() < 0.04
    alone = affine(AFFINE[:, 1:], operand, SEEDS[1:], 3, 0)
    assert np.array_equal(affine(AFFINE, operand, SEEDS, 3, 0)[:, 1:], alone)


def test_buffers_are_made_once():
    buffers = Buffers()
    assert buffers.get_like("a", (2, 3)) is buffers.get_like("a", (2, 3))
    assert buffers.get_like("a", (2, 3)) is not buffers.get_like("b", (2, 3))


def test_a_quantization_is_prepared_once_for_an_array():
    buffers, operand = Buffers(), Operand("mxfp4_e2m1")
    x, other = X.copy(), 2 * X
    for name, array in (("a", x), ("b", other), ("a", x), ("a", other)):
        array[...] = array + 1
        got = buffers.quantized(name, "place", array, operand, -2)
        assert got is buffers.get_like("place", X.shape)
        assert np.array_equal(got, mx.fake_quantize(array, "mxfp4_e2m1", axis=-2))
    assert len(buffers.quantizers) == 2
    buffers.clear()
    assert not buffers
    assert not buffers.quantizers


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"scale_rule": "rceil", "rounding": "rtz", "block_size": 8}, True),
        ({"rounding": "sr"}, False),
        ({"scale_rule": "released_bump"}, False),
        ({"error": "shuffle"}, False),
        ({"matched": True}, False),
        ({"format": "bfloat16"}, False),
        ({"format": None}, False),
    ],
)
def test_what_is_repeatable(change, expected):
    assert is_repeatable(replace(Operand("mxfp4_e2m1"), **change)) is expected


MATCHED = {
    "clamp": Operand("mxfp4_e2m1", error="clamp", matched=True),
    "rceil": Operand("mxfp4_e2m1", scale_rule="rceil", matched=True),
    "random sign": Operand("mxfp4_e2m1", error="random_sign", matched=True),
    "shuffled": Operand("mxfp4_e2m1", error="shuffle", rounding="sr", matched=True),
}


def parameters_like_gamma(layers=3, runs=2, width=64):
    rng = np.random.default_rng(5)
    return (0.3 + 0.1 * rng.standard_normal((layers, runs, width))).astype(np.float32)


@pytest.mark.parametrize("operand", MATCHED.values(), ids=list(MATCHED))
def test_a_matched_error_has_the_size_of_floors_in_every_layer_of_every_run(operand):
    x = parameters_like_gamma()

    def size(value):
        return np.sqrt(np.square(value.astype(np.float64) - x).mean(axis=-1))

    wanted = size(mx.fake_quantize(x, "mxfp4_e2m1"))
    assert size(affine(x, operand, (3, 4), 7, 0)) == pytest.approx(wanted, rel=1e-5)
    assert np.array_equal(affine(x[:, 1:], operand, (4,), 7, 0), affine(x, operand, (3, 4), 7, 0)[:, 1:])


def test_a_network_uses_the_matched_error():
    # Regression: the network used gamma itself, not `affine`'s gamma with the matched error.
    precision = Recipe(gamma=MATCHED["rceil"], beta=MATCHED["rceil"])
    network = Network(Experiment(width=32, layers=2, batch=4, precision=precision), (3,))
    network.parameters.gamma[...] = parameters_like_gamma(2, 1, 32)
    used = _Pass(network, precision, 7).gamma
    assert np.array_equal(used, affine(network.parameters.gamma, MATCHED["rceil"], (3,), 7, 0))
    assert not np.array_equal(used, mx.fake_quantize(network.parameters.gamma, "mxfp4_e2m1", scale_rule="rceil"))


def test_a_matched_clamp_cuts_the_largest_and_leaves_the_rest():
    x = parameters_like_gamma() * np.where(np.arange(64) % 3, 1, -1).astype(np.float32)
    value = affine(x, MATCHED["clamp"], (3, 4), 7, 0)
    limit = np.abs(value).max(axis=-1, keepdims=True)
    cut = np.abs(x) > limit
    assert 0 < cut.mean() < 0.5
    assert np.array_equal(value[~cut], x[~cut])
    assert np.array_equal(value, np.clip(x, -limit, limit))


def test_matched_error_of_exact_numbers_is_zero():
    zeros, exact = np.zeros((2, 1, 32), np.float32), np.full((2, 1, 32), 0.5, np.float32)
    for operand in MATCHED.values():
        assert np.array_equal(affine(zeros, operand, (3,), 0, 1), zeros)
        assert np.array_equal(affine(exact, operand, (3,), 0, 1), exact)


def test_limit_is_zero_if_cutting_cannot_reach_the_error():
    from mxnum.lab.mlp.operands import _cut

    magnitudes = np.array([[3.0, 1.0, 2.0, 0.5]])
    assert _cut(magnitudes, np.array([[10.0]])).tolist() == [[0.0]]
    assert _cut(magnitudes, np.array([[0.25]])).tolist() == [[2.5]]  # the error of one number is 0.5
    assert _cut(magnitudes, np.array([[0.0]])).tolist() == [[3.0]]

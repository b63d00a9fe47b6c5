import pytest

from mxnum.lab.mlp.config import Experiment, Injection, uniform_precision, vector_code
from mxnum.recipe import BFLOAT16, FLOAT32, Operand, Recipe


def test_a_round_trip_through_plain_tables():
    experiment = Experiment(
        precision=uniform_precision("mxfp4_e2m1", layer_norm=BFLOAT16, rounding="rna"),
        injection=Injection(0.1, 0.2),
        gamma_start=(0.8, 0.9),
    )
    assert Experiment.from_dict(experiment.to_dict()) == experiment
    assert Experiment.from_dict({}) == Experiment()


def test_changes_reach_the_precision():
    experiment = Experiment().but(rate=0.5, gamma=BFLOAT16, vector="bfloat16")
    assert experiment.rate == 0.5
    assert experiment.precision == Recipe(gamma=BFLOAT16, vector="bfloat16")
    assert vector_code(experiment.precision) == 1
    assert vector_code(experiment.but(vector_rounding="rna").precision) == 2
    assert vector_code(Recipe()) == 0


def test_precision_may_be_a_recipe_a_name_a_format_or_a_mapping():
    for written in ("mxfp8_e4m3", {"uniform": "mxfp8_e4m3", "gamma": "float32", "beta": "float32"}):
        assert Experiment(precision=written).precision == uniform_precision("mxfp8_e4m3", layer_norm=FLOAT32).but(
            vector="float32"
        )
    assert Experiment().but(precision="mxint8", gamma="mxint8").precision.beta == FLOAT32
    with pytest.raises(TypeError, match="must be a Recipe, a name, a format or a mapping, not None"):
        Experiment(precision=None)


def test_hidden_widths():
    assert Experiment(width=64).hidden == Experiment(width=64).inner == 256
    swiglu = Experiment(width=512, activation="swiglu")
    assert (swiglu.hidden, swiglu.inner) == (1376, 2752)


def test_descriptions():
    assert str(Operand()) == "float32"
    assert str(Operand("mxfp8_e4m3", rounding="sr", block_size=16)) == "mxfp8_e4m3 sr blocks of 16"
    assert str(Operand("mxfp4_e2m1", error="clamp")) == "mxfp4_e2m1 clamp"
    assert str(Operand(error="grid", step=0.25)) == "multiples of 0.25"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Operand("mxfp4_e2m2"), "did you mean"),
        (lambda: Operand("mxfp4_e2m1", scale_rule="bump"), "Argument 'scale_rule' must be one of"),
        (lambda: Operand("bfloat16", rounding="sr"), "must be 'rne' or 'rna' for bfloat16, not 'sr'"),
        (lambda: Operand(error="rounded"), "Argument 'error' must be one of"),
        (lambda: Experiment(activation="tanh"), "Argument 'activation' must be one of"),
        (lambda: Injection(where="layernorm"), "did you mean 'layer_norm'"),
        (lambda: Experiment(rate=0), "Argument 'rate' must be positive, not 0"),
        (lambda: Experiment(width=0), "Argument 'width' must be between 1"),
        # Regression: with expansion=0, training divided by zero.
        (lambda: Experiment(expansion=0), "Argument 'expansion' must be between 1"),
        (  # Regression: with a teacher that rounds stochastically, labels were uninitialized memory.
            lambda: Experiment(quantized_teacher=True, precision=uniform_precision("mxfp4_e2m1", rounding="sr")),
            "'quantized_teacher' must be False if weights or activations are rounded stochastically",
        ),
        # Regression: with betas of 1 or negative momentum, all losses were NaN from the first step
        # on.
        (lambda: Experiment(betas=(0.9, 1.0)), "'betas' must be at least 0 and below 1"),
        (lambda: Experiment(momentum=-0.5), "'momentum' must be at least 0 and below 1"),
        # Regression: with the bounds reversed, every initial gamma was 0.95.
        (lambda: Experiment(gamma_start=(0.95, 0.9)), "must be two bounds, the lower bound first"),
        (lambda: Experiment.from_dict({"widht": 3}), "did you mean 'width'"),
        (lambda: Experiment.from_dict({"precision": {"weights": {"fromat": "mxint8"}}}), "did you mean 'format'"),
        (
            lambda: Experiment(precision=Recipe(weights=Operand("mxfp4_e2m1", error="clamp"))),
            "'quantize' and matched=False",
        ),
        (
            lambda: Experiment(precision=Recipe(gradients=Operand("mxfp4_e2m1", matched=True))),
            "'quantize' and matched=False",
        ),
    ],
)
def test_errors_are_one_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()

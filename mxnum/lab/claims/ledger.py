"""The claims as data: who says what, how it is checked here, and what scale would decide it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mxnum import errors
from mxnum.lab.claims.evidence import Whose

SOURCES = {
    "I": "Su et al.: Characterization and Mitigation of Training Instabilities in Microscaling Formats (arXiv 2506.20752)",
    "M": "Yang et al.: An Empirical Study of Microscaling Formats for Low-Recipe LLM Training (ARITH 2025)",
    "B": "Beyond both papers: what neither shows",
}


@dataclass(frozen=True)
class Claim:
    """One row of the ledger."""

    id: str
    #: A few words.
    title: str
    #: What is claimed, in a sentence or two, with the figures.
    sentence: str
    #: How it is checked here, or how it would be.
    how: str
    #: What would decide it, where what is run here cannot.
    scale: str = ""
    #: Who says it, where it is not the paper of the source; the check marks what in it is of others.
    whose: Whose = Whose.PAPER

    @property
    def source(self) -> str:
        return SOURCES[self.id[0]]


_TRAINING = "It takes training runs, which `mxnum.lab.mlp` makes and stores."

CLAIMS = {
    claim.id: claim
    for claim in (
        Claim(
            "I1",
            "Floor-scaled blocks clamp",
            "Under the floor rule a block whose largest mantissa is above max/2^emax clamps; in E4M3 the layer-norm "
            "weights 0.897, 0.896, 0.884, 0.885 and 0.904 become 459.3, 458.8, 452.6, 453.1 and 462.8 after scaling, "
            "and all of them 448.",
            "The five weights, and blocks with every mantissa on a grid, through the real kernels.",
        ),
        Claim(
            "I2",
            "How many blocks overflow, and how badly",
            "With a uniform (log-uniform) mantissa of the block's largest value the share of blocks that overflow is 25 % "
            "(19.26 %) in E4M3, E5M2 and E3M2, 12.5 (9.31) in E2M3, 50 (41.50) in E2M1 and 1.56 (1.13) in INT8; the "
            "largest relative clamp error is 12.5 %, 6.25 % in E2M3, 25 % in E2M1 and 0.78 % in INT8.",
            "Every mantissa of 16 bits through the real kernels, weighted uniformly and by its share of log2.",
        ),
        Claim(
            "I3",
            "The gaps of E4M3",
            "E4M3 has 126 positive codes; the relative gap falls from 12.5 % to 6.7 % inside a binade, and is 100, 50, "
            "33.3, 25, 20, 16.7 and 14.3 % over the subnormals.",
            "All codes decoded.",
        ),
        Claim(
            "I4",
            "Quantized layer-norm weights bias the gradient multiplicatively",
            "The gradient becomes (I + zeta) times itself, with zeta of one sign across a clamped block, unlike rounding, "
            "whose errors cancel.",
            "The gradient through a layer norm whose weights are quantized, against (I + zeta) times the exact one, for "
            "weights clustered in the clamped range and elsewhere.",
        ),
        Claim(
            "I5",
            "The size of zeta is measurable and grows",
            "The norm of zeta is at least the relative change of the gradient on the same parameters; it grows during "
            "training, and divergence follows when it is of order 2.",
            _TRAINING,
            "Runs that diverge, with the bound logged at each step, at the paper's size (d = 512, 4 layers).",
        ),
        Claim(
            "I6a",
            "E4M3 diverges at the paper's size",
            "A residual MLP that is stable in FP32 diverges in MXFP8 E4M3 from the same seed, initialization and batches.",
            _TRAINING,
            "Fresh pairs of runs at d = 512, 4 layers, batch 2048, rate 6e-4, to 12,000 steps: two hours of a core each. "
            "They decide how often it happens.",
        ),
        Claim(
            "I6b",
            "E4M3 makes divergence more likely",
            "Quantization to MXFP8 E4M3 makes a run diverge that would not in FP32: the hazard of a jump is higher.",
            _TRAINING,
            "About 19 pairs of runs at the paper's size decide it there.",
        ),
        Claim(
            "I6c",
            "Training in 4 bits runs away sooner",
            "In a residual MLP of width 32, training with everything in MXFP4 E2M1, layer norm included, runs away sooner "
            "than FP32. The paper speaks of E4M3.",
            _TRAINING,
            whose=Whose.OURS,
        ),
        Claim(
            "I7",
            "Interventions avert or delay the divergence",
            "Shortly before the divergence, higher precision in layer norm or activations, no backward quantization and "
            "other changes, everything else identical, avert or delay it.",
            _TRAINING,
            "The run of I6a, restarted from its checkpoints, with unperturbed and perturbed controls.",
        ),
        Claim(
            "I8",
            "Layer norm, GELU and SwiGLU",
            "With layer norm, GELU and SwiGLU are unstable in MX, SwiGLU most; without layer norm the MX run is stabler "
            "and FP32 is not.",
            _TRAINING,
            "The set-up of I6a for each activation, with and without layer norm, several seeds each.",
        ),
        Claim(
            "I9",
            "What keeps language models stable",
            "In language models of 2e17 to 4.8e19 FLOP, MX weights with bf16 activations and layer norm, or forward-only "
            "quantization, are stable for all FP8 formats, and E4M3 with bf16 matches bf16. The forward pass is a third of the work: at most "
            "33 % of the time is saved, and the speed-up is 1.2 times at twice the rate.",
            "The losses that the authors published, later deleted from their repository: which runs end above their own "
            "least loss, by compute, and the gap to bf16 at the same parameters and tokens; the arithmetic by `mxnum.lab.theory.project_shares`.",
            "Runs of E4M3 with bf16, and of forward-only quantization, at 4.8e19 FLOP.",
        ),
        Claim(
            "I10",
            "Scaling laws come back",
            "With the mitigations, Chinchilla fits are valid again; the released fit for E4M3 with bf16 has A = 2822.48, "
            "B = 20445.4, E = 0.53531, alpha = 0.52362 and beta = 0.55335.",
            "`mxnum.lab.theory.fit_scaling_law` on the losses that the authors published: the released figures again, and for each arm "
            "whether its law falls with parameters and tokens and misses the runs no further than bf16's law does those of the same sizes.",
        ),
        Claim(
            "M1",
            "Rounding: nearest forward, stochastic for gradients",
            "Elements are best rounded to nearest even for weights and activations and stochastically for gradients.",
            _TRAINING,
            "Training runs with each rounding for each operand, several seeds; language models for the paper's figures.",
        ),
        Claim(
            "M2",
            "Which scale rule",
            "floor clamps; ceil never overflows but underflows more; even balances. E2M1 is best with even, E3M0 usable "
            "only with ceil, INT4 best with ceil, and E2M1 beats INT4.",
            "R-MSE, overflow and underflow on synthetic weights, activations and gradients, all rules.",
        ),
        Claim(
            "M3",
            "How many elements overflow",
            "On the paper's gradients 0.9 % of the elements overflow in E2M1 under even, and 3.69 % in E3M0. For normal numbers in blocks "
            "of 32, which the paper does not give, it is in percent under floor / even: E4M3 0.8574 / 0.5482, E3M2 0.8574 / 0.3052, "
            "E2M3 0.3724 / 0.1585, E2M1 2.3434 / 0.6221, E3M0 10.958 / 4.158, and 0 under ceil and rceil.",
            "The exact expectation from `mxnum.analysis`, which normal numbers through the real kernels must match within 5 standard errors.",
            "The paper's own gradients decide its two figures.",
        ),
        Claim(
            "M4",
            "Mean squared error of normal numbers",
            "The paper compares formats and rules on tensors of its own. For N(0, 1) in blocks of 32 the mean squared error is, under "
            "floor / even / ceil / rceil: E4M3 0.000862 0.000762 0.000705 0.000705, E3M2 0.002911 0.002791 0.002791 0.002791, E2M3 "
            "0.000805 0.000797 0.001329 0.000802, E2M1 0.013219 0.012509 0.020788 0.013313, E3M0 0.04943 0.03778 0.03779 0.03779.",
            "The exact expectation from `mxnum.analysis`, which normal numbers through the real kernels must match within 5 standard errors.",
            whose=Whose.OURS,
        ),
        Claim(
            "M5",
            "Asymmetric scaling",
            "A float16 offset for each block helps INT4 much (up to 1.36 times over symmetric) and E2M1 little.",
            "R-MSE with and without an offset on synthetic weights, activations and gradients.",
            "The paper's own tensors decide its factor.",
        ),
        Claim(
            "M6",
            "Smaller blocks",
            "Going from blocks of 32 to 16 helps INT4 with ceil about 6.5 times more than E2M1 with even.",
            "R-MSE at both sizes on synthetic weights, activations and gradients.",
            "The paper's own tensors decide the factor.",
        ),
        Claim(
            "M7",
            "Block organisation",
            "Of 1x16, 16x1 and 4x4, columns help activations with per-token structure, not weights or gradients; tiles "
            "are a compromise.",
            "R-MSE of each organisation on synthetic weights, gradients, and activations with per-token or per-channel "
            "magnitudes.",
            "Activations of a language model.",
        ),
        Claim(
            "M8",
            "R-MSE predicts the loss",
            "Normalized R-MSE correlates with the gap in training loss.",
            _TRAINING,
            "The final losses of runs in many formats; language models for the paper's figure.",
        ),
        Claim(
            "M9",
            "Bits per element",
            "An element costs its own bits and 8 / block; MXFP4 4.25, which is 3.76 times less than BF16.",
            "The description of the format, and the bytes of a packed array.",
        ),
        Claim(
            "M10",
            "Which MXFP4 trains",
            "Default MXFP4 diverges or keeps a growing gap; E2M1 with even or E2M1 / E3M0 with ceil and stochastic "
            "gradients close it to about 0.02; MXFP6 and MXFP8 track BF16.",
            _TRAINING,
            "Language models; the residual MLP can only hint at it.",
        ),
        Claim(
            "M11",
            "Projected speed-ups",
            "For a 405B model the projected step speed-ups are 2.73 times for MX4, 2.48 MLP only, 2.31 for MX6 weights "
            "and activations with MX4 gradients (2.11 at FP8's rate, 2.4 at FP4's), and 1.72 for FP8.",
            "`mxnum.lab.theory.project`, a model with stated rates, shares and costs, for the shape of Llama-3 405B: what the figures imply "
            "for its parameters, and which of them one set of parameters gives.",
            "The authors' model of the hardware, or the hardware.",
        ),
        Claim(
            "B1",
            "Bias and variance of clustered blocks in closed form",
            "For a block of k clustered values, the bias and variance of Q for every format, scale rule and block size. "
            "Averaged log-uniformly over a binade, E[Q/x]-1 and E[Q]/E[x]-1 in percent: E4M3 floor -1.294, -1.660; even "
            "-0.712, -0.866; ceil and rceil -0.070, -0.033; E2M1 floor -6.225, -7.185, the others -1.072, -0.509; the "
            "clamp term alone of E4M3 floor is -1.231.",
            "The closed forms and the expectations over clusters of `mxnum.analysis`, matched by the real kernels.",
            whose=Whose.OURS,
        ),
        Claim(
            "B2",
            "Stability under multiplicative noise",
            "SGD on a quadratic is stable iff the rate times the curvature is below 2(1+b)/((1+b)^2+s^2), for 1+b > 0: a "
            "clamp bias raises the limit.",
            "Derived in `mxnum.analysis`, and matched by simulation.",
            whose=Whose.OURS,
        ),
        Claim(
            "B3",
            "The dead zone of a clamped block",
            "The straight-through gradient keeps pushing a clamped block while the loss does not respond; when its "
            "largest value crosses the binade the whole block jumps by up to 1/7.",
            "Period and jump derived in `mxnum.analysis`; shown in a run of `mxnum.lab.mlp`.",
            whose=Whose.OURS,
        ),
        Claim(
            "B4",
            "Which code-text difference carries the effect",
            "Of the six differences between the text of the paper and its released code, some carry the effect of I6a and "
            "I7.",
            _TRAINING,
            "A factorial of the six switches, at least eight seeds, at the size of I6a.",
            whose=Whose.OURS,
        ),
        Claim(
            "B5",
            "Unbiased stochastic rounding to MXFP4",
            "Floor MXFP4 with stochastic rounding is biased by clipping, and a factor makes it unbiased: scale from x, "
            "then 3/4 before rounding and 4/3 after. For N(0, 1), block 32, the gain is 0.98958 with variance 0.02351, and "
            "1.00000 with 0.02818; with 3/4 before the scale is chosen it is 0.98205.",
            "The exact expectation from `mxnum.analysis`, which normal numbers through the real kernels must match within 5 standard errors.",
            whose=Whose.OURS,
        ),
        Claim(
            "B6",
            "Critical learning rate",
            "The probability of divergence against the rate, for FP32 beside each MX format and scale rule.",
            _TRAINING,
            "Many seeds at each of several rates.",
            whose=Whose.OURS,
        ),
        Claim(
            "B7",
            "Stochastic NVFP4 is biased",
            "Stochastic rounding to NVFP4 is biased: its E4M3 scale may be rounded down, and the block's largest number is "
            "clamped then. For N(0, 1) the gain is 0.99657 at a mean squared error of 0.0188; with a head-room of 17/16 "
            "before the scale is chosen it is 1.00003 at 0.0236.",
            "The exact expectation from `mxnum.analysis`, which normal numbers through the real kernels must match within 5 standard errors.",
            whose=Whose.OURS,
        ),
        Claim(
            "B8",
            "Block sizes under E4M3 scales",
            "Smaller blocks can raise the error with E4M3 scales on narrow tensors, and UE5M3 scales mend it "
            "(arXiv 2601.19026); the contrary: underflow and a naive choice of scale cause it (2605.08565).",
            "The exact expectation from `mxnum.analysis` for blocks of 8 to 128 and seventeen standard deviations, and samples.",
        ),
        Claim(
            "B9",
            "Four over six",
            "Of two scales, which make 6 or 4 of a block's largest number, NVFP4 takes the better one: the mean squared "
            "error of N(0, 1) falls from 0.00904 to 0.00756, and 45 % of blocks take 4 (arXiv 2512.02010).",
            "The first figure by formula, the others from normal numbers through the real kernels.",
        ),
        Claim(
            "B10",
            "The Hadamard transform by crest factor",
            "With a Hadamard transform of 16, 4-bit integers with NVFP4's scales beat NVFP4 (arXiv 2510.25602): what the "
            "transform does to the relative error depends on the crest factor of the block.",
            "Four tensors with ever heavier tails through the real kernels.",
        ),
        Claim(
            "B11",
            "The gradient of the logits overflows",
            "The target's component, (1 - p)/N with N a power of two, lies just below a power of two while p is small, so "
            "that the floor rule shrinks it in its block and nothing else: what E4M3 costs a small language model comes "
            "from this one operand, goes with a factor on the loss, and has the size that the analysis says.",
            "A decoder on a Markov source: arms, limits and tests fixed before six seeds were trained; one seed of four "
            "arms, half as long, where the stored study is not at hand.",
            whose=Whose.OURS,
        ),
        Claim(
            "B12",
            "Which part of a 4-bit recipe does what",
            "Expected after a rate of .024: 4-bit layer norm alone brings the jump of the loss sooner and comes back; 4-bit "
            "products alone delay the jump; only both together run away.",
            "The recipe and its parts at two more rates, by tests fixed before 24 fresh seeds; and single operands, scale "
            "rules and roundings at the first rate.",
            whose=Whose.OURS,
        ),
    )
}


def chosen(option: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of the claims that are named, each once; "I6" names all that begin so.

    >>> chosen("only", ["m9", " I6"])
    ('M9', 'I6a', 'I6b', 'I6c')
    """
    found: list[str] = []
    for name in names:
        plain = name.strip().lower()
        here = [id for id in CLAIMS if plain in (id.lower(), id.rstrip("abc").lower())]
        found += here or [errors.choose(option, name.strip(), tuple(CLAIMS))]
    return tuple(dict.fromkeys(found))

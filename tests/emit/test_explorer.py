"""Tests of the explorer, an HTML page that quantizes blocks, in headless Chromium.

The page must give the same bits as mxnum, and work by keyboard, on phones and from links.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer", reason="the extra cli is not installed")

import mxnum as mx
from mxnum import formats, modes, reference
from mxnum.cli.command_explain import parsed
from mxnum.conformance import check, make_task
from mxnum.conformance.explain import FloatScaleSteps, explain_block, explain_element
from mxnum.definition import by_numpy
from mxnum.emit import explorer
from tests.browser import DESKTOP, PHONE, needs_chromium, opened
from tests.covering import covering

pytestmark = needs_chromium
NAMES, FLOAT32 = formats.names(), formats.FLOATS["float32"]
SETTINGS = covering(fmt=NAMES, rounding=modes.Rounding, overflow=modes.Overflow, nonfinite=("block", "element"))

#: The formats with the widest pages: `mxfp8_e5m2` has elements of 8 bits, and `nvfp4` has long
#: names of scale rules and more input fields.
WIDE = ("mxfp8_e5m2", "nvfp4")

#: A script that quantizes the blocks of an array in the page. The script receives and returns
#: arrays as base64 text.
QUANTIZE = """(asked) => {
    const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
    const text = (array) => {
        const all = new Uint8Array(array.buffer), parts = [];
        for (let i = 0; i < all.length; i += 8192) parts.push(String.fromCharCode(...all.subarray(i, i + 8192)));
        return btoa(parts.join(""));
    };
    const {n, k} = asked, x = new Int32Array(bytes(asked.x)), codes = new Int32Array(n * k);
    const tensors = new Int32Array(bytes(asked.tensor)), random = new Uint32Array(bytes(asked.random));
    const scales = new Int32Array(n), values = new Int32Array(n * k);
    for (let i = 0; i < n; i++) {
        const part = (array) => Array.from(array.subarray(i * k, i * k + k));
        const made = quantize({...asked, bits: part(x), tensor: tensors[i], scale: null, random: part(random)});
        scales[i] = made.scale;
        codes.set(made.codes, i * k);
        values.set(made.values, i * k);
    }
    return [codes, scales, values].map(text);
}"""


class Page:
    """An open explorer page that quantizes arrays for many tests."""

    def __init__(self, page: Any):
        self.page = page

    def quantize(
        self, fmt: str, x: Any, random: Any = None, tensor: Any = 1.0, **modes: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the page's codes, scales and bits of decoded values for an array of blocks."""
        n, k = x.shape
        words = np.zeros((n, k), np.uint32) if random is None else np.broadcast_to(random, (n, k)).astype(np.uint32)
        tensors = np.broadcast_to(np.asarray(tensor, np.float32).ravel(), (n,))
        arrays = {"x": np.ascontiguousarray(x, np.float32), "random": words, "tensor": tensors}
        asked = {name: base64.b64encode(np.ascontiguousarray(a).tobytes()).decode() for name, a in arrays.items()}
        asked |= {"n": n, "k": k, "format": fmt, **{name: str(mode) for name, mode in modes.items()}}
        asked["rule"] = asked.pop("scale_rule")
        found = [np.frombuffer(base64.b64decode(text), np.int32) for text in self.page.evaluate(QUANTIZE, asked)]
        return found[0].reshape(x.shape).astype(np.uint8), found[1].astype(np.uint8), found[2].reshape(x.shape)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    path.write_text(explorer(), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def answers(browser: Any, address: str) -> Iterator[Page]:
    """Yield a page that all tests of this file share; no test changes its state."""
    with opened(browser, address, []) as page:
        yield Page(page)


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """Yield a freshly opened page, and assert that it caused no errors and no network requests."""
    faults: list[str] = []
    with opened(browser, address, faults, viewport=DESKTOP) as fresh:
        yield fresh
    assert not faults


def rules(fmt: str) -> tuple[Any, ...]:
    return modes.scale_rules(formats.get(fmt))


def tier(number: int) -> Any:
    """Return the mark `full`, except for one case in seven, which the fast tier runs."""
    return () if number % 7 == number // 7 % 7 else pytest.mark.full


CASES = [{**case, "scale_rule": rules(case["fmt"])[i % len(rules(case["fmt"]))]} for i, case in enumerate(SETTINGS)]


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=tier(i), id="-".join(map(str, c.values()))) for i, c in enumerate(CASES)],
)
def test_every_boundary(answers, case):
    """Check the page on conformance level 1, which has every boundary of elements and scales."""
    fmt, asked = case["fmt"], {name: mode for name, mode in case.items() if name != "fmt"}
    has_tensor = formats.get(fmt).tensor_scale is not None

    def answer(x, random=None, tensor_scale=1.0):
        return answers.quantize(fmt, x, random, tensor_scale, **asked)[:2]

    function = answer if case["rounding"].is_stochastic else lambda x, tensor_scale=1.0: answer(x, None, tensor_scale)
    if not has_tensor:
        function = (lambda x, random: answer(x, random)) if case["rounding"].is_stochastic else lambda x: answer(x)
    check(function, format=fmt, strict=True, shrink=False, **asked)


@pytest.mark.parametrize("fmt", NAMES)
@pytest.mark.parametrize(
    ("module", "blocks"), [(reference, 100), pytest.param(mx, 10_000, marks=pytest.mark.full)], ids=["some", "all"]
)
def test_random_blocks(answers, fmt, module, blocks):
    """Check an equal number of random blocks with each pair of a rounding mode and a scale rule.

    The fast tier compares only a few blocks, with the reference, because it needs no compilation.
    """
    generator, length = np.random.default_rng(blocks), formats.get(fmt).block
    exponents = generator.integers(-140, 120, (blocks, 1)) + generator.integers(-6, 6, (blocks, length))
    x = np.ldexp(generator.standard_normal((blocks, length)), exponents).astype(np.float32)
    pairs = [(rounding, rule) for rule in rules(fmt) for rounding in modes.Rounding]
    for i, (rounding, rule) in enumerate(pairs):
        part = x[i :: len(pairs)]
        asked = {"rounding": rounding, "scale_rule": rule}
        words = generator.integers(0, 2**32, part.shape, np.uint32) if rounding.is_stochastic else None
        tensor = {}
        if formats.get(fmt).tensor_scale:
            tensor = {"tensor_scale": by_numpy.tensor_scale(by_numpy.largest_of(part), FLOAT32, formats.get(fmt))}
        q = module.quantize(part, fmt, random_bits=words, **asked, **tensor)
        values = (
            module.dequantize(q, "float32") if module is mx else reference.dequantize(q.codes, q.scales, fmt, **tensor)
        )
        got = answers.quantize(
            fmt, part, words, tensor.get("tensor_scale", 1.0), overflow="saturate", nonfinite="block", **asked
        )
        for mine, right in zip(got, (q.codes, q.scales, values), strict=True):
            assert np.array_equal(mine.ravel(), np.asarray(right).view(mine.dtype).ravel()), (rounding, rule)


@pytest.mark.parametrize("rule", [rule for rule in modes.FloatScaleRule if rule.error_power])
def test_four_over_six(answers, rule):
    """Check blocks whose largest number becomes 4 or 6, also if both have equal errors."""
    generator = np.random.default_rng(46)
    x = generator.standard_normal((120, 16)).astype(np.float32)
    x[:40] = generator.integers(-12, 13, (40, 16)) / 2
    x[:10, 3:] = 0
    asked, tensor = {"rounding": "rne", "scale_rule": rule}, np.float32(2**-7)
    q = reference.quantize(x, "nvfp4", **asked, tensor_scale=tensor)
    got = answers.quantize("nvfp4", x, None, tensor, overflow="saturate", nonfinite="block", **asked)
    assert np.array_equal(got[1], np.asarray(q.scales).view(np.uint8).ravel())
    plain = reference.quantize(x, "nvfp4", tensor_scale=tensor).scales
    assert 20 < np.count_nonzero(np.asarray(plain) != np.asarray(q.scales)) < 100


#: A script that returns the page's explanation of a block, and the block's scale under each rule.
STEPS = """(text) => {
    const state = stateOf(text), made = quantize(state), format = FORMAT[state.format];
    const fraction = ([n, d]) => `${n}/${d}`, exact = (a) => a && fraction(ratio(a, ONE));
    const told = (each) => each && {code: each.code, value: exact(each.value)};
    const loss = losses(state, made);
    return {
        scale: made.scale, tensor: made.tensor, codes: made.codes, shown: made.values.map(floatText),
        meanSquare: loss.meanSquare && fraction(loss.meanSquare), rms: loss.rms, overflowing: loss.overflowing,
        scales: format.rules.map((rule) => findScale(format, rule, state.bits, made.tensor, state.nonfinite)),
        steps: loss.steps.map((step) => ({
            code: step.code, rule: step.rule, overflows: step.overflows, below: told(step.below),
            above: told(step.above), position: step.position && fraction(step.position), factor: exact(step.factor),
        })),
    };
}"""


def link(fmt: str, bits: list[int], **more: Any) -> str:
    parts = {"format": fmt, "x": ".".join(f"{each:08X}" for each in bits), **more}
    return "&".join(f"{name}={value}" for name, value in parts.items())


def without_numbers(rule: str) -> str:
    """Return the text that explains a rule, with each number replaced by #."""
    return re.sub(r"-?[\d.]+(?:…| × 10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+| \* 2\^\d+|e[+-]?\d+)*", "#", rule)


def as_float(shown: str) -> float:
    """Convert a number as the page shows it, such as 1.5 × 10⁻⁷, to a float."""
    return float(shown.translate(str.maketrans("\u2212⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "--0123456789")).replace(" × 10", "e"))


def numbers_to_explain(fmt: str, seed: int) -> list[int]:
    """Return a block of ties, their neighbours, numbers that overflow, and a tiny number."""
    generator, e = np.random.default_rng(seed), formats.get(fmt).element
    grid = np.array([e.value(code) for code in range(e.max_code + 1)], np.float32)
    at = generator.integers(0, len(grid) - 1, formats.get(fmt).block)
    x = np.where(generator.random(at.size) < 0.5, (grid[at] + grid[at + 1]) / 2, grid[at])
    x = np.nextafter(x, generator.choice([-np.inf, 0, np.inf], at.size)) if seed % 2 else x
    x *= generator.choice([-1, 1], at.size)
    x[:3] = grid[-1] * np.array([1.3, -1.05, 2.0**-12], np.float32)
    return (x * 2.0 ** generator.integers(-20, 20)).astype(np.float32).view(np.uint32).tolist()


@pytest.mark.parametrize("fmt", NAMES)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 40))])
def test_steps_are_those_of_explain(answers, fmt, seed):
    """Check that the page explains scale and rounding of a block as `explain_block` does."""
    bits = numbers_to_explain(fmt, seed)
    rounding, rule = list(modes.Rounding)[seed % 7], rules(fmt)[seed % len(rules(fmt))]
    overflow, random = list(modes.Overflow)[seed // 2 % 2], 0x12345678 * (seed + 1) % 2**30
    more = {"rounding": rounding, "rule": rule, "overflow": overflow, "random": f"{random:X}"}
    got = answers.page.evaluate(STEPS, link(fmt, bits, **more))
    task = make_task("quantize", fmt, rounding=rounding, scale_rule=rule, overflow=overflow)
    block = explain_block(task, np.array(bits, np.uint32), [random] * len(bits))
    assert got["scale"] == block.scale.code
    if block.tensor_scale is not None:
        assert got["tensor"] == int(np.float32(block.tensor_scale).view(np.int32))
    overflowing = 0
    for mine, step in zip(got["steps"], block.elements, strict=True):
        assert mine["code"] == step.code
        assert Fraction(mine["factor"]) == step.factor or isinstance(block.scale, FloatScaleSteps)
        assert (mine["position"] and Fraction(mine["position"])) == step.fraction
        for side, right in (("below", step.below), ("above", step.above)):
            assert mine[side]["code"] == right.code
            assert Fraction(mine[side]["value"]) == right.value
        beyond = "beyond the largest" in step.rule
        overflowing += beyond
        assert mine["overflows"] == beyond
        assert without_numbers(mine["rule"]) == without_numbers(step.rule)
    assert got["overflowing"] == overflowing


@pytest.mark.parametrize("fmt", NAMES)
def test_steps_beyond_the_largest_under_a_given_scale(answers, fmt):
    """Check that the page explains numbers beyond the largest element as `explain_element` does."""
    scale = 120 if formats.get(fmt).scale.power_of_two else 0x18
    tensor = 2.0**-9 if formats.get(fmt).tensor_scale else None
    bits = np.array([1e3, -77, 13.37, 1e30, -0.33, 2.0**20], np.float32).view(np.uint32).tolist()
    for rounding in modes.Rounding:
        more = {"rounding": rounding, "scale": scale, "overflow": "ieee"}
        more |= {} if tensor is None else {"tensor": f"{np.float32(tensor).view(np.uint32):X}"}
        task = make_task("quantize", fmt, rounding=rounding, overflow="ieee")
        for each, mine in zip(bits, answers.page.evaluate(STEPS, link(fmt, bits, **more))["steps"], strict=True):
            step = explain_element(task, each, scale, 0, tensor)
            assert (mine["code"], Fraction(mine["position"])) == (step.code, step.fraction)
            values = [Fraction(mine[side]["value"]) for side in ("below", "above")]
            assert values == [step.below.value, step.above.value]
            assert mine["overflows"] == ("beyond the largest" in step.rule)
            assert without_numbers(mine["rule"]) == without_numbers(step.rule)


@pytest.mark.parametrize("fmt", NAMES)
def test_table_of_scale_rules(answers, fmt):
    """Check the scale of each rule, and the mean squared error, against the reference."""
    bits = numbers_to_explain(fmt, 5)
    got = answers.page.evaluate(STEPS, link(fmt, bits))
    x = np.array(bits, np.uint32).view(np.float32)
    tensor = {"tensor_scale": np.int32(got["tensor"]).view(np.float32)} if formats.get(fmt).tensor_scale else {}
    for rule, code in zip(rules(fmt), got["scales"], strict=True):
        q = reference.quantize(x, fmt, scale_rule=rule, **tensor)
        assert code == np.asarray(q.scales).view(np.uint8)[0]
    q = reference.quantize(x, fmt, **tensor)
    decoded = reference.dequantize(q.codes, q.scales, fmt, **tensor)
    values = decoded.tolist()
    assert np.array_equal(np.array([as_float(text) for text in got["shown"]], np.float32), decoded)
    exact = sum((Fraction(value) - Fraction(number)) ** 2 for value, number in zip(values, x.tolist(), strict=True))
    assert Fraction(got["meanSquare"]) == exact / len(bits)
    assert as_float(got["rms"]) == pytest.approx(float(exact / len(bits)) ** 0.5, rel=1e-3)


TYPED = (
    "0.1", "-3e-5", "0x1.8p3", "inf", "-inf", "nan", "-nan", "-0.0", "0", "bits:3DCCCCCD", "1.", ".5", "1e-45",
    "7e-46", "1e-44", "1_000", "16777217", "16777217.0000000000000000000001", "16777216.9999999999999999999999",
    "16777219", "3.4028235677973366e38", "3.4028235677973365e38", "1.17549435e-38", "0x1.000001p0",
    "0x1.0000010000001p0", "0x.8p-148",
)  # fmt: skip


def test_typed_numbers_are_rounded_once(answers):
    """Check that decimal ties of float32 are rounded once, not first to float64."""
    got = answers.page.evaluate("(texts) => texts.map((text) => parse(text) >>> 0)", list(TYPED))
    for text, bits in zip(TYPED, got, strict=True):
        try:
            right = parsed(text, FLOAT32)
        except ValueError:  # the page rounds numbers outside of float32's range to infinity or zero
            right = np.float32(text).view(np.uint32)
        assert bits == right, text
    assert answers.page.evaluate("['', '1e', 'x', '--1', '0x1', 'bits:', '1.2.3'].map(parse)") == [None] * 7


def test_shown_numbers_can_be_typed(answers):
    bits = np.random.default_rng(3).integers(0, 2**32, 5000, np.uint32)
    finite = bits[np.isfinite(bits.view(np.float32))].tolist()
    ends = [0, 1, 2, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x80000000, 0xFF800000]
    script = "(all) => all.filter((bits) => (parse(typedText(bits | 0)) >>> 0) !== bits)"
    assert answers.page.evaluate(script, finite + ends) == []


def state(page: Any) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate("() => ({...state})")
    return found


def test_link_holds_the_state(browser, page, address):
    """Check that a page opened from the link of another page has the same state and text."""
    page.select_option("#format", "nvfp4")
    page.select_option("#rounding", "sr")
    page.select_option("#rule", "four_over_six_squared")
    page.fill("#tensor", "0x1.8p-9")
    page.fill("#random", "123456789")
    page.select_option("#nonfinite", "element")
    page.fill("#x", "-1e-42")
    page.evaluate("setNumber(3, 0x7fc12345)")
    before, faults = state(page), []
    with opened(browser, page.url, faults, viewport=DESKTOP) as other:
        assert state(other) == before
        assert other.inner_text("main") == page.inner_text("main")
    assert before["bits"][3] == 0x7FC12345
    assert (before["format"], before["tensor"], before["random"]) == ("nvfp4", 0x3B400000, 123456789)
    assert not faults


def test_damaged_link_gives_a_fresh_page(page, address):
    start = state(page)
    for text in (
        "format=x&rule=y&x=zz&at=99&scale=-1&random=q&tensor=0",
        "x=",
        "at=1e9",
        "<script>",
        "tensor=7fc00000",
    ):
        page.goto(f"{address}#{text}")
        assert state(page) in (start, {**start, "at": 31})


def test_new_link_in_the_same_page(page, address):
    page.goto(f"{address}#{link('mxint8', [0x3F800000], rounding='rtz')}")
    assert (state(page)["format"], state(page)["rounding"], page.input_value("#x")) == ("mxint8", "rtz", "1")


def test_keys_move_the_number(page):
    page.focus("#x")
    start = state(page)["bits"][0]
    page.keyboard.press("ArrowUp")
    assert state(page)["bits"][0] == start + 1
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert state(page)["bits"][0] == start - 1
    page.keyboard.press("PageUp")
    assert state(page)["bits"][0] == start - 1 + (1 << 23)
    page.fill("#x", "0.3")
    page.keyboard.press("Shift+ArrowUp")
    assert page.input_value("#x") == "0.375"
    assert "a tie" in page.inner_text("#why")
    page.fill("#x", "0")
    page.keyboard.press("ArrowDown")
    assert state(page)["bits"][0] == -0x80000000 + 1
    page.keyboard.press("ArrowUp")
    assert state(page)["bits"][0] == 0


def test_wrong_number_is_explained(page):
    before = state(page)
    page.fill("#x", "1.2.3")
    assert page.get_attribute("#x", "aria-invalid") == "true"
    assert "Type a number" in page.inner_text("#problem")
    assert state(page) == before
    page.fill("#x", "2")
    assert page.inner_text("#problem") == ""


def test_nan_that_mxnum_does_not_accept_is_said(page):
    page.fill("#x", "nan")
    assert page.inner_text("#problem") == ""
    page.evaluate("set({nonfinite: 'element'})")
    x = np.array(state(page)["bits"], np.int32).view(np.float32)
    with pytest.raises(ValueError, match="free of NaN") as raised:
        mx.quantize(x, state(page)["format"], nonfinite="element")
    assert page.inner_text("#problem") == f"mxnum.quantize raises an error: {raised.value}"
    page.evaluate("set({format: 'mxfp8_e4m3'})")
    assert page.inner_text("#problem") == ""


def test_keys_move_bars(page):
    page.focus(".bar[data-i='0']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Number 3"
    assert page.input_value("#x") == "0.05"
    page.keyboard.press("ArrowUp")
    assert page.input_value("#x") == "0.125"  # the axis ends at 4, and a key press moves the bar by a step of 4/32
    page.keyboard.press("Shift+ArrowDown")
    assert page.input_value("#x") == "0.12109375"
    page.keyboard.press("-")
    assert page.input_value("#x") == "-0.12109375"
    page.keyboard.press("0")
    assert page.input_value("#x") == "0"
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.dataset.i") == "0"


def drag(page: Any, i: int, share: float) -> None:
    """Move bar `i` up with the mouse, by `share` times half the height of the picture."""
    box, bar = page.locator("#bars svg").bounding_box(), page.locator(f".bar[data-i='{i}'] .hit").bounding_box()
    x, y = bar["x"] + bar["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - share * box["height"] / 2, steps=4)
    page.mouse.up()


def test_pointer_drags_bars(page):
    drag(page, 9, 0.5)
    found = state(page)
    value = np.array(found["bits"][9], np.int32).view(np.float32)
    assert found["at"] == 9
    assert value == pytest.approx(0.5 * 95 / 79 * 4, rel=0.05)
    assert (value * 32).is_integer()
    drag(page, 9, -0.5)
    assert np.array(state(page)["bits"][9], np.int32).view(np.float32) == -value


def test_fixed_scale_and_rules(page):
    """Check that users can choose a rule in the table of scale rules, or type a scale."""
    page.check("#scales input[value='rceil']")
    assert (state(page)["rule"], page.input_value("#rule")) == ("rceil", "rceil")
    page.click("#more summary")
    page.fill("#scale", "127")
    assert "given" in page.inner_text("#scales tr.chosen")
    page.fill("#scale", "256")
    assert "code of a scale" in page.inner_text("#problem")
    page.check("#scales input[value='floor']")
    assert state(page)["scale"] is None


@pytest.mark.parametrize("fmt", [pytest.param(n, marks=() if n in WIDE else pytest.mark.full) for n in NAMES])
def test_phone_shows_all_within_its_width(browser, address, fmt):
    faults: list[str] = []
    settings = {"viewport": PHONE, "has_touch": True, "is_mobile": True}
    with opened(
        browser,
        f"{address}#{link(fmt, [0x7F7FFFFF, 1, 0x3EAAAAAB], rounding='sr', random='3fffffff')}",
        faults,
        **settings,
    ) as page:
        for preset in (None, "outlier", "ties"):
            if preset:
                page.tap(f"[data-preset={preset}]")
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        page.tap(".bar[data-i='4'] .hit")
        assert state(page)["at"] == 4
        before, box = state(page)["bits"], page.locator(".bar[data-i='6'] .hit").bounding_box()
        fingers = page.context.new_cdp_session(page)
        for kind, share in (("touchStart", 0.5), ("touchMove", 0.4), ("touchMove", 0.2), ("touchEnd", None)):
            x, y = box["x"] + box["width"] / 2, None if share is None else box["y"] + share * box["height"]
            points = [] if y is None else [{"x": x, "y": y}]
            fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        assert [i for i, bits in enumerate(state(page)["bits"]) if bits != before[i]] == [6]
    assert not faults


#: A script that returns the page's texts whose contrast with their background is below 4.5.
PALE = """() => {
    const parts = (text) => {
        const [r, g, b, a = 1] = text.match(/[\\d.]+(?:e-?\\d+)?/g).map(Number);
        return text.startsWith("color(srgb") ? [r * 255, g * 255, b * 255, a] : [r, g, b, a];
    };
    const over = (top, under) => under.map((part, i) => top[i] * top[3] + part * (1 - top[3]));
    const ground = (node) => {
        const layers = [];
        for (let at = node; at instanceof Element; at = at.parentElement) {
            layers.push(parts(getComputedStyle(at).backgroundColor));
        }
        return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
    };
    const light = (rgb) => {
        const [r, g, b] = rgb.map((part) => (part /= 255) <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = [];
    for (const node of document.querySelectorAll("body *")) {
        const text = [...node.childNodes].filter((each) => each.nodeType === 3).map((each) => each.data).join("");
        if (!text.trim() || !node.checkVisibility() || node.tagName === "SCRIPT" || node.disabled) continue;
        const style = getComputedStyle(node), under = ground(node);
        const ink = over(parts(node instanceof SVGElement ? style.fill : style.color), under);
        const [high, low] = [light(ink), light(under)].sort((a, b) => b - a), contrast = (high + 0.05) / (low + 0.05);
        if (contrast < 4.5) found.push(`${node.tagName} ${text.slice(0, 30)}: ${contrast.toFixed(2)}`);
    }
    return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser, address, scheme):
    text = link("mxfp4_e2m1", [0x40400000, 0x40E00000, 0x3DCCCCCD, 0x7F800000], nonfinite="element", at=1, scale=126)
    with opened(browser, f"{address}#{text}", [], viewport=DESKTOP, color_scheme=scheme) as page:
        assert page.evaluate(PALE) == []
        grounds = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (int(grounds.split("(")[1].split(",")[0]) < 128) == (scheme == "dark")


def test_every_control_has_a_name(page):
    script = """() => [...document.querySelectorAll("input, select, button, [role=slider]")].filter((node) =>
        !(node.labels && [...node.labels].some((label) => label.textContent.trim())) && !node.textContent.trim()
        && !node.getAttribute("aria-label")).map((node) => node.outerHTML)"""
    assert page.evaluate(script) == []


def test_page_is_small_and_alone():
    text = explorer()
    assert len(text.encode()) < 1_000_000
    assert not re.search(r"(src|href)=|@import|url\(|fetch\(|XMLHttpRequest", text)


def test_first_state(browser, tmp_path):
    """Check that the page opens with the numbers, format and modes that `explorer` was given."""
    path = tmp_path / "own.html"
    x = np.array([0.3, -5, np.nan], np.float32)
    path.write_text(explorer(x, "e3m4:bias=3,block=16", rounding="rtz", scale_rule="even", nonfinite="element"))
    faults: list[str] = []
    with opened(browser, path.as_uri(), faults) as page:
        found = state(page)
        assert np.array(found["bits"], np.int32).tolist() == x.view(np.int32).tolist()
        assert (found["rounding"], found["rule"], found["nonfinite"]) == ("rtz", "even", "element")
        assert page.evaluate("FORMAT[state.format].element.name") == formats.get("e3m4:bias=3,block=16").element.name
        q = mx.quantize(x[:2], "e3m4:bias=3,block=16", rounding="rtz", scale_rule="even")
        assert page.evaluate("made.codes").copy()[:2] == q.codes.tolist()
    assert not faults


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"x": np.zeros(33)}, "'x' must be 1 to 32 numbers for mxfp4_e2m1, not 33"),
        ({"nonfinite": "raise"}, "'nonfinite' must be 'block' or 'element' for a page"),
        ({"scale_rule": "nearest"}, "'scale_rule' must be one of"),
    ],
)
def test_mistakes_are_one_sentence(arguments, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        explorer(**arguments)

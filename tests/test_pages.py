"""Tests of every built page of the documentation, opened in a browser without a network.

They need the pages (`sphinx-build -W -b html docs docs/_build/html`), Chromium and the package
playwright.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
BUILT = ROOT / "docs/_build/html"
PAGES = sorted(str(path.relative_to(BUILT)) for path in BUILT.rglob("*.html"))
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}

pytestmark = [
    pytest.mark.skipif(not PAGES, reason="the documentation is not built: sphinx-build -b html docs docs/_build/html"),
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]

#: A script that returns the faults of a page, by kind.
FAULTS = r"""() => {
    const faults = [];
    const seen = document.querySelector('article') || document.body;
    const copy = seen.cloneNode(true);
    copy.querySelectorAll('pre, code, math, script, style, svg').forEach(part => part.remove());
    const text = copy.textContent;
    for (const [what, pattern] of [
        ['a raw table', /\|\s*:?-{3,}:?\s*\|[^\n]*/], ['a raw formula', /\$[^$\n]{1,80}[\\^_][^$\n]{0,80}\$/],
        ['raw TeX', /\\(frac|gamma|beta|zeta|sum|text|mathrm|lVert)\b[^\n]{0,40}/],
        ['a raw role', /\{(doc|ref|func|class)\}/],
    ]) { const found = text.match(pattern); if (found) faults.push(`${what}: ${found[0].slice(0, 80)}`); }
    for (const image of document.images)
        if (!image.complete || image.naturalWidth === 0) faults.push(`no image: ${image.getAttribute('src')}`);
    for (const formula of document.querySelectorAll('math')) {
        const box = formula.getBoundingClientRect();
        if (formula.querySelector('merror') || box.width === 0) faults.push(`no formula: ${formula.textContent}`);
    }
    const wide = document.documentElement.scrollWidth - window.innerWidth;
    if (wide > 1) faults.push(`${wide} pixels wider than the window`);
    return faults;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield opened
        opened.close()


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", PAGES)
def test_page(browser: Any, name: str, size: dict[str, int]) -> None:
    faults: list[str] = []
    page = browser.new_page(viewport=size)
    page.on("console", lambda line: faults.append(f"console: {line.text}") if line.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(f"script: {error}"))
    page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or faults.append(f"asks {asked.url}"))
    page.goto((BUILT / name).as_uri())
    faults += page.evaluate(FAULTS)
    page.close()
    assert not faults

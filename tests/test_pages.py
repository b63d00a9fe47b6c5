"""Tests of every built page of the documentation, opened in a browser without a network.

The tests need the built pages (`sphinx-build -W -b html docs docs/_build/html`), Chromium and the
package playwright.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser import DESKTOP, PHONE, needs_chromium, opened

ROOT = Path(__file__).parents[1]
BUILT = ROOT / "docs/_build/html"
PAGES = sorted(str(path.relative_to(BUILT)) for path in BUILT.rglob("*.html"))

pytestmark = [
    pytest.mark.skipif(not PAGES, reason="the documentation is not built: sphinx-build -b html docs docs/_build/html"),
    needs_chromium,
]

#: A JavaScript function that returns a list of strings, one for each fault of a page.
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


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", PAGES)
def test_page(browser: Any, name: str, size: dict[str, int]) -> None:
    faults: list[str] = []
    with opened(browser, (BUILT / name).as_uri(), faults, viewport=size) as page:
        faults += page.evaluate(FAULTS)
    assert not faults

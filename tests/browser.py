"""Open pages in a headless Chromium, and record their errors and requests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Yield a browser that makes no requests of its own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield opened
        opened.close()


@contextmanager
def opened(browser: Any, address: str, faults: list[str], **settings: Any) -> Iterator[Any]:
    """Yield an opened page; `faults` receives the errors and the network requests of the page."""
    page = browser.new_page(**settings)
    page.on("console", lambda line: faults.append(f"console: {line.text}") if line.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(f"script: {error}"))
    page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or faults.append(f"asks {asked.url}"))
    page.goto(address)
    yield page
    page.close()

"""Write the explorer, `explorer.html`, beside the built pages."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

from mxnum.emit import explorer


def write(app: Sphinx, problem: Exception | None) -> None:
    """Write the page when a build of HTML pages has ended."""
    if problem is None and app.builder.format == "html":
        Path(app.outdir, "explorer.html").write_text(explorer(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the page with Sphinx."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

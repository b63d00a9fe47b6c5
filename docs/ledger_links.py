"""Turn each id of a row of the ledger, such as I6a, into a link to that row."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from mxnum.lab.claims import CLAIMS

PAGE = "lab/claims"
_ID = re.compile(r"(?<![\w.])([IMDB]\d{1,2}[abc]?)(?![\w.]\w)")
#: The transform does not change text inside these nodes.
_LEFT = (nodes.reference, nodes.literal, nodes.title, nodes.math, nodes.FixedTextElement, nodes.raw)


def linked(text: str, page: str) -> list[nodes.Node]:
    """Return a text as nodes, with each id replaced by a link.

    An id without its last letter, such as I6, becomes a link to the first of its rows, I6a.
    """
    parts: list[nodes.Node] = []
    for at, part in enumerate(_ID.split(text)):  # ids have odd indices
        row = next((id for id in CLAIMS if part in (id, id.rstrip("abc"))), None)
        if at % 2 and row is not None:
            parts.append(nodes.reference(part, part, refuri=f"{page}#{row.lower()}", internal=True))
        elif part:
            parts.append(nodes.Text(part))
    return parts


class LedgerLinks(SphinxPostTransform):
    """A transform that turns the ids in a page's sentences and tables into links."""

    default_priority = 900  # runs after cells have displayed their output

    def run(self, **kwargs: Any) -> None:
        """Replace the ids on one page by links."""
        page = self.app.builder.get_relative_uri(self.env.docname, PAGE)
        for text in list(self.document.findall(nodes.Text)):
            if _ID.search(text) and not _within(text, _LEFT):
                text.parent.replace(text, linked(str(text), page))


def _within(node: nodes.Node, kinds: tuple[type, ...]) -> bool:
    above = node.parent
    while above is not None:
        if isinstance(above, kinds):
            return True
        above = above.parent
    return False


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform with Sphinx."""
    app.add_post_transform(LedgerLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

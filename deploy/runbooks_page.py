"""Prints the runbooks as a page of the console, where the links of alerts lead by default.

`make reference` writes it to `sidecar/amqsidecar/http/console/static/runbooks.html`. It is open to
every client, as all static files, so it holds nothing but the document.
"""

import sys
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

SOURCE = Path(__file__).parent / "reference" / "runbooks.md"
PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Runbooks · amqsidecar</title>
<link rel="icon" href="icon.svg">
<link rel="stylesheet" href="console.css">
</head>
<body>
<header class="top"><div><a class="brand" href="/">amqsidecar</a></div></header>
<main id="main">
{}</main>
</body>
</html>
"""


def page(text: str) -> str:
    """Return the page of a document in Markdown; each heading has its lower-case text as its id."""
    parser = MarkdownIt().enable("table")
    tokens = parser.parse(text)
    for heading, title in pairwise(tokens):
        if heading.type == "heading_open":
            heading.attrSet("id", title.content.lower().replace(" ", "-"))
    for token in tokens:
        token.children = _without_documents(token.children or [])
    return PAGE.format(parser.renderer.render(tokens, parser.options, {}))


def _without_documents(tokens: list[Token]) -> list[Token]:
    """Return them without links to other documents, which are not in the console."""
    kept, is_kept = [], True
    for token in tokens:
        if token.type == "link_open":
            is_kept = str(token.attrGet("href")).startswith(("#", "http"))
        if is_kept or token.type not in ("link_open", "link_close"):
            kept.append(token)
    return kept


if __name__ == "__main__":
    sys.stdout.write(page(SOURCE.read_text(encoding="utf-8")))

"""Each document that code, comments or documents cite exists, and so does each test they name."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("sidecar", "plugins", "deploy", "tests", "helm", ".github", ".ci")
SUFFIXES = {"", ".html", ".in", ".java", ".md", ".py", ".sql", ".toml", ".txt", ".yaml", ".yml"}
CITATION = re.compile(r"(?<![\w./:-])(?:[\w-]+/|\.\.?/)*[\w-]+\.md\b")
"""A path to a document; a path of another machine, which begins with `/`, is none."""

SOURCES = sorted(
    path
    for path in [*ROOT.glob("*"), *(file for name in FOLDERS for file in (ROOT / name).rglob("*"))]
    if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts
)
TEXTS = {path: path.read_text(encoding="utf-8") for path in SOURCES}
PAGES = [path.relative_to(ROOT).as_posix() for path in SOURCES if path.suffix == ".md"]
INTERNALS = sorted((ROOT / "sidecar" / "internals").rglob("*.md"))
TESTS = {
    name
    for path, text in TEXTS.items()
    if path.suffix == ".py"
    for name in re.findall(r"^\s*def (test_\w+)", text, re.MULTILINE)
}


def cited(text: str) -> list[str]:
    """Return the documents that a text cites, each once; links to other hosts are none."""
    return list(dict.fromkeys(CITATION.findall(re.sub(r"\w+://\S+", "", text))))


def is_document(name: str, folder: Path) -> bool:
    """Return whether a name leads to a document, from a folder or as the end of its path."""
    end = name.lstrip("./")
    has_page = any(page == end or page.endswith(f"/{end}") for page in PAGES)
    return has_page or (folder / name).is_file()


def test_a_citation_is_found_where_there_is_one() -> None:
    assert cited("see `spec-classic.md` 8, [a](../b/c.md#d) and https://host/no.md") == [
        "spec-classic.md",
        "../b/c.md",
    ]
    assert cited("the unit cites /opt/amqsidecar/deploy/README.md") == []
    assert is_document("spec-classic.md", ROOT)
    assert not is_document("spec-rabbit.md", ROOT)
    assert not is_document("classic.md", ROOT)


def test_every_cited_document_exists() -> None:
    """A document that is renamed or removed takes its citations along."""
    this = Path(__file__).resolve()
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in TEXTS.items()
        if path != this
        for name in cited(text)
        if not is_document(name, path.parent)
    }
    assert missing == set()


@pytest.mark.parametrize("page", INTERNALS, ids=lambda page: page.name)
def test_every_test_that_internals_name_exists(page: Path) -> None:
    """A fact that is said to be held by a test is held by one."""
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", TEXTS[page]))
    assert named - TESTS == set()


@pytest.mark.parametrize("page", ["wire-facts.md", "spec-classic.md", "spec-artemis.md"])
def test_every_cited_section_exists(page: str) -> None:
    """A number after the name of the page is that of a section."""
    written = TEXTS[ROOT / "sidecar" / "internals" / page]
    numbers = set(re.findall(r"^##+ (\d+(?:\.\d+)?[a-z]?)\.? ", written, re.MULTILINE))
    pattern = re.compile(rf"`{re.escape(page)}`,? (\d[\w.]*(?:(?:, | and )\d[\w.]*)*)")
    missing = {
        f"{path.relative_to(ROOT)}: {number}"
        for path, text in TEXTS.items()
        for found in pattern.findall(text)
        for number in re.findall(r"\d+(?:\.\d+)?[a-z]?", found)
        if number not in numbers
    }
    assert missing == set()

"""Each command line in a document for operators is one that the program takes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from amqsidecar.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "deploy").rglob("*.md"))]
PAGES += sorted((ROOT / "helm").rglob("*.md"))
PAGES += [ROOT / "helm" / "amqsidecar" / "templates" / "NOTES.txt"]
_ENDS = {"|", ">", ">>", "<", "&&", ";", "&", "#", "...", "…", "||", "2>"}
# Where a command begins in a block: a line, a container's command, another program's argument.
_COMMAND = re.compile(r"(?:^[ \t]*|-- |\| |&& |\bxargs [^|\n]*?)(amqsidecar [^\n]*)", re.MULTILINE)
_TREE = typer.main.get_command(app)


def commands_of(text: str) -> Iterator[str]:
    """Return the command lines of a page, of blocks and of what stands in a sentence."""
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    for block in blocks:
        yield from _COMMAND.findall(block.replace("\\\n", " "))
    rest = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    yield from re.findall(r"`(amqsidecar [^`]*)`", re.sub(r"\s*\n\s*", " ", rest))


def words_of(line: str) -> list[str]:
    """Return the arguments up to where the shell takes over."""
    words = shlex.split(line.replace("{{ ", "{{").replace(" }}", "}}"), comments=True)[1:]
    ends = (at for at, word in enumerate(words) if word.rstrip(";,") != word or word in _ENDS)
    return words[: next(ends, len(words))]


def problem(line: str) -> str | None:
    """Return what is wrong with a command line; None = nothing, as far as it is written out."""
    command, words = _TREE, words_of(line)
    while words and isinstance(command, typer.core.TyperGroup) and not words[0].startswith("-"):
        name = words.pop(0)
        context = typer.Context(command)
        found = command.get_command(context, name)
        if found is None and (name.isupper() or name.startswith("$")):
            return None
        if found is None:
            return f"there is no command {name!r}"
        command = found.make_context(name, [], resilient_parsing=True).command
    options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    wrong = [word for word in words if word.startswith("-") and word.split("=")[0] not in options]
    return f"has no option {wrong[0]}" if set(wrong) - {"-", "--help"} else None


LINES = [
    (page.relative_to(ROOT), line)
    for page in PAGES
    for line in dict.fromkeys(commands_of(page.read_text(encoding="utf-8")))
]


def test_there_are_lines_to_look_at() -> None:
    assert len(LINES) > 80
    assert problem("amqsidecar lst --state held") == "there is no command 'lst'"
    assert problem("amqsidecar list --stat held") == "has no option --stat"
    assert problem("amqsidecar operation resume 3 --yes") == "has no option --yes"
    assert problem("amqsidecar list --state held | wc -l --nothing") is None


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page}: {line}" for page, line in LINES])
def test_a_command_line_is_taken(page: Path, line: str) -> None:
    assert problem(line) is None, f"{page}: {line}"

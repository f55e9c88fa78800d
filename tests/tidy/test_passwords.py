"""Documents never teach a password on a command line: every user of a machine sees those."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path for path in ROOT.rglob("*.md") if not {".venv", ".git"} & set(path.relative_to(ROOT).parts)
)
BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECRET = re.compile(
    r"--from-literal=\S*(?:password|secret|token)\S*="
    r"|--password[= ](?!-)\S"
    r"|\w*PASSWORD=(?![$\s])\S"
    r"|\b[a-z+]+://[^\s/@:]+:[^\s/@$<{]+@"
    r"|(?<![\w=])password=(?![$\s])\S"
    r"|\bcurl\b.* (?:-u|--user) [^\s:$]+:\S"
    r"|\bcurl\b.*Authorization:"
)


@pytest.mark.parametrize(
    "line",
    [
        "kubectl --from-literal=password=x",
        "x --password geheim",
        "PGPASSWORD=x psql",
        "run --set broker.url=amqp://a:b@c",
        'curl -H "Authorization: Bearer $TOKEN" localhost',
    ],
)
def test_what_is_looked_for_is_found(line: str) -> None:
    assert SECRET.search(line)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_document_teaches_a_password_on_a_command_line(path: Path) -> None:
    blocks = BLOCK.findall(path.read_text("utf-8"))
    lines = [line for block in blocks for line in block.splitlines()]
    assert not [line for line in lines if SECRET.search(line) and "<" not in line]

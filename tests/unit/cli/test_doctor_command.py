"""The lines that `doctor` prints can be written where it says."""

import ast
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from amqsidecar import diagnosis
from amqsidecar.cli import main
from amqsidecar.cli.doctor_command import in_place
from amqsidecar.config.load import load_config
from amqsidecar.diagnosis.finding import kinds

FILE = """\
broker:
  url: artemis://localhost:61616
store:
  url: sqlite:////tmp/schedule.db
intake:
  queues: [DLQ]
"""
LINE = re.compile(
    r"(?P<how>in place of )?(?P<file>.+):(?P<number>[0-9]+)(?:, under \w+)?: (?P<line>.+)"
)


def written(text: str, answer: str) -> str:
    """Return the file as a person changes it who follows the answer."""
    found = LINE.fullmatch(answer)
    if found is None:
        return f"{text}{answer}\n"
    lines = text.splitlines()
    at = int(found["number"]) - 1
    lines[at : at + bool(found["how"])] = [f"  {found['line']}"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("mend", "key", "value"),
    [
        ("store: {accept_orphans: true}", "accept_orphans", True),
        ("intake: {queues: [DLQ, Other]}", "queues", ("DLQ", "Other")),
        ("redelivery: {exhausted: keep}", "exhausted", "keep"),
    ],
    ids=["new option", "option in use", "new section"],
)
def test_an_option_goes_where_its_section_is(
    mend: str, key: str, value: object, tmp_path: Path
) -> None:
    path = tmp_path / "amqsidecar.yaml"
    path.write_text(FILE, encoding="utf-8")
    answer = in_place(mend, load_config(path, (), {}))
    path.write_text(written(FILE, answer), encoding="utf-8")
    section = getattr(load_config(path, (), {}), mend.partition(":")[0])
    assert getattr(section, key) == value


def test_an_option_of_the_command_line_is_replaced_there(tmp_path: Path) -> None:
    config = load_config(None, ("store.accept_orphans=false",), {})
    answer = in_place("store: {accept_orphans: true}", config)
    assert answer == "in place of --set store.accept_orphans: accept_orphans: true"


def test_other_lines_stay_as_they_are() -> None:
    config = load_config(None, (), {})
    line = '<address-setting match="DLQ"><redelivery-delay>0</redelivery-delay></address-setting>'
    assert in_place(line, config) == line
    assert in_place("store: {accept_orphans: true}", config) == "store: {accept_orphans: true}"


def cures() -> set[str]:
    """Return the cures by options and by commands that `diagnosis` can print, names filled in."""
    found: set[str] = set()
    texts = [kind.mend.format_map(defaultdict(lambda: "NAME")) for kind in kinds().values()]
    for path in Path(diagnosis.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        joined = [node.values for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
        pieces = {part for parts in joined for part in parts}
        alone = {node for node in ast.walk(tree) if isinstance(node, ast.Constant)} - pieces
        expressions: list[Sequence[ast.expr]] = [*joined, *([one] for one in alone)]
        texts += [
            "".join(str(one.value) if isinstance(one, ast.Constant) else "NAME" for one in parts)
            for parts in expressions
        ]
    for text in texts:
        if re.match(r"amqsidecar [a-z]|[a-z]+: \{.*\}", text):
            cure = re.sub(r"broker: \{url: .*\}", "broker: {url: artemis://host:1}", text)
            cure = cure.replace("://…", "://user@host:5432/database")
            found.add(cure.replace("{kind: NAME}", "{kind: artemis}"))
    return found


def test_each_cure_is_an_option_or_a_command_that_exists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = cures()
    assert len(found) > 8
    path = tmp_path / "amqsidecar.yaml"
    for cure in sorted(found):
        if cure.startswith("amqsidecar "):
            assert main.run_command_line([*cure.split()[1:], "--help"]) == 0, cure
            continue
        path.write_text(FILE, encoding="utf-8")
        answer = in_place(cure, load_config(path, (), {}))
        path.write_text(written(FILE, answer), encoding="utf-8")
        load_config(path, (), {})
    capsys.readouterr()

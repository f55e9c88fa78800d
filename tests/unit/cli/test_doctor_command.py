"""The lines that `doctor` prints can be written where it says."""

import re
from pathlib import Path

import pytest

from amqsidecar.cli.doctor_command import in_place
from amqsidecar.config.load import load_config

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

"""`recovery --state` reads what is new, and writes what a run over the whole history writes."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from amqsidecar.cli.main import run_command_line
from amqsidecar.journal import SegmentFile, stream_folder
from amqsidecar.model.event import AnyEvent
from amqsidecar.pipeline.recovery import state
from pipeline.journals import write_journal
from pipeline.recovery.histories import row
from pipeline.recovery.test_recovery import life
from pipeline.running import tables_in
from support.histories.spark_cluster import FEW_ROWS
from support.histories.spark_home import FAST_START
from support.waiting import eventually

SEGMENTS = 4
UNTIL = "2026-01-01T00:40:00Z"
"""Messages arrive for 50 minutes."""

Files = list[tuple[str, int]]
"""Stream and segment."""
FIRST: Files = [("a", 3), ("b", 1), ("b", 2)]
SECOND: Files = [("a", 1), ("b", 4)]
THIRD: Files = [("b", 3), ("a", 2), ("a", 4)]


class History:
    """A journal whose segments hold events of all times, and the jobs over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        chance = random.Random(11)
        events = [one for group in range(6) for number in range(30) for one in _life(group, number)]
        chance.shuffle(events)
        places = [(stream, number + 1) for stream in "ab" for number in range(SEGMENTS)]
        self._events = {one: events[at :: len(places)] for at, one in enumerate(places)}

    def add(self, files: Files) -> None:
        for stream, number in files:
            rows = [
                {**row(stream, position, event), "segment": number}
                for position, event in enumerate(self._events[(stream, number)])
            ]
            write_journal(self.folder / "journal", rows, stream=stream, number=number)

    def arguments(self, out: str, *more: str, events: str = "journal") -> list[str]:
        paths = ["--events", str(self.folder / events), "--output-folder", str(self.folder / out)]
        return ["pipeline", "recovery", *paths, "--horizon", "300s", *more]

    @property
    def state(self) -> tuple[str, str]:
        return ("--state", str(self.folder / "state"))

    def tables(self, out: str) -> dict[str, list[str]]:
        return tables_in(self.folder / out)

    def check(self, *more: str, events: str = "journal") -> None:
        """Continue the state, and compare with a run that has none."""
        assert run_command_line(self.arguments("part", *more, *self.state, events=events)) == 0
        assert run_command_line(self.arguments("whole", *more, events=events)) == 0
        assert self.tables("part") == self.tables("whole")
        assert len(self.tables("part")["recovery_summary"]) > 1


def _life(group: int, number: int) -> list[AnyEvent]:
    return life(random.Random(f"{group} {number}"), group, number)


@pytest.mark.timeout(600)  # three jobs, which take a minute on a busy machine
def test_runs_over_a_growing_journal_write_what_one_run_writes(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Segments come late, messages that were finished go on, and a run fails at its last step.

    Then nothing is new; another question is answered, and a damaged state refused.
    """
    assert spark
    monkeypatch.setattr(state, "_MOST_KEPT", 1)
    history = History(tmp_path)
    history.add(FIRST)
    assert run_command_line(history.arguments("part", "--until", UNTIL, *history.state)) == 0
    history.add(SECOND)
    history.add(THIRD)
    # Why: what was read is not read again, even if it is gone.
    gone = [tmp_path / "journal" / stream_folder(s) / SegmentFile(n, n).name for s, n in FIRST]
    kept = {one: one.read_bytes() for one in gone}
    for one in gone:
        one.unlink()
    obstacle = tmp_path / "state" / ".state-000002.json.unfinished"
    obstacle.mkdir()
    assert run_command_line(history.arguments("part", *history.state)) != 0
    left = set((tmp_path / "state").glob("run-*"))
    obstacle.rmdir()
    assert run_command_line(history.arguments("part", *history.state)) == 0
    assert not left.intersection((tmp_path / "state").iterdir())
    for one, content in kept.items():
        one.write_bytes(content)
    assert run_command_line(history.arguments("whole")) == 0
    assert history.tables("part") == history.tables("whole")

    report = tmp_path / "part" / "report.html"
    written = report.stat()
    assert run_command_line(history.arguments("part", *history.state)) == 0
    assert report.stat() == written

    def refused(said: str) -> None:
        capsys.readouterr()
        assert run_command_line(history.arguments("part", *history.state)) == 78
        assert said in capsys.readouterr().err

    # Why: it keeps steps, which answer any question.
    history.check("--until", UNTIL, "--horizon", "10m")
    file = tmp_path / "state" / "state-000002.json"
    content = json.loads(file.read_text())
    for changed, said in (
        (content | {"format": 3}, "of another format: 3, not 4"),
        (content | {"events": "elsewhere"}, "of another history: elsewhere"),
        (content | {"kept": 1}, "is damaged"),
        (content | {"kept": ["run-gone"]}, "is not whole"),
    ):
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        file.write_text(json.dumps(changed))
        refused(said)


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_runs_over_a_table_of_ingest_write_what_one_run_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark
    monkeypatch.setattr(state, "_MOST_KEPT", 2)
    history = History(tmp_path)
    paths = ["--journal", str(tmp_path / "journal"), "--table", str(tmp_path / "table")]
    paths += ["--checkpoint", str(tmp_path / "checkpoint"), "--skip-lost"]
    # Why in order: `ingest` reads each stream's segments in theirs.
    for files in ([("a", 1)], [("a", 2), ("b", 1), ("b", 2)], [], [("a", 3), ("b", 3)]):
        history.add(files)
        assert run_command_line(["pipeline", "ingest", *paths]) == 0
        history.check(events="table")


def run_in_a_group(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    settings = [
        *FEW_ROWS,
        "spark.driver.memory=512m",
        f"spark.driver.extraJavaOptions={FAST_START}",
    ]
    conf = [word for one in settings for word in ("--conf", one)]
    command = [sys.executable, "-m", "amqsidecar", *arguments, "--master", "local[1]", *conf]
    with log.open("ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)


@pytest.mark.proof
@pytest.mark.timeout(900)  # three starts of a JVM
def test_a_run_that_is_killed_changes_nothing_or_all(spark: SparkSession, tmp_path: Path) -> None:
    """Killed once before the state advances, and once as soon as it has."""
    assert spark
    history = History(tmp_path)
    history.add(FIRST)
    history.check()
    kept = tmp_path / "state"
    before = {one.name for one in kept.iterdir()}

    def has_read() -> bool:
        return any(one.parent.name not in before for one in kept.glob("run-*/_SUCCESS"))

    def has_advanced() -> bool:
        return any(kept.glob("state-000002.json"))

    places: tuple[tuple[Files, Callable[[], bool]], ...] = (
        (SECOND, has_read),
        (THIRD, has_advanced),
    )
    for files, is_there in places:
        history.add(files)
        process = run_in_a_group(history.arguments("part", *history.state), tmp_path / "log")
        eventually(
            lambda: is_there() or process.poll() is not None,  # noqa: B023 - used at once
            within_s=280,
            every_s=0.01,
            what="the place",
        )
        assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    history.check()
    folders = {one.name for one in kept.glob("run-*")}
    assert len(folders) <= 3

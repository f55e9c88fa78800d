"""`amqsidecar pipeline ingest` is killed with its JVM, at places that hurt, and loses nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pyarrow import parquet

from pipeline.journals import write_segments
from support.histories.spark_cluster import FEW_ROWS
from support.histories.spark_home import java_options, spark_home
from support.waiting import eventually

TRIES = 5
"""A busy machine may kill too late for the first place."""


@contextmanager
def ingest(folder: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command as the head of a group, so that a kill takes its JVM, too."""
    command = [sys.executable, "-m", "amqsidecar", "pipeline", "ingest", "--master", "local[1]"]
    for setting in (*FEW_ROWS, "spark.driver.memory=512m", java_options()):
        command += ["--conf", setting]
    paths = ["--journal", "journal", "--table", "table", "--checkpoint", "checkpoint"]
    with (folder / "log").open("ab") as out:
        process = subprocess.Popen(
            [*command, *paths, *more],
            cwd=folder,
            env={**os.environ, "SPARK_HOME": str(spark_home())},
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def files_of(table: Path) -> list[str]:
    """Return the files that the table's log names: what Spark reads of it."""
    logs = [log.read_text("utf-8") for log in table.glob("_spark_metadata/[0-9]*")]
    lines = {line for log in logs for line in log.splitlines() if line.startswith("{")}
    return [unquote(urlsplit(json.loads(line)["path"]).path) for line in lines]


def rows_of(table: Path) -> int:
    return sum(parquet.read_metadata(file).num_rows for file in files_of(table))


def events_of(table: Path) -> Counter[tuple[int, int]]:
    """Return segment and position of each row, without a query of Spark."""
    found: Counter[tuple[int, int]] = Counter()
    for file in files_of(table):
        columns = parquet.ParquetFile(file).read(["segment", "position"]).to_pydict()
        found.update(zip(columns["segment"], columns["position"], strict=True))
    return found


def names(folder: Path, pattern: str) -> set[str]:
    return {path.name for path in folder.glob(pattern)}


def kill_at(folder: Path, place: Callable[[], object]) -> None:
    """Run it until the place, and kill it there."""
    with ingest(folder, "--max-segments", "1") as process:
        eventually(
            lambda: place() or process.poll() is not None,
            within_s=280,
            every_s=0.01,
            what="the place",
        )
        kill(process)
        assert process.returncode == -signal.SIGKILL, (folder / "log").read_text()[-3000:]


@pytest.mark.timeout(900)  # three starts of a JVM, which take a minute each on a busy machine
def test_each_event_is_in_the_table_once_after_any_kill(tmp_path: Path) -> None:
    """12 segments, one a batch; two kills, then a run until SIGTERM.

    The first has 20,000 events, so that it takes a while to write, the others 20.

    The places: a batch is planned and some of its files are written; the table's log has it. What
    is there before the first file is the same without the leftovers, and once the checkpoint has
    it, too, all is as after a run that ended by itself.
    """
    journal, table, checkpoint = (tmp_path / name for name in ("journal", "table", "checkpoint"))
    write_segments(journal, [1], count=20_000)
    for number in range(2, 9):
        write_segments(journal, [number], count=20)
    for _ in range(TRIES):
        kill_at(tmp_path, lambda: names(table, "day=*/*.parquet"))
        assert names(checkpoint, "offsets/0")
        if not names(table, "_spark_metadata/0"):
            break
        # The batch has ended before the kill: begin anew.
        shutil.rmtree(table)
        shutil.rmtree(checkpoint)
    assert names(table, "day=*/*.parquet"), "its files are left over"
    kill_at(tmp_path, lambda: names(table, "_spark_metadata/3"))
    for number in (3, 4, 5, 6):
        (journal / f"stream=main/segment-{number}-{number}.parquet").unlink()
    write_segments(journal, range(3, 7), count=20)
    with ingest(tmp_path, "--continuous", "--interval-s", "1") as process:
        eventually(lambda: len(names(checkpoint, "commits/*")) > 5, within_s=180, what="a batch")
        write_segments(journal, range(9, 13), count=20)

        expected = Counter(
            (segment, n) for segment in range(1, 13) for n in range(20_000 if segment == 1 else 20)
        )
        eventually(lambda: rows_of(table) >= len(expected), within_s=180, what="all")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (tmp_path / "log").read_text()[-3000:]
    assert events_of(table) == expected

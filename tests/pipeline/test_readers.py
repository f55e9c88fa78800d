"""The examples of `deploy/reference/journal.md` do what it says, over a journal with overlaps."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas
import pytest

from pipeline.journals import write_segments
from pipeline.running import installed
from support.machine.ports import free_port, is_open
from support.machine.processes import run_program, wait_or_kill
from support.waiting import eventually

PAGE = Path(__file__).parents[2] / "deploy" / "reference" / "journal.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def _journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three segments of three deaths; the first is in two files, and one file is unfinished."""
    for segments in ([1], [1, 2], [3]):
        write_segments(tmp_path / "journal", segments, origin="queue://orders")
    (tmp_path / "journal" / "stream=main" / ".segment-4-4.parquet.1a2b").write_bytes(b"half")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_journal")
def test_duckdb_counts_each_event_once() -> None:
    view, deaths, last = blocks("sql")
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.execute(view)
    (row,) = database.execute(deaths).fetchall()
    assert (str(row[0]), *row[1:]) == ("2026-01-01", "(no reason given)", 9)
    assert database.execute(last).fetchall() == [("received", 9)]


@pytest.mark.usefixtures("_journal")
def test_pandas_counts_each_event_once() -> None:
    code, *_ = blocks("python")
    names: dict[str, pandas.Series] = {}
    exec(code, names)
    assert names["by_hour"].to_dict() == {
        (pandas.Timestamp("2026-01-01", tz="UTC"), "queue://orders"): 9
    }


PACKAGES = ("moto[s3,server]==5.2.5", "s3fs==2026.9.0", "deltalake==1.6.6")
SERVER = "from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
PROGRAM = """
import duckdb, fsspec, pandas
store = fsspec.filesystem("s3")
store.mkdir("bucket")
store.put("journal", "bucket/journal", recursive=True)
database = duckdb.default_connection()
{register}
database.execute('''{view}''')
print(database.execute("SELECT count(*) FROM events").fetchall()[0][0])
print(len(pandas.read_parquet("s3://bucket/journal/stream=main/segment-3-3.parquet")))
{delta}
from deltalake import DeltaTable
print(DeltaTable("history-delta").to_pyarrow_table().num_rows)
"""

UPLOAD = """
import fsspec
store = fsspec.filesystem("s3")
store.mkdir("{url}")
store.put("journal", "{url}/journal", recursive=True)
store.touch("{url}/table/_SUCCESS")
"""
DOWNLOAD = """
import fsspec
fsspec.filesystem("s3").get("{url}/out", "remote", recursive=True)
"""
COMMAND = ("-m", "amqsidecar", "pipeline")
PLACES = ("local", "remote")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the environment needs so that `s3://` is a server that runs; it holds nothing."""
    folder = tmp_path_factory.mktemp("packages")
    port = free_port()
    keys = {"AWS_ACCESS_KEY_ID": "name", "AWS_SECRET_ACCESS_KEY": "word"}
    places = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    environment = {**os.environ, **keys, **places, **installed(folder, *PACKAGES)}
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER.format(port=port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: is_open(port), within_s=60)
        yield environment
    finally:
        server.terminate()
        wait_or_kill(server, 10)


def finish(environment: dict[str, str], *command: str) -> str:
    return run_program([sys.executable, *command], code=0, env=environment).stdout


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("_journal")
def test_an_object_store_is_read_and_a_delta_table_written(
    store: dict[str, str], tmp_path: Path
) -> None:
    """DuckDB, pandas and `ingest` find the journal there; the copy has each event once."""
    _, register, delta = blocks("python")
    view = blocks("sql")[0].replace("'journal/", "'s3://bucket/journal/")
    program = PROGRAM.format(register=register, view=view, delta=delta)
    assert finish(store, "-c", program).split() == ["9", "3", "9"]
    ingest = ("-m", "amqsidecar", "pipeline", "ingest", "--journal", "s3://bucket/journal")
    places = ("--table", str(tmp_path / "table"), "--checkpoint", str(tmp_path / "checkpoint"))
    finish(store, *ingest, *places)
    table = pandas.read_parquet(tmp_path / "table")
    assert sorted(zip(table["segment"], table["position"], strict=True)) == [
        (segment, position) for segment in (1, 2, 3) for position in range(3)
    ]


JOBS: dict[str, tuple[str, ...]] = {
    "recovery": (),
    "causes": (),
    "whatif": ("--policy", "today=policy.yaml", "--no-search"),
}


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("_journal")
@pytest.mark.parametrize("job", JOBS)
def test_a_job_reads_and_writes_an_object_store(
    store: dict[str, str], tmp_path: Path, job: str
) -> None:
    """It needs `s3fs` only; a table there needs Hadoop's connector, too, which the error says."""
    url = f"s3://{job}"
    finish(store, "-c", UPLOAD.format(url=url))
    (tmp_path / "policy.yaml").write_text("plugins: [{redelivery: {default_entry: {}}}]\n")
    for events, out in (("journal", "local"), (f"{url}/journal", f"{url}/out")):
        finish(store, *COMMAND, job, *JOBS[job], "--events", events, "--output-folder", out)
    finish(store, "-c", DOWNLOAD.format(url=url))
    names = [one.relative_to("local") for one in Path("local").glob("*/part-00000.parquet")]
    assert names
    for name in names:
        local, remote = (pandas.read_parquet(place / name) for place in map(Path, PLACES))
        pandas.testing.assert_frame_equal(remote, local)

    places = ("--events", f"{url}/table", "--output-folder", "none")
    command = (sys.executable, *COMMAND, job, *JOBS[job], *places)
    done = run_program(command, code=78, env=store)
    assert "Spark can't open this table of parquet; it may need a library" in done.stderr

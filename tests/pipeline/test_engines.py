"""One journal, the Sparks of managed services, Spark Connect, DuckDB and pandas: equal tables.

Also where the events lie in a table of Delta or Iceberg.

The table in deploy/spark/README.md names what is tried here.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas
import pyspark
import pytest

from amqsidecar.model.event import Received
from amqsidecar.pipeline.causes.tables import NO_REASON
from amqsidecar.pipeline.tables import EVERYWHERE
from pipeline.journals import write_journal
from pipeline.recovery.histories import row
from pipeline.recovery.test_recovery import life
from pipeline.running import installed, rows_of, tables_in
from support.histories.spark_home import java_options
from support.machine.ports import free_port, is_open
from support.machine.processes import run_program, wait_or_kill
from support.maven import libraries
from support.waiting import eventually

pytestmark = [pytest.mark.proof, pytest.mark.timeout(1800)]

VERSIONS = ("4.0", "4.1", "4.2")
CONNECT = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
JOBS = {
    "recovery": ("--horizon", "300s"),
    "causes": (),
    "whatif": ("--horizon", "300s", "--policy", "today={policy}"),
}
POLICY = "plugins: [{redelivery: {default_entry: {maximum_redeliveries: 3}}}]\n"
LAKES = {
    "delta": (
        "io.delta:delta-spark_2.13:4.0.0",
        "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ),
    "iceberg": (
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
        "spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type=hadoop",
        "spark.sql.catalog.lake.warehouse={folder}",
    ),
}
COPY = """
import sys
from amqsidecar.pipeline.session import open_session
from amqsidecar.pipeline.sources.events import read_events
kind, journal, table, *conf = sys.argv[1:]
events = read_events(open_session("copy", None, conf), journal)
if kind == "delta":
    events.write.format(kind).save(table)
else:
    events.writeTo("lake.history.events").create()
"""


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engines") / "journal"
    for number in (1, 2):
        events = [
            event
            for group in range(6)
            for at in range(30)
            for event in life(random.Random(f"{group} {at} {number}"), group, 30 * number + at)
        ]
        rows = [
            row("main", place, event)
            | {"segment": number}
            | ({"cause_group": f"a.B{place % 3}"} if isinstance(event, Received) else {})
            for place, event in enumerate(events)
        ]
        write_journal(folder, rows, number=number)
    return folder


@pytest.fixture(scope="module")
def expected(journal: Path) -> dict[str, list[str]]:
    return tables(journal, "newest", {})


def run(environment: dict[str, str], *command: str) -> None:
    places = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    run_program([sys.executable, *command], code=0, env=places)


def tables(
    journal: Path, engine: str, environment: dict[str, str], *options: str
) -> dict[str, list[str]]:
    """Return the rows of all tables of the jobs."""
    found: dict[str, list[str]] = {}
    policy = journal.parent / "policy.yaml"
    policy.write_text(POLICY)
    for job, asked in JOBS.items():
        out = journal.parent / engine / job
        more = [one.format(policy=policy) for one in asked]
        arguments = ("--events", str(journal), "--output-folder", str(out), *more, *options)
        run(environment, "-m", "amqsidecar", "pipeline", job, *arguments)
        found |= tables_in(out)
    assert len(found) > len(JOBS)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_older_sparks_write_the_same(
    version: str, journal: Path, expected: dict[str, list[str]], tmp_path: Path
) -> None:
    environment = installed(tmp_path, f"pyspark=={version}.*")
    assert tables(journal, version, environment) == expected


@pytest.mark.parametrize("kind", LAKES)
def test_a_table_of_a_library_is_written_and_read(
    kind: str, journal: Path, expected: dict[str, list[str]], tmp_path: Path
) -> None:
    library, *settings = LAKES[kind]
    jars = ",".join(map(str, libraries(kind, [library]).glob("*.jar")))
    conf = [f"spark.jars={jars}", *(one.format(folder=tmp_path) for one in settings)]
    environment = installed(tmp_path / "packages", "pyspark==4.0.*")
    table = tmp_path / "history" / "events"
    run(environment, "-c", COPY, kind, str(journal), str(table), *conf)
    options = [word for one in conf for word in ("--conf", one)]
    assert tables(table, kind, environment, *options) == expected


@pytest.fixture
def connect() -> Iterator[str]:
    """The address of a server, which runs tasks with this Python."""
    port = free_port()
    settings = (f"spark.connect.grpc.binding.port={port}", "spark.ui.enabled=false", java_options())
    home = Path(pyspark.__file__).parent
    server = subprocess.Popen(
        [
            *(home / "bin" / "spark-submit", "--master", "local[2]", "--class", SERVER),
            *(word for one in settings for word in ("--conf", one)),
            "spark-internal",
        ],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: is_open(port), within_s=300)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        wait_or_kill(server, 60)


def test_spark_connect_writes_the_same(
    connect: str, journal: Path, expected: dict[str, list[str]], tmp_path: Path
) -> None:
    environment = installed(tmp_path, *CONNECT)
    assert tables(journal, "connect", environment, "--master", connect) == expected


def test_duckdb_and_pandas_find_the_same_groups(
    journal: Path, expected: dict[str, list[str]]
) -> None:
    """By origin and cause the deaths, and those of them that were a message's first."""
    assert expected
    files = str(journal / "stream=*" / "segment-*.parquet")
    by_duckdb = duckdb.execute(
        "SELECT origin, coalesce(cause_group, ?), count(*), count(*) FILTER (type = 'received')"
        " FROM read_parquet(?) WHERE type IN ('received', 'returned') GROUP BY 1, 2",
        [NO_REASON, files],
    ).fetchall()
    events = pandas.concat(
        pandas.read_parquet(one, partitioning=None) for one in sorted(journal.glob("*/*.parquet"))
    )
    deaths = events[events["type"].isin(["received", "returned"])].fillna(
        {"cause_group": NO_REASON}
    )
    is_first = (deaths["type"] == "received").rename("first")
    counted = is_first.groupby([deaths["origin"], deaths["cause_group"]]).agg(["size", "sum"])
    by_pandas = [tuple(row) for row in counted.reset_index().to_numpy().tolist()]
    groups = rows_of(journal.parent / "newest" / "causes" / "cause_groups")
    by_job = [
        (one["origin"], one["cause_group"], one["deaths"], one["messages"])
        for one in groups
        if one["origin"] != EVERYWHERE
    ]
    assert sorted(by_job) == sorted(by_duckdb) == sorted(by_pandas)

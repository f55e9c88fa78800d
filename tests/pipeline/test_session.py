"""What a session of ours is set to; where Spark does not start, a command says what it lacks."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow
from pyspark.sql import SparkSession

from amqsidecar.pipeline.python_daemon import without_zips
from support.histories.spark_home import INSTALLED
from support.machine.processes import run_program


def test_without_java_a_job_says_that_it_needs_it(tmp_path: Path) -> None:
    job = ["causes", "--events", str(tmp_path), "--output-folder", str(tmp_path / "out")]
    without = {**os.environ, "JAVA_HOME": str(tmp_path / "absent")}
    done = run_program([sys.executable, "-m", "amqsidecar", "pipeline", *job], code=78, env=without)
    assert "It needs Java 17 or later" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_master_counts_before_the_remote_of_the_environment(tmp_path: Path) -> None:
    job = ["causes", "--events", str(tmp_path / "absent"), "--output-folder", str(tmp_path / "out")]
    command = [sys.executable, "-m", "amqsidecar", "pipeline", *job, "--master", "local[1]"]
    remote = {**os.environ, "SPARK_REMOTE": "sc://127.0.0.1:1"}
    done = run_program(command, code=78, env=remote)
    assert "expected the folder of a journal" in done.stderr


def test_what_is_cached_has_as_few_partitions_as_its_rows_need(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", 50)
    try:
        few = spark.range(10).groupBy("id").count().persist()
        assert few.count() == 10
        assert few.rdd.getNumPartitions() <= 2
        few.unpersist()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", 2)


def test_java_options_of_a_setting_come_after_ours(spark: SparkSession) -> None:
    """The last of equal options counts to Java; the test session has some of its own."""
    java = spark.sparkContext._jvm
    assert java is not None
    words = list(java.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    theirs = words.index("-XX:TieredStopAtLevel=1")
    assert 0 <= words.index("-XX:Tier4InvocationThreshold=500000") < theirs


def test_a_worker_imports_nothing_heavy(spark: SparkSession) -> None:
    """Its parent has: what a worker imports itself the next one imports again."""

    def look(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        parent = Path(f"/proc/{os.getppid()}/maps").read_text()
        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"library": ["pandas", "pyarrow"]}).filter(
                pyarrow.array([f"/{one}/" in parent for one in ("pandas", "pyarrow")])
            )

    found = spark.range(1, numPartitions=1).mapInArrow(look, "library string").collect()
    assert [row.library for row in found] == ["pandas", "pyarrow"]


def test_zips_of_an_installed_pyspark_are_left_out() -> None:
    site = INSTALLED.parent
    (zipped,) = INSTALLED.glob("python/lib/pyspark.zip")
    assert without_zips([str(zipped), "elsewhere", str(site)]) == ["elsewhere", str(site)]
    assert without_zips([str(zipped), "elsewhere"]) == [str(zipped), "elsewhere"]

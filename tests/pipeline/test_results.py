"""What lies in the folder of a job is of one run."""

from pathlib import Path

import pyarrow
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from amqsidecar.pipeline.results import Results


def test_a_run_begins_by_removing_what_an_earlier_one_left(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = ("first", "second", "proposal")
    old = Results(spark, str(tmp_path), names)
    for name in names:
        old.keep(name, spark.range(1))
    Path(old.report_path).write_text("old", encoding="utf-8")
    (tmp_path / "mine").write_text("of somebody else", encoding="utf-8")

    new = Results(spark, str(tmp_path), names)
    assert (tmp_path / "second" / "_SUCCESS").exists()
    assert new.keep("first", spark.range(2)).count() == 2
    assert sorted(one.name for one in tmp_path.iterdir()) == ["first", "mine"]

    new.keep("unannounced", spark.range(1))
    with pytest.raises(AnalysisException, match="already exists"):
        Results(spark, str(tmp_path), names).keep("unannounced", spark.range(1))


def test_an_output_is_of_a_source_only_as_long_as_it_is_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    results = Results(spark, str(tmp_path), ("first",))
    assert not results.are_of("mine")
    results.write("first", pyarrow.table({"number": [1]}))
    results.name_source("mine")
    assert not results.are_of("mine")
    Path(results.report_path).write_text("whole", encoding="utf-8")
    assert results.are_of("mine")
    assert not results.are_of("another")

    Results(spark, str(tmp_path), ("first",)).write("first", pyarrow.table({"number": [2]}))
    Path(results.report_path).write_text("of another", encoding="utf-8")
    assert not results.are_of("mine")

"""What lies in the folder of a job is of one run."""

from pathlib import Path

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

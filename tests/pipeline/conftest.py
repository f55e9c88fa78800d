"""One Spark session for all tests of the pipeline, and journals that several modules share.

A session takes five seconds to start. It does not compile its queries; `test_cluster.py` compares
what it finds with what a cluster finds that does.
"""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from amqsidecar.pipeline.session import open_session
from bench.journal_generator import Plan, plan_for
from pipeline.generated import Generated
from support.histories.spark_cluster import FEW_ROWS
from support.histories.spark_home import java_options, spark_home


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(spark_home()))
        session = open_session(
            "tests",
            "local[2]",
            [
                *FEW_ROWS,
                "spark.sql.shuffle.partitions=2",
                "spark.driver.memory=1g",
                java_options(),
                "spark.sql.adaptive.enabled=true",
            ],
        )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def even(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Generated:
    """A journal of 20,000 events over 20 destinations."""
    return Generated(spark, tmp_path_factory.mktemp("even"), plan_for(20_000, days=2))


@pytest.fixture(scope="session")
def skewed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Generated:
    """A small one of which one destination has 99 % of the messages, and so few partitions all."""
    plan = Plan(lives=1_000, days=1, is_skewed=True)
    return Generated(spark, tmp_path_factory.mktemp("skewed"), plan)

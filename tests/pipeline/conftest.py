"""One Spark session for all tests of the pipeline: it takes five seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from amqsidecar.pipeline.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session(
        "tests",
        "local[2]",
        [
            "spark.sql.shuffle.partitions=2",
            "spark.driver.memory=1g",
            # Why: plans are new in each test and rows few, so that compiling well costs most.
            "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.adaptive.enabled=true",
        ],
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()

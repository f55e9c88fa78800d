"""The Spark session of a job."""

import os
import sys
from collections.abc import Sequence
from typing import Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from amqsidecar.errors import ConfigError, Problem

_LATE_C2: Final = " ".join(
    (
        "-XX:Tier4InvocationThreshold=500000",
        "-XX:Tier4MinInvocationThreshold=60000",
        "-XX:Tier4CompileThreshold=1500000",
        "-XX:Tier4BackEdgeThreshold=4000000",
    )
)
"""The optimizing compiler starts a hundred times later than by default.

Why: a job makes much new code, of which it runs most for the length of one small query.
"""


def open_session(job: str, master: str | None, conf: Sequence[str]) -> SparkSession:
    """Return a session; under spark-submit the one that it configures.

    Times are UTC in every session: a table must not depend on where it is made.

    Args:
        job: its name, as the user interface of Spark shows it.
        master: sc://HOST:PORT = Spark Connect; it counts before SPARK_REMOTE. None = that of
            spark-submit or SPARK_REMOTE, or all processors of this machine without it.
        conf: settings as `key=value`; they override all others.

    Raises:
        ConfigError: a setting is not of this form, or Java does not run Spark.
    """
    builder = SparkSession.builder.appName(f"amqsidecar {job}")
    is_connect = "SPARK_REMOTE" in os.environ if master is None else master.startswith("sc://")
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ or is_connect
    if is_connect and master is not None:
        builder = builder.remote(master)
    elif master is not None:
        # Why removed: PySpark takes it before any master.
        os.environ.pop("SPARK_REMOTE", None)
        builder = builder.master(master)
    elif not is_submitted:
        builder = builder.master("local[*]")
    settings = {"spark.sql.session.timeZone": "UTC"}
    # Why not with Connect: its server has settings of its own.
    if not is_connect:
        # Why: else PySpark asks Java eight times more for each column, to name our lines in errors.
        settings["spark.python.sql.dataFrameDebugging.enabled"] = "false"
        # Why: else a cached table keeps all partitions of its shuffle, each a task of every query.
        settings["spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"] = "true"
    if not is_submitted:
        # Why: Spark has no file system of this name, and a sidecar's journal may have it.
        settings["spark.hadoop.fs.s3.impl"] = "org.apache.hadoop.fs.s3a.S3AFileSystem"
    if not is_submitted and (master is None or master.startswith("local")):
        # Why: Spark would run its Python processes by any `python3`, without this package.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # Why not as a setting: it would replace one of spark-defaults.conf. All others win over it.
        os.environ.setdefault("SPARK_SUBMIT_OPTS", _LATE_C2)
        settings |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.python.daemon.module": "amqsidecar.pipeline.python_daemon",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
    for item in conf:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ConfigError([Problem("--conf", f"{item!r} is not of the form KEY=VALUE")])
        settings[key.strip()] = value
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        what = (
            "Spark did not start; why stands above. It needs Java 17 or later, on the path or where"
            " JAVA_HOME says, and settings (--conf, --master) that it knows"
        )
        raise ConfigError([Problem("java", what)]) from error

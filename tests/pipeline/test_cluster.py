"""Jobs on a standalone cluster write what they write on one machine; what ships them works."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from ruamel.yaml import YAML

from amqsidecar.cli.pipeline_command import pipeline
from pipeline.generated import Generated
from pipeline.running import tables_in
from support.histories.spark_cluster import SparkCluster
from support.histories.spark_home import FAST_START, java_options, spark_home
from support.machine.processes import run_program
from support.tier import at_length

DEPLOYMENT = Path(__file__).parents[2] / "deploy" / "spark"
BARE_PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")
JOBS = ("recovery", "causes")
WORKERS = at_length(2, otherwise=1)
CONF = (
    "spark.driver.bindAddress=127.0.0.1",
    "spark.driver.host=127.0.0.1",
    "spark.driver.memory=512m",
    f"spark.executor.extraJavaOptions={FAST_START}",
    "spark.executor.memory=512m",
    "spark.sql.shuffle.partitions=2",
    "spark.ui.enabled=false",
)
ONE_AFTER_THE_OTHER = """
import json, sys
from amqsidecar.cli.main import run_command_line
sys.exit(max(run_command_line(arguments) for arguments in json.loads(sys.argv[1])))
"""

pytestmark = pytest.mark.timeout(900)  # nine JVMs, which share what processors there are


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Workers whose Python has no packages: what jobs need has to be brought."""
    folder = tmp_path_factory.mktemp("daemons")
    with SparkCluster(folder, workers=WORKERS, python=BARE_PYTHON) as started:
        yield started


def conf_options() -> list[str]:
    return [word for setting in (*CONF, java_options()) for word in ("--conf", setting)]


def finish(command: list[str], **environment: str) -> None:
    places = {"SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    run_program(command, code=0, env={**os.environ, **places, **environment})


# Why in proof: below, one job on the cluster writes what it writes on one machine.
@pytest.mark.proof
def test_jobs_on_a_cluster_write_what_they_write_on_one_machine(
    cluster: SparkCluster, skewed: Generated
) -> None:
    asked = [
        ["pipeline", *skewed.arguments(job, "cluster"), "--master", cluster.url, *conf_options()]
        for job in JOBS
    ]
    finish([sys.executable, "-c", ONE_AFTER_THE_OTHER, json.dumps(asked)])
    assert cluster.workers_of(f"amqsidecar {JOBS[0]}") == WORKERS
    for job in JOBS:
        here, there = tables_in(skewed.output(job)), tables_in(skewed.folder / "cluster" / job)
        assert any(here.values())
        assert there == here, job


@pytest.mark.parametrize("name", ["recovery", pytest.param("whatif", marks=pytest.mark.proof)])
def test_submit_brings_all_that_workers_need(
    cluster: SparkCluster, skewed: Generated, name: str
) -> None:
    """Both run the sidecar's own code in Python on the workers: `whatif` for longer, its policy."""
    job = skewed.arguments(name, "submitted")
    options = ["--master", cluster.url, *conf_options()]
    options += ["--conf", f"spark.pyspark.python={BARE_PYTHON}"]
    finish([sys.executable, str(DEPLOYMENT / "submit"), *options, "--", *job])
    here, there = tables_in(skewed.output(name)), tables_in(skewed.folder / "submitted" / name)
    assert any(here.values())
    assert there == here


def test_submit_without_a_job_says_how() -> None:
    command = [sys.executable, DEPLOYMENT / "submit", "--master", "spark://127.0.0.1:1"]
    done = run_program(command, code=1)
    assert done.stderr.startswith("usage: submit [OPTIONS OF SPARK-SUBMIT] -- JOB")


def test_the_manifest_has_what_the_operator_asks_for_and_runs_a_command_of_ours() -> None:
    manifest = YAML(typ="safe").load(DEPLOYMENT / "spark-application.yaml")
    spec = manifest["spec"]
    assert (manifest["apiVersion"], manifest["kind"]) == (
        "sparkoperator.k8s.io/v1beta2",
        "SparkApplication",
    )
    assert spec.keys() >= {"type", "sparkVersion", "mainApplicationFile", "driver", "executor"}
    assert spec["mainApplicationFile"].endswith("/amqsidecar_pipeline.py")
    assert (DEPLOYMENT / "amqsidecar_pipeline.py").is_file()
    job, *options = spec["arguments"]
    group: Any = typer.main.get_command(pipeline)
    names = {one.partition("=")[0].removeprefix("--").replace("-", "_") for one in options}
    assert names <= {one.name for one in group.commands[job].params}

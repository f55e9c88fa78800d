"""Writes the archives of classes that are missing: of each broker, of a JMS peer, and of Spark.

PYTHONPATH=tests python -m support.write_class_archives          # part of `make brokers`
"""

import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from amqsidecar.cli.main import run_command_line
from amqsidecar.pipeline.session import open_session
from pipeline.journals import write_segments
from support.brokers.process import QUICK_START
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.class_archives import FILE, WRITE, archive_name, class_path_of
from support.histories.spark_cluster import FEW_ROWS
from support.histories.spark_home import java_options, spark_class_path, spark_home
from support.jms.peer import JmsPeer
from support.jms.process import JVM_FLAGS, PeerProcess
from support.maven import cached
from support.versions import ARTEMIS, CLASSIC_6, NEWEST, TESTED, Release

# Why: thousands of classes are written at the end of the process.
WRITES_WITHIN_S = 300.0
MET = dict.fromkeys((*TESTED.values(), *NEWEST))


def write_for_broker(make: Callable[[Sequence[str]], Broker]) -> Path:
    """Write the archive of a broker, if it is missing; return its folder."""

    def build(folder: Path) -> None:
        with make((*QUICK_START, f"{WRITE}{folder / FILE}")) as broker:
            _exchange(JmsPeer.of(broker, "core" if broker.kind == "artemis" else "qpid"))
            broker.stop(within_s=WRITES_WITHIN_S)

    return cached(archive_name(class_path_of(make(QUICK_START)._java())), build)


def write_for_peer() -> Path:
    """Write the archive of the JMS peer, if it is missing; return its folder."""

    def build(folder: Path) -> None:
        process = PeerProcess((*JVM_FLAGS, f"{WRITE}{folder / FILE}"))
        for broker, providers in (
            (ClassicBroker(CLASSIC_6), ("openwire", "qpid")),
            (ArtemisBroker(version=ARTEMIS), ("core",)),
        ):
            with broker:
                for provider in providers:
                    _exchange(JmsPeer.of(broker, provider, process=process))
        process.close(within_s=WRITES_WITHIN_S)

    return cached(archive_name(class_path_of(PeerProcess.java())), build)


def write_for_spark() -> Path:
    """Write the archive of the pipeline's tests, if it is missing; return its folder."""

    def build(folder: Path) -> None:
        os.environ["SPARK_HOME"] = str(spark_home())
        settings = (*FEW_ROWS, java_options("-Xlog:disable", f"{WRITE}{folder / FILE}"))
        session = open_session("archive", "local[2]", settings)
        with tempfile.TemporaryDirectory() as scratch:
            journal = f"{scratch}/journal"
            write_segments(Path(journal), [1], origin="queue://archived")
            table = ["--table", f"{scratch}/table", "--checkpoint", f"{scratch}/checkpoint"]
            history = ["--events", journal, "--output-folder", f"{scratch}/out"]
            for job in (["ingest", "--journal", journal, *table], ["causes", *history]):
                run_command_line(["pipeline", *job])
        gateway: Any = session.sparkContext._gateway
        session.stop()
        gateway.proc.stdin.close()
        gateway.proc.wait(WRITES_WITHIN_S)

    return cached(archive_name(spark_class_path()), build)


def _exchange(peer: JmsPeer) -> None:
    peer.consume("archived", count=len(peer.produce("archived")))


def main() -> None:
    """Write each archive that is missing, and say how long it took."""
    steps: list[tuple[str, Callable[[], Path]]] = [
        *((str(one), functools.partial(write_for_broker, _maker(one))) for one in MET),
        ("the JMS peer", write_for_peer),
        ("Spark", write_for_spark),
    ]
    for label, written in steps:
        began_s = time.monotonic()
        folder = written()
        took_s = time.monotonic() - began_s
        print(f"classes of {label}: {took_s:.1f} s, {folder}", file=sys.stderr, flush=True)


def _maker(chosen: Release) -> Callable[[Sequence[str]], Broker]:
    if chosen.family == "artemis":
        return lambda flags: ArtemisBroker(version=chosen.version, jvm_flags=flags)
    return lambda flags: ClassicBroker(chosen.version, jvm_flags=flags)


if __name__ == "__main__":
    main()

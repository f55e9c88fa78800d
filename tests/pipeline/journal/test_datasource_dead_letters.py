"""`format("amqsidecar")` shows the messages of a dead-letter queue, takes none, shows no secret."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

from amqsidecar.errors import BrokerRefused
from amqsidecar.pipeline.sources import dead_letters as datasource_dead_letters
from amqsidecar.pipeline.sources.datasource import register
from amqsidecar.pipeline.sources.dead_letters import DeadLetterOptions, DeadLetterReader
from amqsidecar.pipeline.tables import DEAD_LETTERS
from support.brokers.real import Broker
from support.jms.peer import JmsPeer
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.openwire import OpenWireHarness

SECRET = "geheim-4711"


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def look(spark: SparkSession, **options: str) -> DataFrame:
    return spark.read.format("amqsidecar").options(**options).load()


def directly(url: str, queue: str, max_messages: int | None = None) -> list[tuple[Any, ...]]:
    """Read as Spark's Python processes do, in this one."""
    options = DeadLetterOptions((queue,), (f"broker.url={url}",), None, max_messages)
    return list(DeadLetterReader(options).read(InputPartition(queue)))


# With real brokers


@pytest.mark.broker
def test_on_artemis_it_shows_all_and_takes_nothing(
    spark: SparkSession, artemis: Broker, unique: str
) -> None:
    harness = AmqpArtemisHarness(artemis, unique)
    origin = f"{unique}.orders"
    harness.set_address(origin, deadLetterAddress=harness.dead_letter_queue, maxDeliveryAttempts=1)
    for provider in ("core", "qpid"):
        JmsPeer.of(artemis, provider).produce(origin, "Text", persistent=provider == "core")
    harness.kill(origin)
    found = look(spark, url=artemis.amqp_url, queue=harness.dead_letter_queue)
    assert found.schema.simpleString() == DEAD_LETTERS.simpleString()
    rows = found.orderBy("position").collect()
    assert [row.position for row in rows] == [0, 1]
    assert {row.origin for row in rows} == {f"queue://{origin}"}
    assert {row.source for row in rows} == {f"queue://{harness.dead_letter_queue}"}
    assert sorted(row.persistent for row in rows) == [False, True]
    assert {(row.redelivery_count, row.redelivery_id, row.expired) for row in rows} == {
        (0, None, False)
    }
    assert all(row.message_id for row in rows)
    assert harness.depth(harness.dead_letter_queue) == 2
    harness.drain_raw(harness.dead_letter_queue)
    harness.close()


@pytest.mark.broker
def test_on_classic_causes_are_grouped_and_no_password_is_shown(
    spark: SparkSession, classic_6: Broker, unique: str, capfd: pytest.CaptureFixture[str]
) -> None:
    harness = OpenWireHarness(classic_6, unique)
    harness.put_dead_letters(f"{unique}.orders", 3)
    port = classic_6.ports["OPENWIRE_PORT"]
    url = f"openwire://reader:{SECRET}@127.0.0.1:{port}"
    found = look(spark, url=url, queue=harness.dead_letter_queue)
    rows = found.orderBy("position").collect()
    assert [row.position for row in rows] == [0, 1, 2]
    assert {row.origin for row in rows} == {f"queue://{unique}.orders"}
    assert all(row.cause and row.cause_group and row.size_bytes > 100 for row in rows)
    assert found.groupBy("cause_group").count().count() == 1
    found.explain(extended=True)
    refused = look(spark, url=url.replace(str(port), "1"), queue=harness.dead_letter_queue)
    with pytest.raises(PythonException, match="LinkLost") as caught:
        refused.count()
    out, err = capfd.readouterr()
    assert "amqsidecar" in out
    for told in (out, err, str(caught.value)):
        assert SECRET not in told
    harness.drain_raw(harness.dead_letter_queue)
    harness.close()


@pytest.mark.broker
def test_a_look_that_shows_less_is_an_error_unless_asked_for(
    classic_6: Broker, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = OpenWireHarness(classic_6, unique)
    url, name = classic_6.openwire_url, harness.dead_letter_queue
    harness.put_dead_letters(f"{unique}.orders", 6)
    assert len(directly(url, name)) == 6
    assert [row[1] for row in directly(url, name, 4)] == [0, 1, 2, 3]
    monkeypatch.setattr(datasource_dead_letters, "MAX_MESSAGES", 6)
    with pytest.raises(BrokerRefused, match="a look shows the first 6, and there may be more"):
        directly(url, name)
    harness.drain_raw(name)
    assert directly(url, name) == []
    harness.close()


# Without a broker


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "amqp://u@h"}, "option queue: is not set: name the dead-letter queues"),
        ({"queue": "DLQ"}, "option url: is not set: give the broker's address"),
        ({"url": "amqp://u@h", "queue": "DLQ", "password": "x"}, "option password: there is no"),
        ({"url": f"amqp://u:{SECRET}@h:port", "queue": "DLQ"}, "option url: .*port"),
        ({"url": "amqp://u@127.0.0.1:1", "queue": "DLQ", "password_file": "/absent"}, "/absent"),
    ],
)
def test_wrong_options_are_refused(
    spark: SparkSession, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words) as caught:
        look(spark, **options).count()
    assert SECRET not in str(caught.value)


def test_a_dead_letter_queue_is_no_stream(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("amqsidecar").option("url", "amqp://h").option("queue", "DLQ")
    writer = stream.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.start()
    with pytest.raises(StreamingQueryException, match="queue can't be streamed") as end:
        query.awaitTermination()
    assert "UnboundLocalError" not in str(end.value)

"""Why a message died, said by the consumer that gave it up, where the broker says nothing."""

import uuid
from pathlib import Path

import pytest

from support.brokers.real import ArtemisBroker
from support.jms.peer import JmsPeer
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICY = Path(__file__).parents[1] / "policies" / "artemis.yaml"
CAUSE = "com.acme.OutOfStock: article 4711\n\tat com.acme.Orders.on(Orders.java:12)"


@pytest.mark.parametrize("provider", ["qpid", "core"])
@pytest.mark.parametrize("wire", ["pair", pytest.param("amqp", marks=pytest.mark.proof)])
def test_consumer_that_dead_letters_by_itself_says_why_and_from_where(
    artemis: ArtemisBroker, tmp_path: Path, provider: str, wire: str
) -> None:
    queue = f"e2e.late.said_{uuid.uuid4().hex[:8]}"
    peer = JmsPeer.of(artemis, provider)
    peer.produce(queue, ["Text"], test_id=queue)
    peer.consume(queue, count=1)
    died = {"_AMQ_ORIG_ADDRESS": queue, "_AMQ_ORIG_QUEUE": queue, "amqsidecarCause": CAUSE}
    with SidecarProcess(
        tmp_path, getattr(artemis, f"{wire}_url"), policy=POLICY, sets=["intake.backlog=process"]
    ) as sidecar:
        sidecar.start()
        peer.produce("DLQ", ["Text"], properties=died)

        def row() -> dict[str, object] | None:
            rows = sidecar.rows("--destination", queue)
            return rows[0] if rows else None

        found = eventually(row, what="it was taken")
        assert found["cause"] == CAUSE
        assert found["destination"] == f"queue://{queue}"
        is_amqp = wire == "amqp" or provider == "qpid"
        assert str(found["encoding"]).startswith("amqp" if is_amqp else "core")

        sidecar.run_command("retry", str(found["id"]))
        (message,) = peer.consume(queue, count=1, wait_ms=20_000)
        assert "amqsidecarCause" not in message.properties

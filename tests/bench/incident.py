"""Very many deaths at once, and how late they come back: the sidecar beside the broker alone.

Consumers reject each message once and then take it. The broker alone redelivers by its plugin
(Classic) or by its own redelivery-delay (Artemis).
"""

import itertools
from contextlib import ExitStack
from pathlib import Path

from bench.dead_letters import BODY_BYTES, application_peer
from bench.lateness import Spread
from bench.sidecar_watch import measured_sidecar
from bench.whole_cycle import plugin_broker
from support.brokers.broker_xml import DEAD_AT_ONCE
from support.brokers.real import FULL_SPEED, ArtemisBroker, Broker, ClassicBroker
from support.jms.peer import FlakyConsumer
from support.waiting import eventually

CONSUMERS = 4
_numbers = itertools.count(1)


def incident_broker(version: str, delay_ms: int = 0, *, is_classic: bool) -> Broker:
    """Return a broker that redelivers by itself after this delay; 0 = by a sidecar."""
    if is_classic and delay_ms:
        return plugin_broker(version, delay_ms)
    if is_classic:
        return ClassicBroker(version, jvm_flags=FULL_SPEED)
    settings = DEAD_AT_ONCE
    if delay_ms:
        delay = f"<redelivery-delay>{delay_ms}</redelivery-delay>"
        settings = settings.replace(
            "<max-delivery-attempts>1<", f"{delay}<max-delivery-attempts>6<"
        )
    return ArtemisBroker(version=version, jvm_flags=FULL_SPEED, address_settings=settings)


def bench_incident(broker: Broker, count: int, delay_ms: int, folder: Path | None = None) -> Spread:
    """Return how late messages came back beyond the delay.

    Args:
        broker: redelivers by itself where there is no folder.
        count: messages.
        delay_ms: of the redelivery.
        folder: of the sidecar that redelivers; None = the broker does it alone.
    """
    number, peer = next(_numbers), application_peer(broker)
    queues = [f"bench.incident.{number}.{one}" for one in range(CONSUMERS)]
    for queue in queues:
        peer.fill(queue, count // CONSUMERS, size=BODY_BYTES)
    with ExitStack() as stack:
        if folder is not None:
            run = folder / f"incident-{number}"
            stack.enter_context(measured_sidecar(run, broker, delay_ms=delay_ms)).start()
        consumers = [
            stack.enter_context(peer.start_flaky_consumer(queue, failures=1)) for queue in queues
        ]
        expected = CONSUMERS * (count // CONSUMERS)
        eventually(
            lambda: sum(len(one.events("succeeded")) for one in consumers) >= expected,
            within_s=600,
            every_s=0.5,
            what=f"{expected} messages come back",
        )
        late_ms = [late for each in consumers for late in _late_ms(each, delay_ms)]
    assert len(late_ms) == expected
    return Spread.of(late_ms)


def _late_ms(consumer: FlakyConsumer, delay_ms: int) -> list[int]:
    died_at_ms = {one.id: one.at_ms for one in consumer.events("failing")}
    return [one.at_ms - died_at_ms[one.id] - delay_ms for one in consumer.events("succeeding")]

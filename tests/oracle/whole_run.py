"""Plays one configuration: on a broker with its plugins, and on one with the sidecar instead."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from oracle.whole_configuration import DEAD_TOPICS, Configuration, Consumer
from support.brokers import ClassicBroker
from support.jms_message import Delivery, JmsMessage
from support.jms_peer import FlakyConsumer, JmsPeer
from support.redelivered import RECEIPTS
from support.sidecar_process import SidecarProcess
from support.waiting import eventually

CONSUMED = "consumed"
SPARE_S = 3.5
"""Quiet for so much longer than the longest delay: nothing more will come."""
OWN_QUEUES = "amqsidecar."


@dataclass
class Story:
    """What became of one message in one queue.

    Attributes:
        deliveries: what applications were handed, in order.
        ends: where it was in the end, `consumed` or the name of a queue or topic; twice where it
            was twice; empty = nowhere.
        dead: as it was found in the end, where it was not consumed.
    """

    deliveries: list[Delivery] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    dead: list[JmsMessage] = field(default_factory=list)


@dataclass(frozen=True)
class Side:
    """What became of all messages of one broker.

    Attributes:
        sent: as the producer saw them, by test id.
        stories: by queue and test id; the queue is where it was sent to, or copied to.
    """

    sent: Mapping[str, JmsMessage]
    stories: Mapping[tuple[str, str], Story]


def play(
    configuration: Configuration, folder: Path, policy_xml: str | None = None
) -> tuple[Side, Side]:
    """Return what happens with the plugins, and what happens with the sidecar.

    Args:
        folder: where the sidecar keeps its store and its log.
        policy_xml: what the sidecar is given; None: the very file of the broker with plugins.
    """
    policy = folder / "activemq.xml"
    policy.write_text(policy_xml or configuration.xml(has_plugins=True), encoding="utf-8")
    with ThreadPoolExecutor(2) as pool:
        sides = [
            pool.submit(_play_side, configuration, None),
            pool.submit(_play_side, configuration, policy),
        ]
        return sides[0].result(), sides[1].result()


def _play_side(configuration: Configuration, policy: Path | None) -> Side:
    """Play one side: with the plugins, or with the sidecar and this policy."""
    with ExitStack() as stack:
        xml = configuration.xml(has_plugins=policy is None)
        broker = stack.enter_context(ClassicBroker(configuration.version, xml))
        sidecar = None
        if policy is not None:
            sidecar = stack.enter_context(_sidecar(broker, policy)).start()
        return _play_on(configuration, broker, sidecar)


def _sidecar(broker: ClassicBroker, policy: Path) -> SidecarProcess:
    sets = ["intake.backlog=process"]
    return SidecarProcess(policy.parent, broker.openwire_url, policy=policy, sets=sets)


def _play_on(
    configuration: Configuration, broker: ClassicBroker, sidecar: SidecarProcess | None
) -> Side:
    peer = JmsPeer.of(broker, "openwire")
    with ExitStack() as stack:
        dead_topics = stack.enter_context(
            peer.start_flaky_consumer(f"topic://{DEAD_TOPICS}>", full=True)
        )
        consumers = {
            consumer.queue: stack.enter_context(_start(peer, consumer))
            for consumer in configuration.consumers
        }
        sent = {str(one.test_id): one for one in peer.produce_each(configuration.messages)}
        _wait_until_quiet(
            [dead_topics, *consumers.values()], configuration.longest_delay_ms / 1000 + SPARE_S
        )
        if sidecar is not None:
            _stop(sidecar)
    # Why all queues: nobody but the broker says where a message is.
    left = [one for one in peer.consume(">", wait_ms=1000) if not _is_own(one)]
    left += [_message(one) for one in dead_topics.events("succeeding")]
    return Side(sent, _stories(sent, consumers, left))


def _start(peer: JmsPeer, consumer: Consumer) -> FlakyConsumer:
    return peer.start_flaky_consumer(
        consumer.queue,
        failures_property="failures",
        how=consumer.how,
        max_redeliveries=consumer.max_redeliveries,
        full=True,
    )


def _wait_until_quiet(consumers: Sequence[FlakyConsumer], quiet_s: float) -> None:
    """Return when nothing has happened for a while: the one way to see that nothing comes."""
    seen, since = -1, time.monotonic()

    def is_quiet() -> bool:
        nonlocal seen, since
        count = sum(len(consumer.events()) for consumer in consumers)
        if count != seen:
            seen, since = count, time.monotonic()
        return time.monotonic() - since > quiet_s

    eventually(is_quiet, within_s=120, every_s=0.2, what="the applications have nothing to do")


def _stop(sidecar: SidecarProcess) -> None:
    """End the sidecar when it keeps nothing but what it has parked."""
    eventually(
        lambda: not [one for one in _kept(sidecar) if one["state"] != "parked"],
        what="the sidecar has sent everything",
    )
    assert sidecar.stop() == 0


def _kept(sidecar: SidecarProcess) -> list[dict[str, object]]:
    waiting: list[dict[str, object]] = sidecar.json_command("status")["waiting"]
    return waiting


def _is_own(message: JmsMessage) -> bool:
    return _place(message).startswith(OWN_QUEUES)


def _place(message: JmsMessage) -> str:
    return str(message.headers["JMSDestination"]).removeprefix("queue://")


def _message(delivery: Delivery) -> JmsMessage:
    assert delivery.message is not None
    return delivery.message


def _stories(
    sent: Mapping[str, JmsMessage],
    consumers: Mapping[str, FlakyConsumer],
    left: Sequence[JmsMessage],
) -> dict[tuple[str, str], Story]:
    stories: dict[tuple[str, str], Story] = {}
    for test_id, message in sent.items():
        name = _place(message)
        copies = [queue for queue in consumers if queue.endswith(name.removeprefix("topic://"))]
        for queue in copies if name.startswith("topic://") else [name]:
            stories[queue, test_id] = Story()
    for queue, consumer in consumers.items():
        for event in consumer.events():
            story = stories[queue, event.id]
            if event.outcome in RECEIPTS:
                story.deliveries.append(event)
            elif event.outcome == "succeeded":
                story.ends.append(CONSUMED)
    for message in left:
        story = _story_of(stories, message)
        story.ends.append(_place(message))
        story.dead.append(message)
    return stories


def _story_of(stories: Mapping[tuple[str, str], Story], message: JmsMessage) -> Story:
    """Return the story that a message ends; of two copies the one that the place names."""
    found = {queue: story for (queue, id_), story in stories.items() if id_ == message.test_id}
    named = [story for queue, story in found.items() if queue in _place(message)]
    return [*named, *found.values()][0]

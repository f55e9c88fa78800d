"""Plays one configuration: on a broker with its plugins, and on one with the sidecar instead."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from oracle.whole_configuration import (
    DEAD_TOPICS,
    IDLE,
    JOBS,
    Configuration,
    Consumer,
    places_of,
)
from support.brokers.real import ClassicBroker
from support.jms.message import Delivery, JmsMessage, typed
from support.jms.peer import FlakyConsumer, JmsPeer
from support.jms.redelivered import RECEIPTS
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

CONSUMED = "consumed"
PARKED = "parked"
NOT_COUNTED = (JOBS, "amqsidecar.")


@dataclass
class Story:
    """What became of one message in one queue.

    Attributes:
        deliveries: what applications were handed, in order.
        ends: where it was in the end, `consumed`, `parked` or the name of a queue or topic; twice
            where it was twice; empty = nowhere.
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
        options = {"jms.useCompression": str(configuration.compresses).lower()}
        producer = JmsPeer.of(broker, "openwire", url_options=options)
        sent = {str(one.test_id): one for one in producer.produce_each(configuration.messages)}
        _wait_until_done(configuration, peer, [dead_topics, *consumers.values()], sidecar)
        parked = [] if sidecar is None else _parked(sidecar)
        if sidecar is not None:
            assert sidecar.stop() == 0
    # Why all queues: nobody but the broker says where a message is.
    left = [one for one in peer.consume(">", wait_ms=5000) if _is_counted(one)]
    left += [_message(one) for one in dead_topics.events("succeeding")]
    stories = _stories(sent, consumers, left)
    ids = {message.message_id: test_id for test_id, message in sent.items()}
    for destination, message_id in parked:
        stories[destination.removeprefix("queue://"), ids[message_id]].ends.append(PARKED)
    return Side(sent, stories)


def _start(peer: JmsPeer, consumer: Consumer) -> FlakyConsumer:
    return peer.start_flaky_consumer(
        consumer.queue,
        failures_property="failures" if consumer.fails else None,
        how=consumer.how,
        max_redeliveries=consumer.max_redeliveries,
        full=True,
    )


def _wait_until_done(
    configuration: Configuration,
    peer: JmsPeer,
    consumers: Sequence[FlakyConsumer],
    sidecar: SidecarProcess | None,
) -> None:
    """Return when nothing is left to do, twice with nothing done in between; or after two minutes.

    What is still open then is a fault that the comparison tells of.
    """
    queues = [*(one.queue for one in configuration.consumers), IDLE]
    if sidecar is not None:
        queues += sorted(configuration.dead_letter_queues())
    seen = -1

    def is_done() -> bool:
        nonlocal seen
        if any(peer.browse(name, limit=1) for name in queues) or _has_jobs(peer):
            return False
        if sidecar is not None and _is_busy(sidecar):
            return False
        before, seen = seen, sum(len(consumer.events()) for consumer in consumers)
        return seen == before

    with suppress(TimeoutError):
        eventually(is_done, within_s=120, every_s=1.5)


def _has_jobs(peer: JmsPeer) -> bool:
    """Ask the broker whether it has scheduled anything."""
    ask = {
        "destination": "topic://ActiveMQ.Scheduler.Management",
        "type": "Message",
        "replyTo": JOBS,
        "sampleProperties": False,
        "properties": typed({"AMQ_SCHEDULER_ACTION": "BROWSE"}),
    }
    peer.produce_each([ask])
    return bool(peer.consume(JOBS, wait_ms=200))


def _is_busy(sidecar: SidecarProcess) -> bool:
    """Return whether the sidecar keeps anything but messages for a person."""
    waiting = sidecar.json_command("status")["waiting"]
    return any(one["state"] not in ("parked", "exhausted") for one in waiting)


def _parked(sidecar: SidecarProcess) -> list[tuple[str, str]]:
    """Return destination and first message id of what the sidecar leaves to a person."""
    rows = sidecar.rows("--state", "parked", "--limit", "1000")
    return [(one["destination"], one["message_id"]) for one in rows]


def _is_counted(message: JmsMessage) -> bool:
    return not _place(message).startswith(NOT_COUNTED)


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
        for queue in places_of(_place(message), message.headers["JMSType"]):
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

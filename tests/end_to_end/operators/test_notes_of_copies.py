"""Copies of one publication have one message id: a note acts on the copy of its own queue alone."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers.broker_xml import classic_xml
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.message import JmsMessage
from support.jms.peer import JmsPeer
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

CONFIG = """
policy:
  source: {policy}
  verdicts: {verdicts}
  plugins:
    - rules:
        rules:
          - {{name: poison, cause_class: shop.Poison, action: discard}}
intake: {{backlog: process, cause_notes: {notes}}}
"""
ARTEMIS_POLICY = """
address_settings:
  - {match: "#", dead_letter_address: DLQ, max_delivery_attempts: 4, redelivery_delay_ms: 3600000}
"""
# Why individual: the audit of a shared queue drops the second dead copy of a message.
INDIVIDUAL = """
    <policyEntry queue=">"><deadLetterStrategy><individualDeadLetterStrategy/></deadLetterStrategy>
    </policyEntry>
"""
REDELIVERY = """
    <redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><defaultEntry>
      <redeliveryPolicy maximumRedeliveries="3" initialRedeliveryDelay="3600000"/>
    </defaultEntry></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>
"""
NO_CAUSE = "(no reason given)"
UNCERTAIN = "ambiguous"


class Copies(ABC):
    """A topic with two consumers, `a` and `b`, each of which gets a copy of each message."""

    policy_file: str
    policy: str

    def __init__(self, broker: Broker, provider: str, unique: str) -> None:
        self.peer = JmsPeer.of(broker, provider)
        self.notes = f"amqsidecar.causes.{unique}"
        self.unique = unique

    @abstractmethod
    def join(self) -> None:
        """Make both consumers known to the broker."""

    @abstractmethod
    def produce(self, count: int) -> list[JmsMessage]:
        """Publish messages."""

    @abstractmethod
    def fail(self, consumer: str, count: int) -> None:
        """Let a consumer's copies die."""

    @abstractmethod
    def queue(self, consumer: str) -> str:
        """Return the queue of a consumer as its notes name it."""

    @abstractmethod
    def origin(self, consumer: str) -> str:
        """Return where copies of a consumer die."""

    def write(self, message: JmsMessage, **fields: Any) -> None:
        """Write a note about a message."""
        self.write_text(
            json.dumps({"message_id": message.message_id, "consumer": "shop", **fields})
        )

    def write_text(self, text: str) -> None:
        """Write a text into the queue of notes."""
        self.peer.produce(self.notes, "Text", text=text, group=None, sample_properties=False)


class Subscriptions(Copies):
    """Two durable subscriptions on Artemis."""

    policy_file, policy = "policy.yaml", ARTEMIS_POLICY

    @property
    def _topic(self) -> str:
        return f"e2e.copies.{self.unique}"

    def join(self) -> None:
        for consumer in "ab":
            self.peer.durable_subscribe(self._topic, f"{consumer}-{self.unique}", "s")

    def produce(self, count: int) -> list[JmsMessage]:
        return self.peer.produce(f"topic://{self._topic}", "Text", count=count, group=None)

    def fail(self, consumer: str, count: int) -> None:
        self.peer.fail_durable(
            self._topic,
            f"{consumer}-{self.unique}",
            "s",
            how="reject",
            messages=count,
            deliveries=1,
        )

    def queue(self, consumer: str) -> str:
        return f"{consumer}-{self.unique}.s"

    def origin(self, consumer: str) -> str:
        return f"topic://{self._topic}::{self.queue(consumer)}"


class VirtualTopic(Copies):
    """Two consumers of a virtual topic on Classic."""

    policy_file = "activemq.xml"
    policy = classic_xml(destination_policy=INDIVIDUAL, plugins=REDELIVERY, scheduler_support=True)

    def join(self) -> None:
        for consumer in "ab":
            assert self.peer.consume(self.queue(consumer), wait_ms=50) == []

    def produce(self, count: int) -> list[JmsMessage]:
        topic = f"topic://VirtualTopic.{self.unique}"
        return self.peer.produce(topic, "Text", count=count, group=None)

    def fail(self, consumer: str, count: int) -> None:
        self.peer.fail(self.queue(consumer), messages=count, deliveries=1)

    def queue(self, consumer: str) -> str:
        return f"Consumer.{consumer}.VirtualTopic.{self.unique}"

    def origin(self, consumer: str) -> str:
        return f"queue://{self.queue(consumer)}"


@pytest.fixture(params=["artemis", "classic"])
def copies(request: pytest.FixtureRequest, unique: str) -> Iterator[tuple[Copies, str]]:
    if request.param == "artemis":
        artemis: ArtemisBroker = request.getfixturevalue("artemis")
        yield Subscriptions(artemis, "qpid", unique), artemis.pair_url
    else:
        with ClassicBroker(destination_policy=INDIVIDUAL) as classic:
            yield VirtualTopic(classic, "openwire", unique), classic.openwire_url


class Story:
    """A sidecar that reads the notes of both consumers."""

    def __init__(self, copies: Copies, url: str, folder: Path, verdicts: str) -> None:
        self.copies = copies
        policy = folder / copies.policy_file
        policy.write_text(copies.policy, encoding="utf-8")
        config = folder / "sidecar.yaml"
        text = CONFIG.format(policy=policy, verdicts=verdicts, notes=copies.notes)
        config.write_text(text, encoding="utf-8")
        self.sidecar = SidecarProcess(folder, url, environ={"AMQSIDECAR_CONFIG": str(config)})
        copies.join()
        # Why first: the queue of notes must exist.
        copies.write_text("{}")

    def rows(self, consumer: str) -> list[dict[str, Any]]:
        """Return what waits of a consumer's copies, in the order they were published."""
        # Why by destination: dead letters of other tests are in the broker's queue, too.
        rows = self.sidecar.rows("--destination", self.copies.origin(consumer))
        return sorted(rows, key=lambda row: str(row["message_id"]))

    def groups(self, consumer: str) -> dict[str, int]:
        """Return the deaths of a consumer's copies by their group."""
        found = self.sidecar.json_command("groups", "--limit", "2000")
        origin = self.copies.origin(consumer)
        return {one["cause_group"]: one["total"] for one in found if one["destination"] == origin}

    def answers(self, row: dict[str, Any]) -> list[str]:
        """Return what became of each note in the history of a message."""
        history = self.sidecar.json_command("show", str(row["id"]))["history"]
        return [one.get("answer", "") for one in history if one["type"] == "explained"]

    def fail(self, consumer: str, count: int) -> None:
        """Let a consumer's copies die, and wait until the sidecar has all that it keeps."""
        before = sum(self.groups(consumer).values())
        self.copies.fail(consumer, count)
        eventually(
            lambda: sum(self.groups(consumer).values()) == before + count,
            what=f"{count} copies of {consumer} have died",
        )

    def wait_until_read(self) -> None:
        """Wait until the sidecar has taken all notes that were written."""
        notes = self.copies.notes
        eventually(lambda: self.copies.peer.browse(notes) == [], what="the notes are read")


def test_a_cause_is_of_the_copy_of_its_consumer_whoever_died(
    copies: tuple[Copies, str], tmp_path: Path
) -> None:
    made, url = copies
    story = Story(made, url, tmp_path, "ignore")
    with story.sidecar.running():
        messages = made.produce(4)
        for message in messages[:2]:
            made.write(message, exception="shop.Poison", queue=made.queue("a"))
        story.wait_until_read()
        story.fail("b", 4)
        for message in messages[2:]:
            made.write(message, exception="shop.Poison", queue=made.queue("a"))
        story.wait_until_read()
        made.write(messages[0], exception="shop.Slow", queue=made.origin("b"), redelivery_count=0)
        expected = {NO_CAUSE: 3, "shop.Slow": 1}
        eventually(lambda: story.groups("b") == expected, what="the note of b's own")
        story.fail("a", 4)
        assert story.groups("a") == {"shop.Poison": 4}
        assert story.rows("a") == [], "the rule has discarded what it was written for"
        assert [story.answers(row) for row in story.rows("b")] == [[""], [], [], []]
        assert story.groups("b") == expected


def test_a_note_without_a_queue_decides_nothing_where_copies_have_its_message_id(
    copies: tuple[Copies, str], tmp_path: Path
) -> None:
    """It is shown with each death that it may be about, once."""
    made, url = copies
    story = Story(made, url, tmp_path, "obey")
    with story.sidecar.running():
        early, late = made.produce(2)
        old = {"exception": "shop.Poison", "text": "a secret", "verdict": {"action": "never"}}
        made.write(early, **old)
        story.wait_until_read()
        story.fail("b", 2)
        for _ in range(2):
            made.write(late, **old)
        second = eventually(
            lambda: next((row for row in story.rows("b") if story.answers(row)), None),
            what="the late note is shown",
        )
        made.write(late, exception="shop.Slow", queue=made.queue("b"))
        eventually(lambda: story.groups("b").get("shop.Slow"), what="the later note with a queue")
        [first, second] = story.rows("b")
        assert "shop" not in (first["cause"] or "")
        assert first["state"] == "waiting"
        assert (second["cause"], second["state"]) == ("shop.Slow", "waiting")
        [answer] = story.answers(first)
        assert answer.startswith(UNCERTAIN)
        assert [one.startswith(UNCERTAIN) for one in story.answers(second)] == [True, False]
        assert story.groups("b") == {NO_CAUSE: 1, "shop.Slow": 1}
        shown = story.sidecar.run_command("show", str(first["id"]))
        assert "shop says: shop.Poison: a secret; its verdict: never (ambiguous" in shown
        assert story.sidecar.log().count("cause_note_ambiguous") == 1
        assert story.sidecar.metric("amqsidecar_cause_notes_ambiguous_total") == 2

"""Artemis over Core and over AMQP: a dead letter that is too large stays, and delays no other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from tempfile import TemporaryFile

import pytest
from proton import Message

from amqsidecar.broker import Delivery
from amqsidecar.brokers.amqp.connection import BEGUN_BYTES_MAX
from amqsidecar.brokers.core.consumers import LARGE_BYTES_MAX
from amqsidecar.model.destination import queue
from amqsidecar.model.left_behind import LeftBehind
from support.brokers.purge import purge
from support.brokers.real import Broker
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.artemis import ArtemisHarness
from support.links.core_artemis import CoreArtemisHarness, text_message
from support.links.cycles import resend, with_token
from support.links.harness import await_depth
from support.waiting import eventually

pytestmark = pytest.mark.broker


def put_too_large_over_core(harness: ArtemisHarness, origin: str) -> None:
    """Let a message die in a queue that is there, one byte larger than what is taken."""
    assert isinstance(harness, CoreArtemisHarness)
    with TemporaryFile() as body:
        body.truncate(LARGE_BYTES_MAX + 1)
        message = text_message(origin, "")._replace(body=b"")
        asked = harness.session.ask_send_large(message, body)
        assert harness.session.answers([asked]) == [None]
    harness.session.commit()
    harness.kill(origin)


def put_too_large_over_amqp(harness: ArtemisHarness, origin: str) -> None:
    """Let a message die in a queue that is there, larger than what is taken."""
    assert isinstance(harness, AmqpArtemisHarness)
    harness.send(
        origin, [Message(id="ID:large", durable=True, body=bytes(BEGUN_BYTES_MAX + 2**21))]
    )
    harness.kill(origin)


@pytest.mark.parametrize(
    ("make", "put_too_large"),
    [
        (CoreArtemisHarness, put_too_large_over_core),
        # Why at length only: proton and the broker need minutes for it beside other tests.
        pytest.param(AmqpArtemisHarness, put_too_large_over_amqp, marks=pytest.mark.proof),
    ],
    ids=["core", "amqp"],
)
def test_a_dead_letter_that_is_too_large_is_left_and_reported(
    artemis: Broker,
    unique: str,
    make: type[ArtemisHarness],
    put_too_large: Callable[[ArtemisHarness, str], None],
) -> None:
    """What lies before it and behind it is taken, also after a transaction was undone."""
    harness = make(artemis, unique)
    origin, dead_letters = f"{unique}.orders", harness.intake().destination
    with closing(harness):
        before = harness.put_dead_letters(origin, 2)
        put_too_large(harness, origin)
        after = harness.put_dead_letters(origin, 2)
        with closing(harness.make_link("large").take(f"{unique}.token")) as link:
            with_token(link)
            link.attach([harness.intake()], 100)
            found: list[Delivery] = []

            def have_arrived() -> bool:
                link.wait(0.2)
                found.extend(link.receive(100))
                return len(found) >= 4

            eventually(have_arrived, what="the others arrive")
            link.ahead.begin([resend(found[0], destination=queue(origin))])
            link.ahead.abandon()
            link.commit_cycle(found, [resend(one, destination=queue(origin)) for one in found], 1)
            assert [one.id for one in harness.drain(origin)] == [*before, *after]
            [left] = link.left_behind()
            assert isinstance(left, LeftBehind)
            assert (left.queue, left.reason, left.count) == (dead_letters, "too_large", 1)
            assert link.receive(100) == []
        await_depth(harness, dead_letters.name, 1)
        # Why: the broker is shared, and its heap is hardly larger than twice this message.
        purge(artemis, dead_letters.name)

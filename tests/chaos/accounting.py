"""The accounts of a pair: where each message ended, and what its consumers saw on the way."""

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from chaos.pairs import DELAYS_MS, QUEUES
from chaos.stage import Stage
from support.jms.ledger import altered, count
from support.jms.message import Delivery, JmsMessage
from support.waiting import eventually

SETTLES_WITHIN_S = 600.0
STANDSTILL_S = 90.0
COUNT = "amqsidecarRedeliveryCount"
DELAY = "redeliveryDelay"


@dataclass
class Accounts:
    """How a pair ended; lists name ids, or fields as `id: ...`.

    Attributes:
        messages: how many the producer sent for certain.
        deliveries: how many times a message was handed to a consumer.
        redeliveries: those that the sidecar had sent again.
        consumed: processed once.
        final: ended in the final dead-letter queue.
        unknown_sends: those that the producer lost its broker over.
        lost: sent for certain, and ended nowhere.
        doubled: ended twice, or came in an older state than before.
        altered: a field, property or body that is not as it was sent.
        early: redelivered before its delay had passed.
        excessive: redelivered more often than the policy says, or final although it says less.
        stuck: what only a restart of the broker has freed.
        left: queues, or the sidecar's store, that still hold something in the end.
        journaled: events in the journal, all of which were compared with the store's history.
        journal: what is wrong with it, as `journal verify` says.
    """

    messages: int
    deliveries: int
    redeliveries: int
    consumed: int
    final: int
    unknown_sends: int
    stuck: int
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    excessive: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    journaled: int = 0
    journal: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """What must not be, in words."""
        kinds = ("lost", "doubled", "early", "excessive", "left", "altered", "journal")
        return [f"{kind}: {one}" for kind in kinds for one in getattr(self, kind)]


def settle(stage: Stage) -> list[JmsMessage]:
    """Let everything come to its end, and return what lies in the final dead-letter queues."""
    applications = stage.applications
    applications.stop_producer()
    final: list[JmsMessage] = []

    def open_ids() -> set[str]:
        for queue in stage.pair.dead_letter_queues:
            final.extend(applications.consume_final(f"{queue}.exhausted"))
        events = [event for events in applications.events().values() for event in events]
        ended = {one.id for one in events if one.outcome == "succeeded"}
        ended |= {str(one.test_id) for one in final}
        return applications.sent.messages.keys() - ended - applications.sent.unknown

    def is_settled() -> bool:
        """Wait for as long as something happens; a busy machine may need minutes."""
        end_s = time.monotonic() + SETTLES_WITHIN_S
        while time.monotonic() < end_s:
            before = sum(map(len, applications.events().values())) + len(final)
            with suppress(TimeoutError):
                return eventually(
                    lambda: not open_ids() and not _left(stage), within_s=STANDSTILL_S, every_s=0.5
                )
            if sum(map(len, applications.events().values())) + len(final) == before:
                break
        return False

    if not is_settled() and stage.pair.name == "artemis-stomp":
        # Quirk (Artemis 2.44): a STOMP connection that dies can leave dead letters handed out to
        # nobody until the broker is started again (deploy/reference/wires.md).
        stage.stuck = len(open_ids())
        stage.broker.restart()
        is_settled()
    applications.stop_consumers()
    open_ids()
    return final


def _left(stage: Stage) -> list[str]:
    queues = (*QUEUES, *stage.pair.dead_letter_queues)
    left = [queue for queue in queues if stage.applications.peer.browse(queue, limit=1)]
    return left + (["the store"] if stage.sidecar.unsent() else [])


def account(stage: Stage, final: list[JmsMessage]) -> Accounts:
    """Hold what was seen against what was sent."""
    sent, events = stage.applications.sent, stage.applications.events()
    flat = [event for one in events.values() for event in one]
    exhausted = [str(message.test_id) for message in final]
    result = count(sent.messages, flat, exhausted, unknown=sent.unknown)
    receipts = _receipts(flat)
    accounts = Accounts(
        messages=len(sent.messages.keys() - sent.unknown),
        deliveries=sum(map(len, receipts.values())),
        redeliveries=sum(_count(one) > 0 for seen in receipts.values() for one in seen),
        consumed=len(result.recovered),
        final=len(exhausted),
        unknown_sends=len(sent.unknown),
        stuck=stage.stuck,
        lost=list(result.lost),
        doubled=[f"{one}: {_story(one, flat, exhausted)}" for one in result.doubled],
        altered=altered(sent.messages.values(), flat, final, stage.pair.added),
        left=_left(stage),
    )
    for queue, one in events.items():
        for test_id, seen in _receipts(one).items():
            _follow(accounts, test_id, seen, DELAYS_MS[queue])
    for message in final:
        origin = str(sent.messages[str(message.test_id)].headers["JMSDestination"])
        redeliveries = int(message.value(COUNT) or 0)
        if redeliveries != len(DELAYS_MS[origin.removeprefix("queue://")]):
            accounts.excessive.append(f"{message.test_id}: final after {redeliveries} redeliveries")
    return accounts


def hold_against_journal(stage: Stage, accounts: Accounts) -> None:
    """Say whether each event is in the journal once; call when no sidecar runs any more."""
    if not stage.journal:
        return
    done = stage.sidecar.try_command("journal verify", "--output", "json")
    said = json.loads(done.stdout)
    accounts.journal += said["faults"]
    accounts.journaled = sum(stream["events"] for stream in said["streams"])
    if accounts.journaled != said["compared"]:
        accounts.journal.append(f"{accounts.journaled} events, the store has {said['compared']}")


def _follow(
    accounts: Accounts, test_id: str, seen: list[Delivery], delays_ms: tuple[int, ...]
) -> None:
    """Check the receipts of one message in order: each later state after its delay, none again."""
    for before, after in zip([None, *seen], seen, strict=False):
        number = _count(after)
        told = int(after.message.value(DELAY) or 0) if after.message is not None else 0
        if number > len(delays_ms):
            accounts.excessive.append(f"{test_id}: redelivered {number} times")
        elif number > 0 and told != delays_ms[number - 1]:
            accounts.altered.append(f"{test_id}: {DELAY} of redelivery {number}: {told}")
        if before is None or number == _count(before):
            continue
        if number < _count(before):
            accounts.doubled.append(f"{test_id}: state {number} after {_count(before)}")
        elif after.at_ms - before.at_ms < told:
            waited_ms = after.at_ms - before.at_ms
            accounts.early.append(f"{test_id}: redelivery {number} after {waited_ms} ms")


def _story(test_id: str, events: Iterable[Delivery], final: list[str]) -> str:
    """Return what the consumers said of a message, with the number of its redelivery and when."""
    told = [
        f"{one.outcome} {_count(one)} at {one.at_ms % 1_000_000}"
        for one in events
        if one.id == test_id
    ]
    return ", ".join([*told, *["final"] * final.count(test_id)])


def _receipts(events: Iterable[Delivery]) -> dict[str, list[Delivery]]:
    found: dict[str, list[Delivery]] = {}
    for event in events:
        if event.outcome in ("failing", "succeeding"):
            found.setdefault(event.id, []).append(event)
    return found


def _count(delivery: Delivery) -> int:
    return int(delivery.redelivery_count or 0)

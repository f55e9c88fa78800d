"""A schedule during an incident: exhausted, unknown, waiting messages; for looks at the console."""

from typing import Final

import msgspec
from proton import Message

from amqsidecar.model.event import Resent
from amqsidecar.model.failure import GroupNote
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.marker import ServiceMark, ServiceMarkKind
from amqsidecar.model.operation import Action, Selection
from amqsidecar.model.outcome import COUNTING_MENDS, NOT_COUNTED, Observation
from amqsidecar.model.schedule import RowFilter, RowState, TakenRow
from amqsidecar.operations.operate import Wish, begin
from amqsidecar.operations.status import SidecarStatus, sidecar_status
from amqsidecar.stores.sqlite.store import SqliteStore
from amqsidecar.telemetry.health import Health
from amqsidecar.telemetry.metrics import Metrics
from support.web.console_store import dead, keep

MINUTE_MS: Final = 60_000
CAUSES: Final = (
    ("queue://orders.pay", "java.net.SocketTimeoutException: Read timed out, order {}"),
    ("queue://orders.mail", "com.acme.mail.TemplateMissing: no template for locale de_{}"),
    ("queue://stock.book", "java.lang.IllegalStateException: shelf {} is closed for counting"),
)
MORE: Final = ("queue://prices", "queue://invoices.archive", "queue://partners.sepa.settlement")


def keep_incident(store: SqliteStore) -> None:
    """Keep 90 exhausted and 90 waiting messages of three groups, and dead letters of others."""
    now_ms = store._clock.now_ms()
    rows = list[TakenRow]()
    for number in range(1, 181):
        destination, cause = CAUSES[number % 3]
        is_exhausted = number <= 90
        rows.append(
            dead(
                number,
                cause.format(number),
                now_ms - number * MINUTE_MS // 2,
                destination=destination,
                state=RowState.EXHAUSTED if is_exhausted else RowState.WAITING,
                is_final=is_exhausted,
                final_queue="queue://DLQ.exhausted" if is_exhausted else None,
                redelivery_count=6 if is_exhausted else 2,
                message=bytes(
                    Message(body=f'{{"order": {number}}}', properties={"order": number}).encode()
                ),
            )
        )
    rows += [
        dead(
            180 + number,
            CAUSES[0][1].format(number),
            now_ms - 3 * 60 * MINUTE_MS,
            destination=MORE[number % 3],
            state=RowState.HELD,
        )
        for number in range(1, 7)
    ]
    sent = [
        Resent(at_ms=now_ms - MINUTE_MS, destination=destination, redelivery_count=1, lateness_ms=1)
        for destination, _ in CAUSES
        for _ in range(40)
    ]
    keep(store, rows, sent)
    looks = [
        Observation(destination=f"queue://ActiveMQ.DLQ.{name}", at_ms=now_ms, depth=n, unknown=n)
        for name, n in (("billing", 1_204), ("reports", 31))
    ]
    looks += [
        # Another program took two of the exhausted messages.
        Observation(destination="queue://DLQ.exhausted", at_ms=now_ms, depth=88),
    ]
    looks += [
        Observation(destination=destination, at_ms=now_ms, depth=12) for destination, _ in CAUSES
    ]
    store.add_observations(looks)
    store.add_note(_note(CAUSES[0][0], rows[2].cause_group, now_ms))


def _note(destination: str, cause_group: str, now_ms: int) -> GroupNote:
    return GroupNote(
        destination=destination,
        cause_group=cause_group,
        at_ms=now_ms - 5 * MINUTE_MS,
        author="console:ann",
        text="The card gateway is down (OPS-1207). Retry when it is back.",
        owner="ann",
    )


def status_of_the_night() -> SidecarStatus:
    """Return the status of a sidecar beside a stock Classic without the statistics plugin."""
    health = Health()
    health.link_up("Apache Artemis 2.57.0 at core://broker:61616")
    status = sidecar_status(health, Metrics())
    return msgspec.structs.replace(
        status, is_well=True, cycles=412, outcomes_doubt=f"{NOT_COUNTED}: {COUNTING_MENDS}"
    )


NIGHT: Final = (
    (
        "queue://orders.payments",
        "org.springframework.jms.listener.adapter.ListenerExecutionFailedException: Listener "
        "method threw exception\n"
        "Caused by: java.net.SocketTimeoutException: Read timed out, order {}",
        2_900,
    ),
    ("queue://orders.mail", "com.acme.mail.TemplateMissing: no template for locale de_{}", 1_100),
    ("queue://stock.book", "java.lang.IllegalStateException: shelf {} is closed for counting", 560),
    ("topic://prices.eu", "java.lang.NullPointerException: quote {} has no currency", 300),
    ("queue://partners.sepa.settlement", "com.acme.sepa.IbanRefused: check digits of {}", 100),
    ("queue://customers.changed", "java.lang.NumberFormatException: For input string {}", 40),
)
"""Destination, cause and number of the dead letters of six faults, 5,000 altogether."""


def keep_night(store: SqliteStore) -> None:
    """Keep 5,000 exhausted messages of six causes, ten operations and three starts of half an hour.

    Two of the operations and starts begin in the same second, so that their marks meet.
    """
    now_ms = store._clock.now_ms()
    rows, number = list[TakenRow](), 0
    for destination, cause, count in NIGHT:
        for one in range(count):
            number += 1
            body = Message(body=f'{{"order": {number}}}', properties={"order": number})
            rows.append(
                dead(
                    number,
                    cause.format(number),
                    now_ms - 2 * MINUTE_MS - one * 25 * MINUTE_MS // count,
                    destination=destination,
                    state=RowState.EXHAUSTED,
                    is_final=True,
                    final_queue="queue://DLQ.exhausted",
                    redelivery_count=6,
                    message=bytes(body.encode()),
                )
            )
    keep(store, rows)
    store.add_observations(
        [Observation(destination="queue://DLQ.exhausted", at_ms=now_ms, depth=number)]
    )
    # Why digests: a start with other rules than before is another mark.
    for ago, digest in ((26, "a"), (25, "a"), (24, "b")):
        store.add_service_mark(
            ServiceMark(
                at_ms=now_ms - ago * MINUTE_MS,
                instance="night",
                kind=ServiceMarkKind.START,
                rules_digest=digest,
            )
        )
    for ago, action, row in (
        *((24, Action.HOLD, 1), (23, Action.HOLD, 2), (23, Action.RELEASE, 1)),
        *((9, Action.HOLD, 3), (9, Action.RELEASE, 3), (8, Action.HOLD, 4), (7, Action.RELEASE, 4)),
        *((1, Action.RETRY, 4_600), (1, Action.REDIRECT, 4_950), (0, Action.DISCARD, 4_999)),
    ):
        wish = Wish(
            action=action,
            selection=Selection(rows=RowFilter(ids=(row,))),
            actor="console:ann",
            target="queue://repair" if action is Action.REDIRECT else None,
            reason="OPS-1207",
        )
        begin(store, wish, now_ms - ago * MINUTE_MS)
    store.add_note(_note(NIGHT[0][0], rows[0].cause_group, now_ms))


def sick_status() -> SidecarStatus:
    """Return the status of a sidecar with a refused queue, an ownerless token and a doubt."""
    health = Health()
    health.link_up("Apache Artemis 2.57.0 at core://broker:61616")
    health.store_ok()
    health.intake(3, {"queue://DLQ.billing": "user sidecar may not CONSUME here"}, "")
    health.foreign_tokens([ForeignToken(instance="old", sent_at_ms=1, is_held=False)])
    metrics = Metrics()
    return msgspec.structs.replace(
        sidecar_status(health, metrics), cycles=9_412, cycles_in_doubt=1, reconnects=2
    )

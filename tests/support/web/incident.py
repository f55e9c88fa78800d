"""A schedule during an incident: exhausted, unknown, waiting messages; for looks at the console."""

from typing import Final

import msgspec
from proton import Message

from amqsidecar.model.event import Resent
from amqsidecar.model.group_note import GroupNote
from amqsidecar.model.outcome import COUNTING_MENDS, NOT_COUNTED, Observation
from amqsidecar.model.schedule import RowState, TakenRow
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
    store.add_note(
        GroupNote(
            destination=CAUSES[0][0],
            cause_group=rows[2].cause_group,
            at_ms=now_ms - 5 * MINUTE_MS,
            author="console:ann",
            text="The card gateway is down (OPS-1207). Retry when it is back.",
            owner="ann",
        )
    )


def status_of_the_night() -> SidecarStatus:
    """Return the status of a sidecar beside a stock Classic without the statistics plugin."""
    status = sidecar_status(Health(), Metrics())
    return msgspec.structs.replace(
        status, is_well=True, cycles=412, outcomes_doubt=f"{NOT_COUNTED}: {COUNTING_MENDS}"
    )

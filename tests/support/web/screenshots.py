"""Takes the picture of the console for the README, of a made-up story: `make screenshots`."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proton import Message

from amqsidecar.model.event import AnyEvent, Received, Resent, Returned
from amqsidecar.model.failure import GroupNote, failure_cause
from amqsidecar.model.schedule import RowState, TakenRow
from amqsidecar.operations.status import SidecarStatus, sidecar_status
from amqsidecar.telemetry.health import Health
from amqsidecar.telemetry.metrics import Metrics
from support.web.chromium import opened_page, running_chromium
from support.web.console import running_console
from support.web.console_store import dead, keep, open_store

IMAGES: Final = Path(__file__).parents[3] / "deploy" / "reference" / "images"
SIZE: Final = {"width": 1200, "height": 760}
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
PAY: Final = "queue://orders.pay"
TIMEOUT: Final = "java.net.SocketTimeoutException: Read timed out, order {}"
STORY: Final = (
    (PAY, TIMEOUT, 312, 4 * MINUTE_MS),
    ("queue://orders.mail", "com.acme.TemplateMissing: no template for locale {}", 41, 5 * HOUR_MS),
    ("queue://stock.book", "java.lang.NullPointerException at Shelf.java:{}", 17, 20 * HOUR_MS),
    ("queue://prices", None, 6, 9 * HOUR_MS),
)
"""Destination, cause, messages, and over which time they died until now."""


def rows(now_ms: int) -> Iterator[TakenRow]:
    """Yield the waiting messages."""
    number = 0
    body = Message(body="an order").encode()
    for destination, cause, count, span_ms in STORY:
        for one in range(count):
            number += 1
            at_ms = now_ms - span_ms * (count - one) // count
            yield dead(
                number,
                None if cause is None else cause.format(4000 + number),
                at_ms,
                destination=destination,
                state=RowState.HELD if destination == "queue://prices" else RowState.WAITING,
                due_at_ms=now_ms + HOUR_MS + one * MINUTE_MS,
                rule="policy.yaml:4",
                message=bytes(body),
                redelivery_id=f"demo-{number:012}",
            )


def past(now_ms: int) -> Iterator[AnyEvent]:
    """Yield what happened before: most of what was re-sent did not come back."""
    for number in range(900, 1_200):
        at_ms = now_ms - (number - 899) * 8 * MINUTE_MS
        name = f"past-{number:012}"
        place, cause, _, _ = STORY[1 if number % 3 else 2]
        cause = None if cause is None else cause.format(number)
        yield Received(
            at_ms=at_ms - 2 * MINUTE_MS,
            id=number,
            redelivery_id=name,
            source="queue://DLQ",
            origin=place,
            cause=cause,
        )
        yield Resent(
            at_ms=at_ms - MINUTE_MS,
            id=number,
            redelivery_id=name,
            destination=place,
            redelivery_count=1,
            lateness_ms=12,
        )
        if number % 5 == 0:
            yield Returned(
                at_ms=at_ms,
                id=number,
                redelivery_id=name,
                source="queue://DLQ",
                origin=place,
                cause=cause,
                redelivery_count=1,
            )


def seed(path: Path) -> None:
    """Make the schedule of the story."""
    store = open_store(path)
    now_ms = store._clock.now_ms()
    keep(store, list(rows(now_ms)), list(past(now_ms)))
    store.add_note(
        GroupNote(
            destination=PAY,
            cause_group=failure_cause(TIMEOUT.format(1), expired=False),
            at_ms=now_ms - 2 * MINUTE_MS,
            author="console:ann",
            text="The card gateway is down (OPS-1207). Held until it is back.",
        )
    )
    store.close()


def well_status() -> SidecarStatus:
    """Return the status of a sidecar that needs nobody."""
    health = Health()
    health.link_up("Apache Artemis 2.57.0 at artemis://mq-0.shop:61616")
    health.store_ok()
    health.intake(3, {}, "")
    return sidecar_status(health, Metrics())


def main() -> None:
    """Take the picture."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.db"
        seed(path)
        with (
            running_console(path, sidecar_status=well_status) as address,
            running_chromium() as browser,
            opened_page(browser, address, viewport=SIZE, color_scheme="light") as page,
        ):
            page.goto("/")
            page.screenshot(path=IMAGES / "overview.png")


if __name__ == "__main__":
    main()

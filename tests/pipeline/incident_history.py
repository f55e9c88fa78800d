"""A history of two weeks in which something happens, written by the contract alone.

Day 10: orders begin to die of a new cause. The last day but one, at 10:00: a rollout halves the
share of re-sends that recover at invoices. Mail is poison: no re-send ever helps. A dozen small
groups go on as ever.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pipeline.journals import START_MS, event, write_journal

DAYS: Final = 14
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
NEW_AT_MS: Final = START_MS + 10 * DAY_MS
ROLLOUT_MS: Final = START_MS + 12 * DAY_MS + 10 * HOUR_MS
UNTIL_MS: Final = START_MS + DAYS * DAY_MS
ORDERS, INVOICES, MAIL = "queue://orders", "queue://invoices", "queue://mail"
TIMEOUT: Final = "java.net.SocketTimeoutException: Read timed out"
DUPLICATE: Final = "java.sql.SQLIntegrityConstraintViolationException: Duplicate entry * for key *"
POISON: Final = "com.fasterxml.jackson.core.JsonParseException: Unexpected end-of-input"
SMALL: Final = tuple(f"queue://small.{number:02}" for number in range(12))
RESENDS: Final = 3


def recovers(origin: str, at_ms: int) -> float:
    """Return the share of re-sends at a time that recover."""
    if origin == MAIL:
        return 0.0
    return 0.4 if origin == INVOICES and at_ms >= ROLLOUT_MS else 0.8


def deaths(chance: random.Random) -> Iterator[tuple[int, str, str]]:
    """Yield time, origin and cause of each first death."""
    for hour in range(DAYS * 24):
        begin_ms = START_MS + hour * HOUR_MS
        wanted = [(INVOICES, TIMEOUT, 6), (MAIL, POISON, 2)]
        wanted += [(origin, TIMEOUT, 1) for origin in SMALL[hour % 3 :: 3]]
        if begin_ms >= NEW_AT_MS:
            wanted.append((ORDERS, DUPLICATE, 3))
        for origin, cause, count in wanted:
            for _ in range(count):
                yield begin_ms + chance.randrange(HOUR_MS), origin, cause


def life(
    chance: random.Random, number: int, at_ms: int, origin: str, cause: str
) -> Iterator[dict[str, Any]]:
    me = {"redelivery_id": f"m-{number}", "persistent": True, "expired": False}
    died = {**me, "origin": origin, "cause_group": cause}
    yield {**died, "type": "received", "at": at_ms, "redelivery_count": 0}
    for attempt in range(1, RESENDS + 1):
        at_ms += 60_000 * 4**attempt
        sent = {"destination": origin, "redelivery_count": attempt, "lateness_ms": 5}
        yield {**me, **sent, "type": "resent", "at": at_ms}
        if chance.random() < recovers(origin, at_ms):
            return
        at_ms += chance.randrange(500, 20_000)
        yield {**died, "type": "returned", "at": at_ms, "redelivery_count": attempt}
    yield {**me, "origin": origin, "type": "exhausted", "at": at_ms, "destination": "queue://DLQ"}


def write_incident(journal: Path) -> None:
    """Write it as a journal of one segment."""
    chance = random.Random(25)
    lives = [list(life(chance, number, *one)) for number, one in enumerate(sorted(deaths(chance)))]
    rows = sorted((one for each in lives for one in each), key=lambda one: int(one["at"]))
    known = [one for one in rows if one["at"] < UNTIL_MS]
    write_journal(journal, [event(1, position, **one) for position, one in enumerate(known)])

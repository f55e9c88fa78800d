"""What becomes of re-sends that the watcher follows, and what of it is proved."""

from collections import Counter
from typing import Any

import pytest

from amqsidecar.model.event import Explained, OutcomeProved, Resent, Returned
from amqsidecar.model.operation import OutcomeKind
from amqsidecar.model.outcome import Observation
from amqsidecar.runtime.open_resends import OpenResends

QUEUE = "queue://orders"
WINDOW_MS = 1_000
FOUND = Counter[tuple[str, OutcomeKind]]


@pytest.fixture
def found() -> FOUND:
    return Counter()


@pytest.fixture
def resends(found: FOUND) -> OpenResends:
    return OpenResends(WINDOW_MS, found.update)


def sent(at_ms: int = 100) -> Resent:
    about: dict[str, Any] = {"at_ms": at_ms, "id": 7, "redelivery_id": "m"}
    return Resent(**about, destination=QUEUE, redelivery_count=2, lateness_ms=30)


def note(consumer: str) -> Explained:
    return Explained(at_ms=50, id=7, redelivery_id="m", destination=QUEUE, consumer=consumer)


def seen(at_ms: int, depth: int, **more: int) -> dict[str, Observation]:
    fields: dict[str, Any] = {"acknowledged": 1, "removed": 0, "steady_since_ms": 0, **more}
    return {QUEUE: Observation(destination=QUEUE, at_ms=at_ms, depth=depth, **fields)}


def test_a_proved_consumption_carries_the_note_of_the_death_before_and_the_lateness(
    resends: OpenResends, found: FOUND
) -> None:
    resends.follow([note("orders 4.1"), sent()])
    empty = seen(1_200, 0, moved_at_ms=150, empty_at_ms=1_200)
    assert resends.judge(empty, 1_000) == []
    assert resends.judge(empty, 1_200) == [
        OutcomeProved(
            at_ms=1_200,
            id=7,
            redelivery_id="m",
            destination=QUEUE,
            outcome="consumed",
            redelivery_count=2,
            lateness_ms=30,
            consumer="orders 4.1",
        )
    ]
    assert resends.judge(empty, 1_300) == []
    assert found == {(QUEUE, OutcomeKind.CONSUMED): 1}


def test_a_resend_lies_in_its_queue_only_if_nothing_left_the_queue_since(
    resends: OpenResends,
) -> None:
    resends.follow([sent()])
    assert resends.judge(seen(1_200, 1), 1_200) == []
    (one,) = resends.judge(seen(2_200, 1), 2_200)
    assert (one.outcome, one.consumer) == ("queued", "")
    resends.follow([sent()])
    assert resends.judge(seen(2_200, 1, moved_at_ms=150), 2_200) == []
    resends.follow([sent()])
    assert resends.judge(seen(2_200, 1, steady_since_ms=101), 2_200) == []


def test_what_came_back_is_proved_by_its_death_alone(resends: OpenResends, found: FOUND) -> None:
    died = Returned(at_ms=300, id=7, redelivery_id="m", source="queue://DLQ", origin=QUEUE)
    resends.follow([sent(), died])
    assert resends.judge(seen(5_000, 0, moved_at_ms=150, empty_at_ms=5_000), 5_000) == []
    assert found == {(QUEUE, OutcomeKind.CAME_BACK): 1}

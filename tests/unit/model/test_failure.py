"""What events add to the counts and groups of failures, beside the plain rule for each event."""

from collections import Counter
from typing import TypedDict

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.model.cause import NO_REASON
from amqsidecar.model.event import (
    AnyEvent,
    Cancelled,
    DeadLettered,
    Discarded,
    Exhausted,
    Held,
    Parked,
    Received,
    Resent,
    Returned,
    Scheduled,
)
from amqsidecar.model.failure import (
    BUCKET_MS,
    EXPIRED,
    CountKey,
    CountKind,
    FailureGroup,
    failure_cause,
    failures_of,
)
from support.stores.failure_counts import counts_of


class About(TypedDict):
    at_ms: int
    id: int
    redelivery_id: str


AT: About = {"at_ms": 3 * BUCKET_MS + 17, "id": 5, "redelivery_id": "m-5"}
QUEUE = "queue://orders"

deaths = st.builds(
    lambda kind, **fields: kind(**fields),
    st.sampled_from([Received, Returned]),
    at_ms=st.integers(0, 4 * BUCKET_MS),
    redelivery_id=st.sampled_from(["a", "b", "c"]),
    source=st.sampled_from(["queue://DLQ", "queue://DLQ.2"]),
    origin=st.sampled_from([None, "queue://a", "queue://b"]),
    cause=st.sampled_from([None, "", "order 1 refused", "order 2 refused", "a.B: no"]),
    expired=st.booleans(),
    redelivery_count=st.integers(0, 3),
)
sends = st.builds(
    Resent,
    at_ms=st.integers(0, 4 * BUCKET_MS),
    destination=st.sampled_from(["queue://a", "queue://b"]),
    redelivery_count=st.integers(1, 3),
    lateness_ms=st.just(0),
)
holds = st.builds(Held, at_ms=st.just(1), destination=st.just(QUEUE), reason=st.just("backlog"))


def test_each_kind_of_event_counts_where_it_happened() -> None:
    def key(kind: CountKind, group: str = "", attempt: int = 0) -> CountKey:
        return CountKey(
            bucket_ms=3 * BUCKET_MS,
            kind=kind,
            destination=QUEUE,
            cause_group=group,
            attempt=attempt,
        )

    told: dict[AnyEvent, CountKey | None] = {
        Received(**AT, source="queue://DLQ", origin=QUEUE, cause="a.B: 7"): key(
            CountKind.DIED, "a.B: *"
        ),
        Received(**AT, source=QUEUE, expired=True, redelivery_count=2): key(
            CountKind.DIED, EXPIRED
        ),
        Returned(**AT, source="queue://DLQ", origin=QUEUE, redelivery_count=4): key(
            CountKind.RETURNED, NO_REASON, 4
        ),
        Resent(**AT, destination=QUEUE, redelivery_count=2, lateness_ms=1): key(
            CountKind.RESENT, attempt=2
        ),
        Exhausted(**AT, destination=QUEUE, rule="r"): key(CountKind.EXHAUSTED),
        Discarded(**AT, destination=QUEUE, rule="r"): key(CountKind.DISCARDED),
        Parked(**AT, destination=QUEUE, reason="r"): key(CountKind.PARKED),
        Cancelled(**AT, destination=QUEUE, actor="ann"): key(CountKind.CANCELLED),
        DeadLettered(**AT, destination=QUEUE, redelivery_count=6): key(CountKind.DEAD_LETTERED),
        Scheduled(
            **AT, destination=QUEUE, delay_ms=1, due_at_ms=9, redelivery_count=1, rule="r"
        ): None,
        Held(**AT, destination=QUEUE, reason="backlog"): None,
    }
    for event, expected in told.items():
        assert counts_of([event]) == ({} if expected is None else {expected: 1}), event


@given(st.lists(st.one_of(deaths, sends, holds)))
def test_counts_add_up(events: list[AnyEvent]) -> None:
    apart = sum((counts_of([event]) for event in events), Counter[CountKey]())
    assert counts_of(events) == apart


@given(st.lists(st.one_of(deaths, sends)))
def test_a_group_records_its_deaths(events: list[Received | Returned | Resent]) -> None:
    expected: dict[tuple[str, str], list[Received]] = {}
    for event in events:
        if isinstance(event, Received):
            cause = failure_cause(event.cause, expired=event.expired)
            expected.setdefault((event.origin or event.source, cause), []).append(event)
    found = failures_of(events).groups
    assert found.keys() == expected.keys()
    for place, group in found.items():
        died = expected[place]
        last_at_ms = max(event.at_ms for event in died)
        assert group == FailureGroup(
            destination=place[0],
            cause_group=place[1],
            first_at_ms=min(event.at_ms for event in died),
            last_at_ms=last_at_ms,
            total=len(died),
            example_id=group.example_id,
        )
        assert group.example_id in {
            event.redelivery_id for event in died if event.at_ms == last_at_ms
        }


@given(st.lists(deaths, min_size=2), st.data())
def test_groups_can_be_joined(events: list[AnyEvent], data: st.DataObject) -> None:
    one = [msgspec.structs.replace(event, source=QUEUE, origin=None, cause="x") for event in events]
    cut = data.draw(st.integers(1, len(one) - 1))
    whole, early, late = (
        next(iter(failures_of(part).groups.values())) for part in (one, one[:cut], one[cut:])
    )
    joined = early.joined(late)
    assert msgspec.structs.replace(joined, example_id="") == msgspec.structs.replace(
        whole, example_id=""
    )

"""What is read from the history of each message, on few events by hand, and on any lives."""

from collections import Counter
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

from amqsidecar.pipeline.recovery.judge import (
    FIRST_MESSAGE,
    NONE,
    OUTCOMES,
    ObservedStreams,
    count_lives,
)
from amqsidecar.pipeline.recovery.steps import (
    COLUMNS,
    RENEWALS,
    buckets_of,
    divided,
    hashed,
    text_number,
)
from amqsidecar.pipeline.sources.events import read_events
from amqsidecar.pipeline.whatif.messages import (
    BEGAN_EARLIER,
    KEPT_FOR_A_PERSON,
    read_messages,
)
from pipeline import journals
from pipeline.recovery.test_further_lives import Life, last_life, lives

Events = list[dict[str, object]]
END_MS = 100_000
HORIZON_MS = 10_000


def event(message: str, kind: str, at_ms: int, **values: object) -> dict[str, object]:
    return journals.event(1, 1, redelivery_id=message, type=kind, at=at_ms, **values)


def received(message: str, at_ms: int, **values: object) -> dict[str, object]:
    defaults = {"origin": "queue://a", "redelivery_count": 0, "persistent": True, "expired": False}
    return event(message, "received", at_ms, **(defaults | values))


def waits(message: str, count: int, died_ms: int, delay_ms: int, sent_ms: int) -> Events:
    """Scheduled at its death, and re-sent."""
    return [
        event(message, "scheduled", died_ms, redelivery_count=count, delay_ms=delay_ms),
        event(message, "resent", sent_ms, redelivery_count=count),
    ]


def returned(message: str, count: int, at_ms: int) -> dict[str, object]:
    return event(message, "returned", at_ms, redelivery_count=count, origin="queue://a")


HISTORY: Events = [
    # Dies at 1 s, again at 4.5 s after a re-send at 3 s, and recovers by one at 9 s.
    received("twice", 1000, cause_group="down", origin="queue://a::q"),
    *waits("twice", 1, 1000, 1900, 3000),
    returned("twice", 1, 4500),
    *waits("twice", 2, 4500, 4500, 9000),
    # Given up after two re-sends.
    received("given-up", 0),
    *waits("given-up", 1, 0, 1000, 1000),
    returned("given-up", 1, 2000),
    *waits("given-up", 2, 2000, 1000, 3000),
    returned("given-up", 2, 4000),
    event("given-up", "exhausted", 4000),
    # Given up by the rules, brought back by a person, and consumed.
    received("brought-back", 300),
    *waits("brought-back", 1, 300, 700, 1000),
    returned("brought-back", 1, 2000),
    event("brought-back", "exhausted", 2000),
    event("brought-back", "retried", 50_000),
    event("brought-back", "held", 50_100),
    event("brought-back", "resent", 51_000, redelivery_count=1),
    # Sent to another place after one re-send.
    received("redirected", 400),
    *waits("redirected", 1, 400, 600, 1000),
    returned("redirected", 1, 2000),
    event("redirected", "resent", 50_000, redelivery_count=2, destination="queue://repair"),
    # Re-sent 9 s before the end, less than the horizon.
    received("young", 90_000),
    *waits("young", 1, 90_000, 1000, 91_000),
    # Nothing was tried.
    received("dropped", 5000, persistent=False, expired=True),
    event("dropped", "discarded", 5000),
    # The clock that took it again is 2 s behind the one that re-sent it.
    received("clocks", 10_000),
    *waits("clocks", 1, 10_000, 0, 10_000),
    returned("clocks", 1, 8000),
    returned("old", 4, 6000),
    received("parked", 7000),
    event("parked", "parked", 7000),
    event("", "destination_blocked", END_MS),
]


def messages_of(
    spark: SparkSession, folder: Path, events: Events, until_ms: int | None
) -> list[Row]:
    journals.write_journal(folder, events)
    return read_messages(read_events(spark, str(folder)), until_ms, HORIZON_MS).collect()


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Row]:
    """What is known, by the message's own id; every event is read twice, the last one first."""
    found = messages_of(
        spark, tmp_path_factory.mktemp("whatif"), [*reversed(HISTORY), *HISTORY], None
    )
    by_arrival = {row["arrived_ms"]: row for row in found}
    firsts = {one["redelivery_id"]: one["at"] for one in HISTORY if one["type"] == "received"}
    named = {str(name): by_arrival.pop(at) for name, at in firsts.items()}
    return named | {"old": by_arrival.pop(None)} | {str(at): row for at, row in by_arrival.items()}


def test_each_message_is_one_row(rows: Mapping[str, Row]) -> None:
    assert sorted(rows) == [
        *("brought-back", "clocks", "dropped", "given-up", "old", "parked", "redirected"),
        *("twice", "young"),
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Re-sends 2 s and 8 s after the first death; the first 100 ms late, back after 1.5 s.
        (
            "twice",
            {"sent_ms": [2000, 8000], "late_ms": [100, 0], "back_ms": [1500, None]}
            | {"failed_ms": 2000, "recovered_ms": 8000, "left_out": None}
            | {"destination": "queue://a", "cause_group": "down"}
            | {"arrived_ms": 1000, "observed_ms": END_MS - 1000},
        ),
        ("given-up", {"failed_ms": 3000, "recovered_ms": None}),
        ("young", {"failed_ms": -1, "recovered_ms": None}),
        # By the rules; a person brought it back.
        (
            "brought-back",
            {"left_out": None, "sent_ms": [700], "failed_ms": 700, "recovered_ms": None},
        ),
        # What is redirected has not recovered.
        ("redirected", {"sent_ms": [600], "failed_ms": 600, "recovered_ms": None}),
        # Of what was never tried only the identity is known.
        (
            "dropped",
            {"persistent": False, "expired": True, "cause_group": ""}
            | {"sent_ms": [], "failed_ms": -1, "recovered_ms": None},
        ),
        # Clocks that differ make no negative times.
        ("clocks", {"back_ms": [0], "failed_ms": 0}),
        ("old", {"left_out": BEGAN_EARLIER}),
        ("parked", {"left_out": KEPT_FOR_A_PERSON}),
    ],
)
def test_what_a_history_says_of_a_message(
    rows: Mapping[str, Row], name: str, expected: dict[str, object]
) -> None:
    assert {one: rows[name][one] for one in expected} == expected


def told(name: str, arrived_ms: int, earlier: list[Life], last: Life, acts: list[str]) -> Events:
    """Return the events of a message's lives; a person's acts between them, in turn of `acts`."""
    now_ms, acted = arrived_ms, cycle(acts)
    events = [received(name, now_ms)]

    def add(kind: str, **values: object) -> None:
        nonlocal now_ms
        now_ms += 3
        events.append(event(name, kind, now_ms, **values))

    for life in (*earlier, last):
        for _ in range(life.acts_before):
            add(next(acted), destination="queue://a")
        for count in range(1, life.failures + 1):
            add("resent", redelivery_count=count, destination="queue://a")
            add("returned", redelivery_count=count, origin="queue://a")
        if life.end == "redirected":
            add("resent", redelivery_count=life.failures + 1, destination="queue://b")
        elif life.end:
            add(life.end, origin="queue://a")
        else:
            add("resent", redelivery_count=life.failures + 1, destination="queue://a")
        for _ in range(life.acts_after):
            add(next(acted), destination="queue://a")
    return events


def by_recovery(events: Events) -> Mapping[str, Counter[tuple[int, str]]]:
    """Return how many re-sends of each message had which outcome, as `recovery` counts."""
    observed = ObservedStreams(
        np.array([text_number("main")]), np.array([END_MS]), HORIZON_MS, NONE
    )
    batches = pyarrow.Table.from_pylist(events, journals.SCHEMA).select(COLUMNS).to_batches()
    *parts, _ = divided(batches, None, None)
    names = sorted({str(one["redelivery_id"]) for one in events})
    known = dict(zip(hashed(pyarrow.array(names))[0].tolist(), names, strict=True))
    found: dict[str, Counter[tuple[int, str]]] = {name: Counter() for name in names}
    for steps in buckets_of(parts):
        for number in steps.column("id").unique().to_pylist():
            of_it = steps.filter(steps.column("id").to_numpy() == number)
            for row in count_lives(of_it, observed).to_pylist():
                if row["what"] // 2 < FIRST_MESSAGE and row["messages"]:
                    outcome = OUTCOMES[row["what"] // 2][1]
                    found[known[number]][row["attempt"], outcome] += row["messages"]
    return found


Told = tuple[list[Life], Life, list[str]]
acts = st.lists(st.sampled_from(RENEWALS), min_size=1, max_size=3)


# Why no shrinking: each example is a job of Spark.
@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(st.lists(st.tuples(lives, last_life, acts), min_size=60, max_size=60))
def test_lives_and_attempts_are_those_of_recovery(spark: SparkSession, stories: list[Told]) -> None:
    """`recovery` counts the re-sends of all lives: less those of the further ones the same."""
    history: Events = []
    further: dict[str, Counter[tuple[int, str]]] = {}
    for number, (earlier, last, acted) in enumerate(stories):
        history += told(f"m{number}", 100 * number, earlier, last, acted)
        of_others = further[f"m{number}"] = Counter()
        for life in [*earlier, last][1:]:
            of_others.update((count, "returned") for count in range(1, life.failures + 1))
            of_others.update([(life.failures + 1, "stayed")] if not life.end else [])
    with TemporaryDirectory() as folder:
        rows = messages_of(spark, Path(folder), history, END_MS)
    found = {f"m{row['arrived_ms'] // 100}": row for row in rows}
    for name, counts in by_recovery(history).items():
        tries = Counter(
            (number, "stayed" if back is None else "returned")
            for number, back in enumerate(found[name]["back_ms"], 1)
        )
        assert tries == counts - further[name], (name, stories[int(name[1:])])

"""A person's act after the end of a message begins a new life; its fate is that of the last."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.pipeline.recovery.judge import (
    CONSUMED,
    ENDS,
    FIRST_END,
    FIRST_MESSAGE,
    GIVEN_UP,
    MESSAGE_OUTCOMES,
    MOMENT_STEP,
    NONE,
    NOTED,
    NOTHING,
    OUTCOMES,
    QUEUED,
    RENEWED,
    RESENT,
    STEPS,
    ObservedStreams,
    count_lives,
)

HORIZON_MS, OBSERVED_MS = 100, 1_000_000
LAST = 2 * 2**31 + 1
ORIGIN, CAUSE, ELSEWHERE = 7, 9, 8


class Life(NamedTuple):
    """One life of a message.

    Attributes:
        failures: re-sends from which it came back.
        end: what ended it; "" = it stayed away after one more re-send.
        acts_before: what persons did while it was alive, which begins no life.
        acts_after: how often a person acts at its end; once is enough for a new life.
    """

    failures: int
    end: str
    acts_before: int
    acts_after: int


lives = st.lists(
    st.builds(
        Life,
        st.integers(0, 3),
        st.sampled_from(GIVEN_UP),
        st.integers(0, 2),
        st.integers(1, 2),
    ),
    max_size=3,
)
last_life = st.builds(
    Life, st.integers(0, 3), st.sampled_from(("", *ENDS)), st.integers(0, 2), st.just(0)
)


class Story:
    """Writes the steps of a message's lives, each a horizon after the one before."""

    def __init__(self) -> None:
        self.rows: list[dict[str, int]] = []
        self.now_ms = 1

    def _add(self, step: int, act: int, *, place: int = 0, cause: int = 0) -> None:
        moment = self.now_ms * MOMENT_STEP + act
        self.rows.append(
            {"id": 1, "check": 1, "step": step, "moment": moment, "stream": 3}
            | {"place": place, "cause": cause}
        )

    def die(self, count: int) -> None:
        self.now_ms += 10
        self._add(2 * (count + 1), 0, place=ORIGIN, cause=CAUSE)

    def send(self, count: int, place: int = ORIGIN) -> None:
        self.now_ms += 10
        self._add(2 * count + 1, RESENT, place=place)

    def end(self, name: str) -> None:
        self.now_ms += 1
        self._add(LAST, FIRST_END + ENDS.index(name))

    def note(self, cause: int, consumer: int) -> None:
        """Write a note on the latest death."""
        died_ms = next(one["moment"] for one in self.rows[::-1] if not one["step"] & 1)
        self._add(died_ms // MOMENT_STEP * 2 + 1, NOTED, place=consumer, cause=cause)

    def prove(self, count: int, proof: int) -> None:
        self.now_ms += 10
        self._add(2 * count + 1, proof, place=ORIGIN)

    def act(self) -> None:
        self._add(LAST, RENEWED, place=ORIGIN)

    def live(self, life: Life) -> None:
        for _ in range(life.acts_before):
            self.act()
        for count in range(1, life.failures + 1):
            self.send(count)
            self.die(count)
        if life.end == "redirected":
            self.send(life.failures + 1, ELSEWHERE)
        elif life.end:
            self.end(life.end)
        else:
            self.send(life.failures + 1)

    def counts(self) -> pyarrow.Table:
        ends = np.array([OBSERVED_MS])
        observed = ObservedStreams(np.array([3]), ends, HORIZON_MS, NONE)
        return count_lives(pyarrow.Table.from_pylist(self.rows, STEPS), observed)


@given(lives, last_life)
def test_a_message_has_the_fate_of_its_last_life_and_the_resends_of_all(
    earlier: list[Life], last: Life
) -> None:
    story = Story()
    story.die(0)
    resends: Counter[tuple[int, str]] = Counter()
    for life in (*earlier, last):
        story.live(life)
        resends.update((number, "returned") for number in range(1, life.failures + 1))
        if life is not last:
            for _ in range(life.acts_after):
                story.now_ms += 1
                story.act()
    if not last.end:
        resends[last.failures + 1, "stayed"] += 1

    found: Counter[tuple[int, str]] = Counter()
    fates = []
    for row in story.counts().to_pylist():
        what = row["what"] // 2
        if what < FIRST_MESSAGE:
            found[row["attempt"], OUTCOMES[what][1]] += row["messages"]
        elif what < FIRST_MESSAGE + len(MESSAGE_OUTCOMES):
            fates.append((OUTCOMES[what][1], row["origin"], row["cause_group"], row["target"]))
            assert row["what"] % 2 == 0
    assert found == resends
    target = ELSEWHERE if last.end == "redirected" else NOTHING
    assert fates == [(last.end or "recovered", ORIGIN, CAUSE, target)]


def test_what_comes_back_from_where_it_was_redirected_goes_on() -> None:
    story = Story()
    story.die(0)
    story.send(1, ELSEWHERE)
    story.die(1)
    story.end("exhausted")
    fates = [OUTCOMES[one["what"] // 2] for one in story.counts().to_pylist() if one["messages"]]
    assert fates == [("message", "exhausted")]


def test_what_a_person_brings_back_waits_until_it_is_sent() -> None:
    story = Story()
    story.die(0)
    story.end("exhausted")
    story.now_ms += 1
    story.act()
    [fate] = [one for one in story.counts().to_pylist() if one["messages"]]
    assert OUTCOMES[fate["what"] // 2] == ("message", "waiting")


def counted(story: Story, kind: str) -> list[dict[str, Any]]:
    rows = [row for row in story.counts().to_pylist() if row["messages"]]
    named = [(*OUTCOMES[row["what"] // 2], row) for row in rows]
    return [row | {"name": name} for of, name, row in named if of == kind]


@given(st.integers(0, 3), st.booleans())
def test_a_note_names_cause_and_consumer_of_its_death_also_after_a_new_life(
    failures: int, is_late: bool
) -> None:
    story = Story()
    story.die(0)
    story.live(Life(failures, "exhausted", 0, 0))
    if not is_late:
        story.note(cause=11, consumer=12)
    story.now_ms += 1
    story.act()
    story.now_ms += 1
    if is_late:
        story.note(cause=11, consumer=12)
    story.send(1)
    (fate,) = counted(story, "message")
    assert (fate["name"], fate["cause_group"]) == ("recovered", 11)
    (noted,) = (one for one in counted(story, "hourly") if one["target"] != NOTHING)
    assert (noted["name"], noted["cause_group"], noted["target"]) == ("recovered", 11, 12)


def test_a_proof_marks_a_recovery_and_redirected_messages_recover_by_it() -> None:
    story = Story()
    story.die(0)
    story.send(1, ELSEWHERE)
    story.prove(1, CONSUMED)
    (fate,) = counted(story, "message")
    assert (fate["name"], fate["proved"]) == ("recovered", 1)
    (send,) = counted(story, "resend")
    assert (send["name"], send["proved"]) == ("stayed", 1)


def test_the_horizon_of_what_lay_in_its_queue_begins_when_it_was_seen_there() -> None:
    story = Story()
    story.die(0)
    story.send(1)
    story.now_ms = OBSERVED_MS - HORIZON_MS - 9
    story.prove(1, QUEUED)
    (send,) = counted(story, "resend")
    assert (send["name"], send["after_ms"], send["proved"]) == ("open", HORIZON_MS - 1, 0)
    (fate,) = counted(story, "message")
    assert fate["name"] == "waiting"

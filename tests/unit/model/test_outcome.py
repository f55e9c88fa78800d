"""What became of a re-send: never "consumed" of a message that was not acknowledged."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amqsidecar.model.operation import OutcomeKind
from amqsidecar.model.outcome import Account, Counters, Observation, Outcome, outcome_of

RESENT_MS = 100_000
WINDOW_MS = 60_000
END_MS = RESENT_MS + WINDOW_MS


def looks(*seen: tuple[int, Counters, int]) -> list[Observation]:
    """Return the observations of looks: when, counters, how many died since."""
    account = Account("queue://orders")
    return [account.look(*one) for one in seen]


def counted(depth: int, acknowledged: int, removed: int = 0, run: str = "one") -> Counters:
    return Counters(depth=depth, acknowledged=acknowledged, removed=removed, run=run)


def verdict(observations: Sequence[Observation], now_ms: int = END_MS + WINDOW_MS) -> Outcome:
    return outcome_of(RESENT_MS, None, observations, now_ms, WINDOW_MS)


def watched(
    *later: tuple[int, Counters, int], kind: Callable[..., Counters] = counted
) -> list[Observation]:
    """Return the observations of a queue that was seen empty twice before the re-send."""
    return looks((90_000, kind(0, 7), 0), (95_000, kind(0, 7), 0), *later)


def late(depth: int, acknowledged: int, removed: int = 0) -> Counters:
    """Return counters of a broker on which dead letters count as acknowledged."""
    return Counters(
        depth=depth, acknowledged=acknowledged, removed=removed, run="one", counts_deaths_late=True
    )


def test_message_that_was_acknowledged_while_the_queue_was_watched_is_consumed() -> None:
    seen = watched((105_000, counted(0, 8), 0), (END_MS + 1_000, counted(0, 8), 0))
    outcome = verdict(seen, END_MS + 2_000)
    assert outcome.kind is OutcomeKind.CONSUMED
    assert "61.0 s after its re-send" in outcome.evidence


def test_window_is_open_until_its_end() -> None:
    assert verdict([], END_MS - 1).kind is OutcomeKind.RESENT


def test_death_after_the_resend_counts_whatever_the_counters_say() -> None:
    seen = watched((END_MS, counted(0, 9), 0))
    outcome = outcome_of(RESENT_MS, RESENT_MS + 2_500, seen, END_MS + 1, WINDOW_MS)
    assert outcome == Outcome(OutcomeKind.CAME_BACK, "died again 2.5 s after it was re-sent")


def test_earlier_death_of_the_same_message_does_not_count() -> None:
    assert outcome_of(RESENT_MS, RESENT_MS - 1, [], RESENT_MS, WINDOW_MS).kind is OutcomeKind.RESENT


def test_without_a_proof_the_outcome_waits_for_one_as_long_as_its_window() -> None:
    assert verdict([], END_MS + WINDOW_MS - 1).kind is OutcomeKind.RESENT
    assert verdict([]) == Outcome(
        OutcomeKind.UNKNOWN, "its queue was not examined after its window"
    )


@pytest.mark.parametrize(
    ("seen", "evidence"),
    [
        pytest.param(
            looks(
                (90_000, counted(3, 7), 0),
                (95_000, counted(3, 7), 0),
                (END_MS + 1_000, counted(3, 50), 0),
            ),
            "last seen with 3",
            id="the queue was never empty",
        ),
        pytest.param(
            watched((END_MS - 1, counted(0, 8), 0), (END_MS + 5_000, counted(2, 9), 0)),
            "",
            id="the queue was empty only within the window",
        ),
        pytest.param(
            watched(
                (105_000, counted(0, 9, removed=1), 0),
                (END_MS + 1_000, counted(0, 12, removed=1), 0),
            ),
            "purge",
            id="others were acknowledged beside a purge",
        ),
        pytest.param(
            watched(
                (98_000, counted(0, 8), 1),
                (105_000, counted(0, 9, removed=1), 0),
                (END_MS + 1_000, counted(0, 12, removed=1), 0),
            ),
            "",
            id="a death that no counter counted pays for no purge",
        ),
        pytest.param(
            looks(
                (90_000, counted(0, 7), 0),
                (95_000, counted(0, 7), 3),
                (105_000, counted(0, 9, removed=1), 1),
                (END_MS + 1_000, counted(0, 12, removed=1), 0),
            ),
            "",
            id="deaths from before the first look come in",
        ),
        pytest.param(
            watched(
                (105_000, late(0, 9, removed=1), 1),
                (END_MS + 1_000, late(0, 12, removed=1), 0),
                (END_MS + 6_000, late(0, 12, removed=1), 0),
                kind=late,
            ),
            "",
            id="where deaths count as acknowledged none pays for what was purged",
        ),
        pytest.param(
            watched(
                (105_000, counted(0, 8, run="two"), 0),
                (END_MS + 1_000, counted(0, 20, run="two"), 0),
            ),
            "",
            id="the counters restarted",
        ),
        pytest.param(
            watched(
                (105_000, counted(0, 3), 0),
                (110_000, counted(0, 20), 0),
                (END_MS + 1_000, counted(0, 20), 0),
            ),
            "",
            id="the counters went back",
        ),
        pytest.param(
            watched((END_MS + 1_000, counted(0, 7), 0)),
            "nothing was acknowledged",
            id="a queue without a reader",
        ),
    ],
)
def test_this_proves_nothing(seen: list[Observation], evidence: str) -> None:
    outcome = verdict(seen)
    assert outcome.kind is OutcomeKind.UNKNOWN
    assert evidence in outcome.evidence


def test_deaths_that_came_to_the_sidecar_hinder_no_proof() -> None:
    seen = watched(
        (105_000, counted(0, 9, removed=3), 2),
        (END_MS + 1_000, counted(0, 12, removed=4), 1),
        (END_MS + 6_000, counted(1, 12, removed=4), 1),
    )
    assert verdict(seen[:4]).kind is OutcomeKind.UNKNOWN
    assert verdict(seen).kind is OutcomeKind.CONSUMED


def test_death_that_does_not_come_is_waited_for_and_then_ends_the_proof() -> None:
    seen = watched(
        (105_000, counted(0, 9, removed=1), 0),
        (126_000, counted(0, 9, removed=1), 0),
        (END_MS + 1_000, counted(0, 12, removed=1), 0),
    )
    assert seen[2].steady_since_ms == 95_000
    assert seen[3].steady_since_ms == 126_000
    assert verdict(seen).kind is OutcomeKind.UNKNOWN


def test_where_deaths_count_as_acknowledged_an_empty_queue_counts_only_some_time_later() -> None:
    seen = watched(*((END_MS + at_ms, late(0, 8), 0) for at_ms in (1_000, 3_999, 4_000)), kind=late)
    assert verdict(seen[:4]).kind is OutcomeKind.UNKNOWN
    assert verdict(seen).kind is OutcomeKind.CONSUMED


def test_broker_without_an_acknowledged_counter_is_said_with_what_mends_it() -> None:
    empty = Counters(depth=0)
    outcome = verdict(looks(*((at_ms, empty, 0) for at_ms in (90_000, 95_000, END_MS + 1_000))))
    assert outcome.kind is OutcomeKind.UNKNOWN
    assert "left its queue, did not come back" in outcome.evidence
    assert "<statisticsBrokerPlugin/>" in outcome.evidence


Step = tuple[str, int]
"""What happens: to how many others, or to ours (0); a look is a late one, or not (0)."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("send", "ack", "kill", "purge", "ack", "look", "look", "restart")),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=30,
)


class Queue:
    """A queue with ours and others in it, of which the truth is known."""

    def __init__(self) -> None:
        self.others = 0
        self.acknowledged = 0
        self.removed = 0
        self.run = 0
        self.ours: str | None = None
        self.on_their_way: list[str] = []
        self.seen_before = 0
        self.has_returned = False

    def counters(self) -> Counters:
        depth = self.others + (self.ours == "there")
        return counted(depth, self.acknowledged, self.removed, str(self.run))

    def do(self, what: str, count: int) -> None:
        if what == "send":
            self.others += count
        elif what == "restart":
            self.run += 1
            self.acknowledged = self.removed = 0
        elif count == 0:
            self._ours_goes(what)
        else:
            count = min(count, self.others)
            self.others -= count
            self._count(what, count)
            if what == "kill":
                self.on_their_way += ["other"] * count

    def _ours_goes(self, what: str) -> None:
        if self.ours != "there":
            return
        self.ours = what
        self._count(what, 1)
        if what == "kill":
            self.on_their_way.append("ours")

    def _count(self, what: str, count: int) -> None:
        if what == "ack":
            self.acknowledged += count
        else:
            self.removed += count

    def take(self, *, is_late: bool) -> int:
        """Take the dead letters that have arrived; return how many.

        Args:
            is_late: what died since the last look has not arrived yet.
        """
        count = self.seen_before if is_late else len(self.on_their_way)
        died, self.on_their_way = self.on_their_way[:count], self.on_their_way[count:]
        self.seen_before = len(self.on_their_way)
        self.has_returned = self.has_returned or "ours" in died
        return len(died)


LATE_DEATH: list[Step] = [("look", 0), ("look", 0), ("ack", 0), ("kill", 1), ("look", 0)]


@given(before=STEPS, after=STEPS, late=STEPS)
@example(before=[("look", 0)] * 2, after=[("ack", 0)], late=[("look", 0)])
@example(before=LATE_DEATH, after=[("purge", 0), ("ack", 1)], late=[("look", 0)] * 2)
def test_only_what_was_acknowledged_is_ever_called_consumed(
    before: list[Step], after: list[Step], late: list[Step]
) -> None:
    queue, account = Queue(), Account("queue://orders")
    now_ms = 0
    seen: list[Observation] = []

    def play(steps: list[Step]) -> None:
        nonlocal now_ms
        for what, count in steps:
            now_ms += 1_000
            if what == "look":
                died = queue.take(is_late=count > 0)
                seen.append(account.look(now_ms, queue.counters(), died))
            else:
                queue.do(what, count)

    play(before)
    now_ms += 1
    resent_ms = now_ms
    queue.ours = "there"
    play(after)
    now_ms += WINDOW_MS
    play(late)
    returned_ms = now_ms if queue.has_returned else None

    outcome = outcome_of(resent_ms, returned_ms, seen, now_ms, WINDOW_MS)

    if outcome.kind is OutcomeKind.CONSUMED:
        assert queue.ours == "ack"

"""How a plan is cut into batches, paced, interrupted and gone on with."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from amqsidecar.errors import ConfigError, LinkLost, StoreUnavailable
from amqsidecar.model.redrive import PlannedMessage, PlannedPlace
from amqsidecar.runtime.redrive.progress import ProgressFile
from amqsidecar.runtime.redrive.redrive import (
    AHEAD_MS,
    BATCH_CHARACTERS_MAX,
    BATCH_MAX,
    LogInOutdated,
    Redrive,
    RedriveTotals,
)
from support.virtual_clock import VirtualClock


def planned(number: int, offset_ms: int = 0, **more: Any) -> PlannedMessage:
    plain = PlannedMessage(
        number=number,
        redelivery_id=f"r-{number}",
        place=PlannedPlace.QUEUE,
        source="queue://DLQ.exhausted",
        sidecar="s",
        destination="queue://A",
        offset_ms=offset_ms,
    )
    return msgspec.structs.replace(plain, **more)


class GivenPlan:
    plan_id = "p1"

    def __init__(self, messages: Sequence[PlannedMessage]) -> None:
        self.all = messages
        self.message_count = len(messages)

    def messages(self, first_number: int) -> Iterator[PlannedMessage]:
        return iter(self.all[first_number:])


class RecordingHand:
    """Takes each batch in one step; waiting advances the clock.

    Attributes:
        due: when each message was to be sent, in the order they were begun with.
        begun: when each batch was begun, and its size.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.batch: Sequence[PlannedMessage] = ()
        self.is_done = True
        self.taken = 0
        self.left: Mapping[str, int] = {}
        self.due: dict[int, int] = {}
        self.begun: list[tuple[int, int]] = []
        self.fails_at: list[int] = []
        self.step_ms = 0
        self.outdated_once = False

    def begin(self, batch: Sequence[PlannedMessage], began_ms: int) -> None:
        self.batch, self.is_done, self.taken = batch, not batch, 0
        self.begun.append((self.clock.now_ms(), len(batch)))
        self.due |= {one.number: began_ms + one.offset_ms for one in batch}

    def step(self, wait_s: float) -> None:
        if self.is_done:
            self.clock.advance(round(wait_s * 1000))
            return
        self.clock.advance(self.step_ms)
        if self.outdated_once:
            self.outdated_once = False
            raise LogInOutdated("newer")
        if self.fails_at and self.batch[0].number >= self.fails_at[0]:
            self.fails_at.pop(0)
            raise LinkLost("cut")
        self.is_done, self.taken = True, len(self.batch)

    def unsent(self) -> tuple[int, int]:
        return 0, 0

    def wake(self) -> None:
        pass


class Site:
    """One execution over a plan of ours."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "progress.json"
        self.clock = VirtualClock()
        self.hand = RecordingHand(self.clock)
        self.opened = 0
        self.said: list[str] = []

    def execution(
        self,
        messages: Sequence[PlannedMessage],
        *,
        sidecar: str | None = None,
        open_hand: Callable[[], AbstractContextManager[RecordingHand]] | None = None,
    ) -> Redrive:
        @contextmanager
        def open_ours() -> Iterator[RecordingHand]:
            self.opened += 1
            yield self.hand

        return Redrive(
            plan=GivenPlan(messages),
            place=PlannedPlace.QUEUE,
            sidecar=sidecar,
            open_hand=open_hand or open_ours,
            progress=ProgressFile(self.path, "p1", PlannedPlace.QUEUE),
            clock=self.clock,
            advance=lambda _count: None,
            say=self.said.append,
        )

    def run(
        self,
        messages: Sequence[PlannedMessage],
        *,
        sidecar: str | None = None,
        open_hand: Callable[[], AbstractContextManager[RecordingHand]] | None = None,
    ) -> RedriveTotals:
        return self.execution(messages, sidecar=sidecar, open_hand=open_hand).run()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_messages_are_taken_shortly_before_they_are_due(site: Site) -> None:
    start_ms = site.clock.now_ms()
    messages = [planned(number, number * 1000) for number in range(60)]
    outcome = site.run(messages)
    assert outcome.sent == 60
    assert not outcome.stopped
    assert site.hand.due == {one.number: start_ms + one.offset_ms for one in messages}
    number = 0
    for at_ms, size in site.hand.begun:
        assert size <= AHEAD_MS / 1000 + 1
        assert site.hand.due[number + size - 1] - at_ms <= AHEAD_MS
        number += size
    assert number == 60


def test_a_clock_that_is_set_back_holds_nothing_up(site: Site) -> None:
    messages = [planned(number, number * 10_000) for number in range(6)]
    execution = site.execution(messages)

    def set_back_once(wait_s: float) -> None:
        RecordingHand.step(site.hand, wait_s)
        site.clock.set_ahead_ms = -3_600_000

    site.hand.step = set_back_once  # type: ignore[method-assign]
    assert execution.run().sent == 6
    assert site.clock.current_ms <= 1_000_000 + messages[-1].offset_ms


def test_what_was_late_does_not_make_the_rest_come_faster(site: Site) -> None:
    site.hand.step_ms = 30_000
    messages = [planned(number, number * 1000) for number in range(60)]
    site.run(messages)
    batches = [size for _, size in site.hand.begun]
    first = 0
    for (at_ms, size), following in zip(site.hand.begun, [*batches[1:], 0], strict=True):
        assert site.hand.due[first] >= at_ms
        if following:
            assert site.hand.due[first + size] - site.hand.due[first + size - 1] >= 1000
        first += size


def test_a_batch_has_a_bounded_number_of_messages_and_bytes_of_ids(site: Site) -> None:
    long = "x" * 250
    messages = [planned(number) for number in range(BATCH_MAX + 1)]
    messages += [
        planned(number, redelivery_id=f"{long}{number:06}") for number in range(BATCH_MAX + 1, 900)
    ]
    site.run(messages)
    sizes = [size for _, size in site.hand.begun]
    assert sizes[0] == BATCH_MAX
    assert max(sizes[1:]) <= BATCH_CHARACTERS_MAX // 256 + 1
    assert sum(sizes) == 900


def test_messages_elsewhere_or_of_others_are_passed_over_and_counted(site: Site) -> None:
    messages = [
        planned(0),
        planned(1, place=PlannedPlace.STORE),
        planned(2, sidecar="other"),
        planned(3),
    ]
    outcome = site.run(messages, sidecar="s")
    assert list(site.hand.due) == [0, 3]
    assert outcome.left == {"in_another_place": 1, "of_another_sidecar": 1}
    assert (outcome.planned, outcome.sent, outcome.stopped) == (4, 2, False)


def test_a_lost_link_is_opened_again_and_its_batch_begun_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amqsidecar.runtime.redrive.redrive.RECONNECT_S", 0.0)
    site.hand.fails_at = [BATCH_MAX]
    outcome = site.run([planned(number) for number in range(BATCH_MAX + 5)])
    assert outcome.sent == BATCH_MAX + 5
    assert [size for _, size in site.hand.begun] == [BATCH_MAX, 5, 5]
    assert site.opened == 2
    assert site.said == ["cut; it is tried again"]


def test_a_broker_that_is_not_there_ends_it_at_once(site: Site) -> None:
    def nobody() -> AbstractContextManager[RecordingHand]:
        raise LinkLost("nobody there")

    with pytest.raises(LinkLost, match="nobody there"):
        site.run([planned(0)], open_hand=nobody)


def test_a_stopped_execution_goes_on_where_it_was_at_the_same_pace(site: Site) -> None:
    messages = [planned(number, number * 100_000) for number in range(4)]
    execution = site.execution(messages)
    site.hand.step_ms = 1000

    def stop_later(wait_s: float) -> None:
        RecordingHand.step(site.hand, wait_s)
        if 1 in site.hand.due:
            execution.stop()

    site.hand.step = stop_later  # type: ignore[method-assign]
    first = execution.run()
    assert first.stopped
    assert 2 not in site.hand.due
    site.hand = RecordingHand(site.clock)
    site.clock.advance(1_000_000_000)
    again_ms = site.clock.now_ms()
    second = site.run(messages)
    assert (second.sent, second.stopped) == (4, False)
    assert site.hand.due == {2: again_ms, 3: again_ms + 100_000}
    site.hand = RecordingHand(site.clock)
    assert site.run(messages) == second
    assert site.hand.due == {}


def test_progress_is_of_one_execution(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    file = ProgressFile(path, "p1", PlannedPlace.QUEUE)
    file.add(5, 3, Counter({"gone": 2}))
    file.add(9, 4, {})
    found = ProgressFile(path, "p1", PlannedPlace.QUEUE).progress
    assert (found.next_number, found.taken, found.left) == (9, 7, {"gone": 2})
    for plan_id, place in (("p2", PlannedPlace.QUEUE), ("p1", PlannedPlace.STORE)):
        with pytest.raises(ConfigError, match="give each a folder of its own"):
            ProgressFile(path, plan_id, place)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(StoreUnavailable, match="can't be read"):
        ProgressFile(path, "p1", PlannedPlace.QUEUE)


def test_a_newer_token_to_log_in_with_opens_the_next_hand_at_once(site: Site) -> None:
    """Its batch begins again, without waiting."""
    site.hand.outdated_once = True
    began_ms = site.clock.now_ms()
    assert site.run([planned(0)]).sent == 1
    assert (site.opened, site.said) == (2, ["newer"])
    assert site.clock.now_ms() == began_ms

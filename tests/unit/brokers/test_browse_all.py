"""A queue whose browsers end early is browsed whole, in any order of its timestamps."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.brokers.classic.browse_all import BrowsedMessage, browse_all

LIMIT = 120


class Queue:
    """Messages with timestamps; a browser shows `LIMIT` of those that its selector matches."""

    def __init__(self, times_ms: list[int], limit: int = LIMIT) -> None:
        self.messages = list(enumerate(times_ms))
        self.limit = limit
        self.browses = 0

    def browse(self, at_most: int, selector: str) -> Iterator[BrowsedMessage]:
        self.browses += 1
        words = selector.split()
        low, high = (int(words[-3]), int(words[-1])) if words else (0, 1 << 60)
        found = [one for one in self.messages if low <= one[1] <= high]
        for number, at_ms in found[: min(at_most, self.limit)]:
            yield b"%d" % number, b"%d" % at_ms

    def shown(self, at_most: int = 1_000_000) -> list[int]:
        found = browse_all(self.browse, lambda one: (one[0], int(one[1])), at_most, "")
        return [int(number) for number, _ in found]


@given(
    st.lists(st.integers(0, 500), min_size=LIMIT, max_size=700).filter(
        lambda times: max(map(times.count, times)) < LIMIT
    )
)
def test_each_message_is_shown_once(times_ms: list[int]) -> None:
    queue = Queue(times_ms)
    shown = queue.shown()
    assert sorted(shown) == list(range(len(times_ms)))
    assert shown[:LIMIT] == list(range(LIMIT))


def test_of_one_millisecond_no_more_are_shown_than_a_browser_shows() -> None:
    queue = Queue([5] * 300 + [7] * 50 + [3] * 20)
    shown = queue.shown()
    assert len(shown) == len(set(shown)) == LIMIT + 50 + 20


def test_a_number_of_messages_is_the_limit_of_all_browsers_together() -> None:
    assert Queue(list(range(1_000))).shown(at_most=333) == list(range(333))


def test_browsers_without_a_limit_are_asked_once_or_three_times() -> None:
    small, whole, huge = (Queue(list(range(count)), 10**9) for count in (99, 5_000, 10_001))
    assert [len(one.shown()) for one in (small, whole, huge)] == [99, 5_000, 10_001]
    assert [one.browses for one in (small, whole, huge)] == [1, 3, 1]


def test_two_browsers_show_nearly_as_many_as_a_browser_may() -> None:
    queue = Queue(list(range(10_000)))
    assert len(queue.shown()) == 10_000
    assert queue.browses < 2.3 * 10_000 / LIMIT

"""Browsing a whole queue of Classic, whose browsers end at `maxBrowsePageSize`."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final

from amqsidecar.brokers.selectors import both

CUT_AT_LEAST: Final = 100
"""A browser that ends earlier has shown all messages."""
CUT_AT_MOST: Final = 10_000
"""A browser that showed more has no limit."""
BROWSES_MAX: Final = 1_000
"""For each the broker goes through the queue; messages that they don't reach stay hidden."""
_LATEST_MS: Final = 1 << 60
_SHARE: Final = 0.9
"""Share of a browser's messages that the next range leaves out: some are out of order."""

BrowsedMessage = tuple[bytes, bytes]
"""The field that names the queue, and the message, as a browser receives them."""
_Range = tuple[int, int]


def browse_all(
    browse: Callable[[int, str], Iterator[BrowsedMessage]],
    name_of: Callable[[BrowsedMessage], tuple[Hashable, int]],
    at_most: int,
    selector: str,
) -> Iterator[BrowsedMessage]:
    """Return messages of a queue, each once: the head, then messages beyond a browser's limit.

    Quirk (Classic, measured on 6.2): the limit counts the messages that the selector matches. So
    ranges of timestamps show the others. For one millisecond the limit remains.

    Args:
        browse: browses up to a number of messages that a selector matches.
        name_of: returns the id and the timestamp of a message.
        selector: of messages; "" = all.
    """
    shown: dict[Hashable, int] = {}
    count = 0
    for one in browse(at_most, selector):
        count += 1
        if count <= CUT_AT_MOST:
            name, at_ms = name_of(one)
            shown[name] = at_ms
        yield one
    limit = count
    if not CUT_AT_LEAST <= limit <= min(CUT_AT_MOST, at_most - 1):
        return
    left = _split((0, _LATEST_MS), [*shown.values()])
    for _ in range(BROWSES_MAX):
        if not left or count >= at_most:
            return
        begins_ms, ends_ms = left.pop()
        times = []
        in_range = f"JMSTimestamp BETWEEN {begins_ms} AND {ends_ms}"
        for one in browse(limit, both(selector, in_range)):
            name, at_ms = name_of(one)
            times.append(at_ms)
            if name not in shown and count < at_most:
                count += 1
                yield one
            shown[name] = at_ms
        if len(times) >= limit and begins_ms < ends_ms:
            left += _split((begins_ms, ends_ms), times)
        else:
            shown = {name: at_ms for name, at_ms in shown.items() if at_ms > ends_ms}


def _split(whole: _Range, times_ms: Sequence[int]) -> list[_Range]:
    """Return the two parts of a range, the later first; a browser may reach the earlier's end."""
    begins_ms, ends_ms = whole
    at_ms = sorted(times_ms)[int(_SHARE * (len(times_ms) - 1))]
    at_ms = min(max(at_ms, begins_ms), ends_ms - 1)
    return [(at_ms + 1, ends_ms), (begins_ms, at_ms)]

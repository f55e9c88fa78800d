"""Where dead letters say that they died, in words for a selector."""

from collections import defaultdict
from collections.abc import Iterable

from amqsidecar.formats.stomp_classic_message import Shown
from amqsidecar.model.destination import Destination

# Why: a selector is a header, of which Classic takes 10 KiB, and each colon of an id is escaped.
IDS_BYTES_MAX = 6000


def next_batch(messages: Iterable[Shown]) -> list[Shown]:
    """Return the first messages, as many as one selector can name."""
    batch: list[Shown] = []
    size = 0
    origins: set[Destination] = set()
    for message in messages:
        size += selector_bytes(message.message_id.decode(errors="replace"))
        if isinstance(message.origin, Destination) and message.origin not in origins:
            origins.add(message.origin)
            size += selector_bytes(str(message.origin)) + 60
        if batch and size > IDS_BYTES_MAX:
            break
        batch.append(message)
    return batch


def selector_bytes(name: str) -> int:
    """Return how much of a header a name takes: in quotes, and its colons escaped."""
    return len(name.encode()) + name.count(":") + 10


def claim(message: Shown) -> tuple[str, str]:
    """Return the id of a message, and where it says that it died."""
    return message.message_id.decode(errors="replace"), str(message.origin)


def claims(batch: Iterable[Shown], honest: Shown) -> dict[str, list[str]]:
    """Return the ids of all but one, by where they say that they died."""
    found: dict[str, list[str]] = defaultdict(list)
    for message in batch:
        if isinstance(message.origin, Destination) and message is not honest:
            name, origin = claim(message)
            found[origin].append(name)
    return found

"""Dead letters that are larger than what is taken of one message."""

from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind


def left_too_large(queue: Destination, count: int) -> LeftBehind:
    """Return that some of a queue stay in it."""
    meaning = (
        "they are larger than 256 MiB, the most that is taken of a message: move them with the "
        "broker's console"
    )
    return LeftBehind(queue, "too_large", count, meaning)

"""Messages that lie in their final dead-letter queue: shown by a browse, and nothing moves."""

from collections.abc import Callable
from typing import Final, NamedTuple

from amqsidecar.broker import BrokerKind, IntakeQueue, LookSession
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.destination import parse_destination
from amqsidecar.model.schedule import RowView

BROWSED_MAX: Final = 10_000
_MEMORY_OF_CLASSIC: Final = "; or the queue's memoryLimit ended the browse of ActiveMQ Classic"


class LyingMessage(NamedTuple):
    """A message as it lies in its queue."""

    encoding: str
    message: bytes


ReadLying = Callable[[RowView], LyingMessage]
"""Returns the message of a row that lies in its final queue; raises LinkLost or BrokerRefused."""


def read_lying(link: LookSession, row: RowView) -> LyingMessage:
    """Return the message of a row in its final queue; the queue is unchanged.

    Raises:
        BrokerRefused: it can't be read; the sentence gives the reason and the remedy.
        LinkLost: the connection is gone.
    """
    queue = parse_destination(row.goes_to)
    asked = IntakeQueue(queue, is_final=True, redelivery_ids=(row.redelivery_id,))
    for one in link.browse(asked, BROWSED_MAX):
        if one.message:
            return LyingMessage(one.encoding, one.message)
    is_classic = link.description.kind is BrokerKind.CLASSIC
    raise BrokerRefused(
        f"a browse of {queue} does not show it: another program has it in hand, or took it"
        + (_MEMORY_OF_CLASSIC if is_classic else "")
    )

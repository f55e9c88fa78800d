"""The decision of the rules on one dead letter."""

from dataclasses import dataclass

from amqsidecar.model.destination import Destination
from amqsidecar.model.message import MessageEdit


@dataclass(frozen=True, slots=True)
class Redeliver:
    """Send it to its original destination again.

    Attributes:
        delay_ms: how long to wait first. As the broker computes it: may be 0 or negative (at once).
        redelivery_count: the count that the re-sent message carries, 1-based (1 = first re-send).
        rule: the rule that decided, with file and line.
        edit: of properties alone; names to remove need not be there. `{redelivery_id}` and
            `{redelivery_count}` in a value stand for those of the re-send. None = no edit.
    """

    delay_ms: int
    redelivery_count: int
    rule: str
    edit: MessageEdit | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterTo:
    """No further redelivery: it belongs in this dead-letter destination.

    Attributes:
        destination: the dead-letter destination.
        expiration_ms: how long it may stay there; 0 = for ever.
        rule: the rule that decided, with file and line.
        is_assumed: no rule names the destination; it is what a Classic has that says nothing.
    """

    destination: Destination
    expiration_ms: int
    rule: str
    is_assumed: bool = False


@dataclass(frozen=True, slots=True)
class Discard:
    """The rules drop it; final.

    Attributes:
        rule: the rule that decided, with file and line.
    """

    rule: str


@dataclass(frozen=True, slots=True)
class Redirect:
    """Send it to another destination; no rule of a broker does.

    Attributes:
        destination: where to; its consumers get it as a redelivery.
        delay_ms: how long to wait first.
        redelivery_count, edit: as in `Redeliver`.
        rule: the rule that decided, with file and line.
    """

    destination: Destination
    delay_ms: int
    redelivery_count: int
    rule: str
    edit: MessageEdit | None = None


@dataclass(frozen=True, slots=True)
class Exhaust:
    """No further redelivery: it stays a dead letter of the queue that it was read from.

    Attributes:
        rule: the rule that decided, with file and line.
    """

    rule: str


@dataclass(frozen=True, slots=True)
class Park:
    """Keep it for a person.

    Attributes:
        rule: the rule that decided, with file and line.
    """

    rule: str


Decision = Redeliver | DeadLetterTo | Discard | Redirect | Exhaust | Park

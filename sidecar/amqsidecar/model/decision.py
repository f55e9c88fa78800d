"""The decision of the rules on one dead letter."""

from dataclasses import dataclass

from amqsidecar.model.destination import Destination
from amqsidecar.model.message import MessageEdit
from amqsidecar.model.signal import DEFAULT_WAIT_MS


@dataclass(frozen=True, slots=True)
class Redeliver:
    """Send it to its original destination again.

    Attributes:
        delay_ms: how long to wait first. As the broker computes it: may be 0 or negative (at once).
        redelivery_count: the count that the re-sent message carries, 1-based (1 = first re-send).
        rule: the rule that decided, with file and line.
        edit: of properties alone; names to remove may be missing. In a value, `{redelivery_id}` and
            `{redelivery_count}` stand for the re-send's id and count. None = no edit.
        until: the external event that it also waits for, as `signal_name` returns it; "" = none.
        longest_ms: the longest wait for it.
    """

    delay_ms: int
    redelivery_count: int
    rule: str
    edit: MessageEdit | None = None
    until: str = ""
    longest_ms: int = DEFAULT_WAIT_MS


@dataclass(frozen=True, slots=True)
class DeadLetterTo:
    """No further redelivery: it belongs in this dead-letter destination.

    Attributes:
        destination: the dead-letter destination.
        expiration_ms: how long it may stay there; 0 = for ever.
        rule: the rule that decided, with file and line.
        is_assumed: no rule names the destination; it is Classic's default.
    """

    destination: Destination
    expiration_ms: int
    rule: str
    is_assumed: bool = False


@dataclass(frozen=True, slots=True)
class WrittenLine:
    """A line that a person wrote; only code that reads it knows its place.

    Attributes:
        text: the element or key, with its value.
        place: file and line, or the path of the key.

    Raises:
        ValueError: it has no place: nobody wrote it, it is a default.
    """

    text: str
    place: str

    def __post_init__(self) -> None:
        if not self.place.strip() or self.place.startswith("("):
            raise ValueError(f"{self.text}: a discard needs the place of the line that orders it")

    def __str__(self) -> str:
        """Return the text by which a person finds the line again."""
        return f"{self.text} ({self.place})"


@dataclass(frozen=True, slots=True)
class Discard:
    """A written line drops it; final. A default never does: see `Exhaust.is_discard_of_broker`.

    Attributes:
        ordered_by: the line that orders it.
        passed: the rules that passed it on before, with file and line; "" = none.
    """

    ordered_by: WrittenLine
    passed: str = ""

    @property
    def rule(self) -> str:
        """The rules that decided; the written line stands at the end."""
        return f"{self.passed} -> {self.ordered_by}" if self.passed else str(self.ordered_by)


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
        is_discard_of_broker: the broker destroys such a message by a default, or for want of an
            address. It reached a dead-letter queue all the same, and no written line orders that.
    """

    rule: str
    is_discard_of_broker: bool = False


@dataclass(frozen=True, slots=True)
class Park:
    """Keep it for a person.

    Attributes:
        rule: the rule that decided, with file and line.
    """

    rule: str


Decision = Redeliver | DeadLetterTo | Discard | Redirect | Exhaust | Park

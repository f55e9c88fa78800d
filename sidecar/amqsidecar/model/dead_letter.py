"""The inputs of a decision."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from amqsidecar.model.destination import Destination


class Facts(Protocol):
    """The content of a dead letter, beyond what the broker's rules see; read as it is asked for."""

    @property
    def age_ms(self) -> int:
        """Time since its first death; 0 at this."""
        ...

    @property
    def cause(self) -> str | None:
        """Why it died, in the words of the history; None = no cause is known."""
        ...

    @property
    def jms_type(self) -> str | None:
        """Its JMSType; None = it has none."""
        ...

    def property_of(self, name: str) -> str | None:
        """Return an application property as text; None = it has none of this name."""
        ...

    def header_of(self, name: str) -> str | None:
        """Return a header by its name on the wire; None = it has none of this name."""
        ...

    def later(self, by_ms: int) -> "Facts":
        """Return the facts of the same message, which is so much older."""
        ...


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """Facts that a caller states, such as `explain`; facts not stated are absent."""

    age_ms: int = 0
    cause: str | None = None
    jms_type: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def property_of(self, name: str) -> str | None:
        """Return an application property; None = it is not stated."""
        return self.properties.get(name)

    def header_of(self, name: str) -> str | None:
        """Return a header; None = it is not stated."""
        return self.headers.get(name)

    def later(self, by_ms: int) -> "KnownFacts":
        """Return the facts of the same message, which is so much older."""
        return replace(self, age_ms=self.age_ms + by_ms)


NO_FACTS = KnownFacts()


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that the broker gave up on, as the broker's rules see it.

    Attributes:
        destination: where the message was sent before it died (Classic: the region destination).
        redelivery_count: redeliveries so far, 0-based; Classic's `redeliveryCounter`. Artemis
            compares the delivery count, which is one more.
        persistent: whether the producer sent it as persistent.
        expired: whether it died because its time to live ran out.
        is_store_duplicate: whether the broker says it found the id in its store already.
        subscription: `clientId:name` of the durable subscription it died on; None for a queue or
            when it is not known.
        facts: for rules beyond the broker's; `NO_FACTS` where no rules ask for any.
    """

    destination: Destination
    redelivery_count: int = 0
    persistent: bool = True
    expired: bool = False
    is_store_duplicate: bool = False
    subscription: str | None = None
    facts: Facts = field(default=NO_FACTS, compare=False, repr=False)

    @property
    def delivery_count(self) -> int:
        """Deliveries so far, 1-based, the last of which failed."""
        return self.redelivery_count + 1

    def again(self, redelivery_count: int, after_ms: int) -> "DeadLetter":
        """Return the next death of the message: not of its time to live, and in no store twice."""
        return replace(
            self,
            redelivery_count=redelivery_count,
            expired=False,
            is_store_duplicate=False,
            facts=self.facts.later(after_ms),
        )

"""The destinations that the sidecar never sends to, as far as no broker has to be asked."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from amqsidecar.broker import BrokerKind
from amqsidecar.engine.judging.allowed_origins import within
from amqsidecar.engine.judging.resend_copies import ResendProblem, no_resend_problem
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.sidecar_names import OWN_PREFIX

LONGEST_NAME = 2_048
"""Characters of a destination's name: a longer one would stand in each event, row and list."""

_INTERNAL_ENDS = ("activemq.management", "activemq.notifications")
_INTERNAL_PARTS = ("$.artemis.", "$.activemq.", "$sys", "$SYS", "$ACTIVEMQ_ARTEMIS_")
_INTERNAL_CLASSIC = (
    "ActiveMQ.Advisory.",
    "ActiveMQ.Statistics.",
    "ActiveMQ.Scheduler.",
    "ActiveMQ.Agent",
)
_PREFIXES = re.compile(r"\Ajms\.(queue|topic)\.")
_CLASSIC_SIGNS = frozenset("*>,?")
_ARTEMIS_WILDCARDS = frozenset("*#>")


class SendRules:
    """The rules about destinations that need no answer of the broker.

    Attributes:
        is_intake: returns whether the intake reads a destination.
        final_suffix: appended to a dead-letter queue's name to name its final queue.

    Args:
        is_intake: see the attribute.
        final_suffix: see the attribute.
        notes: name of the queue of consumers' notes; "" = there is none.
        parks_topics: messages of topics are parked, because a re-send would reach every
            subscriber (Classic); False = they are published again (Artemis sends to one
            subscription).
        allowed_origins: `redelivery.allowed_origins`.
        copies: why a broker's own rules would copy or misroute a send; None = they would not.
    """

    def __init__(
        self,
        kind: BrokerKind,
        is_intake: Callable[[Destination], bool],
        final_suffix: str,
        *,
        notes: str = "",
        parks_topics: bool = False,
        allowed_origins: Sequence[str] = (),
        copies: ResendProblem = no_resend_problem,
    ) -> None:
        self._kind = kind
        self.is_intake = is_intake
        self.final_suffix = final_suffix
        self._notes = frozenset(notes.split("::")) - {""}
        self._parks_topics = parks_topics
        self._finals: frozenset[Destination] = frozenset()
        self._restriction = within(allowed_origins, copies)

    def note_finals(self, queues: Iterable[Destination]) -> None:
        """Note queues that received exhausted messages, even if they are not read now."""
        self._finals |= frozenset(queues)

    def is_final(self, destination: Destination) -> bool:
        """Return whether it belongs to a dead-letter queue that is read, or was used as one.

        A queue of an application may have a name that ends as theirs.
        """
        if self._finals and destination in self._finals:
            return True
        if not destination.name.endswith(self.final_suffix):
            return False
        stem = destination.name.rpartition("::")[2].removesuffix(self.final_suffix)
        return bool(stem) and self.is_intake(Destination(destination.kind, stem))

    def problem(self, destination: Destination) -> str | None:
        """Return why no redelivery may go to a destination, whoever asks for it; None = it may."""
        if (fault := self.final_problem(destination)) is not None:
            return fault
        if self.is_dead_letter_queue(destination):
            return (
                f"{destination} is itself a dead-letter queue: what is sent there would come back "
                "without its history; redirect it, or give it up to move it to the final "
                "dead-letter queue"
            )
        return self._restriction(destination)

    def redirect_problem(self, destination: Destination, /) -> str | None:
        """Return why neither a rule nor a consumer may send to a destination; None = one may."""
        if destination.is_temporary:
            return f"{destination} is temporary: it ends with the connection of its owner"
        return self._topic_problem(destination) or self.problem(destination)

    def redelivery_problem(self, origin: Destination) -> str | None:
        """Return why no rule may redeliver to an origin; None = it may, or `origin_problem`."""
        return self._topic_problem(origin) or self._restriction(origin)

    def origin_problem(self, origin: Destination) -> str | None:
        """Return why every dead letter of an origin is parked, regardless of rules; None = not."""
        if (fault := self.final_problem(origin)) is not None:
            return f"its origin {fault}"
        if self.is_dead_letter_queue(origin):
            return (
                f"its origin {origin} is itself a dead-letter queue: the true origin is not known"
            )
        return None

    def _topic_problem(self, destination: Destination) -> str | None:
        if self._parks_topics and not destination.is_queue:
            return (
                f"{destination} is a topic: a re-send would reach every subscriber; set "
                "policy.topics to republish if that is what you want"
            )
        return None

    def is_dead_letter_queue(self, destination: Destination) -> bool:
        """Return whether it is one that the intake reads, or a final one."""
        return self.is_intake(destination) or self.is_final(destination)

    def final_problem(self, destination: Destination) -> str | None:
        """Return why no message at all may be sent to a destination; None = one may."""
        if self._notes and not self._notes.isdisjoint(_words(destination.name)):
            return (
                f"{destination} holds the notes of consumers: a message would be misread and lost"
            )
        return fault_of_name(destination, self._kind)


@lru_cache(maxsize=4096)
def fault_of_name(destination: Destination, kind: BrokerKind) -> str | None:
    """Return why the sidecar sends nothing to a destination, not even if a person asks for it."""
    name = destination.name
    if len(name) > LONGEST_NAME:
        return f"its name has {len(name)} characters, more than {LONGEST_NAME}"
    if not name.strip() or parse_destination(str(destination)) != destination:
        return f"{name!r} is no name of a destination: the blanks at its end would get lost"
    what = ""
    if any(word.startswith(OWN_PREFIX) for word in _words(name)):
        what = "the sidecar's own: what is sent there would be misread or lost"
    elif is_internal(name, kind):
        what = (
            "the broker's own: what is sent there is an advisory, a command to it, or goes to "
            "another broker"
        )
    elif destination.is_temporary and kind is BrokerKind.ARTEMIS:
        what = "temporary, its owner is gone"
    elif _names_several(destination, kind):
        what = "no name of one destination: it holds a wildcard or a separator"
    return f"{destination} is {what}" if what else None


def _names_several(destination: Destination, kind: BrokerKind) -> bool:
    if kind is BrokerKind.CLASSIC:
        return not _CLASSIC_SIGNS.isdisjoint(destination.name)
    # Why the address: a queue that is bound to a wildcard may have its name.
    return not _ARTEMIS_WILDCARDS.isdisjoint(destination.address.split("."))


def is_internal(name: str, kind: BrokerKind) -> bool:
    """Return whether a broker uses the destinations of a name for itself."""
    if kind is BrokerKind.CLASSIC:
        return name.startswith(_INTERNAL_CLASSIC)
    # Why not the start: an acceptor may cut off any prefix.
    return any(word.endswith(_INTERNAL_ENDS) for word in name.split("::")) or any(
        part in name for part in _INTERNAL_PARTS
    )


def _words(name: str) -> list[str]:
    """Return the address and the queue of a name, without the usual prefixes of acceptors."""
    return [_PREFIXES.sub("", word) for word in name.split("::")]

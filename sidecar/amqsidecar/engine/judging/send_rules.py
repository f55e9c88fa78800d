"""Where the sidecar never sends, as far as no broker has to be asked."""

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
_CLASSIC_SIGNS = frozenset("*>,?")
_ARTEMIS_WILDCARDS = frozenset("*#>")


class SendRules:
    """The rules about destinations that need no answer of the broker.

    Attributes:
        is_intake: returns whether the intake reads a destination.
    """

    def __init__(
        self,
        kind: BrokerKind,
        is_intake: Callable[[Destination], bool],
        final_suffix: str,
        *,
        notes: str = "",
        allowed_origins: Sequence[str] = (),
        copies: ResendProblem = no_resend_problem,
    ) -> None:
        """Make them.

        Args:
            kind: of the broker.
            is_intake: see the attribute.
            final_suffix: what is added to the name of a dead-letter queue.
            notes: name of the queue of consumers' notes; "" = there is none.
            allowed_origins: `redelivery.allowed_origins`.
            copies: why a broker's own rules would copy or misroute a send; None = they would not.
        """
        self._kind = kind
        self.is_intake = is_intake
        self._final_suffix = final_suffix
        self._notes = notes
        self._finals: frozenset[Destination] = frozenset()
        self._restriction = within(allowed_origins, copies)

    def note_finals(self, queues: Iterable[Destination]) -> None:
        """Note queues to which exhausted messages went, whatever is read now."""
        self._finals |= frozenset(queues)

    def is_final(self, destination: Destination) -> bool:
        """Return whether it belongs to a dead-letter queue that is read, or was used as one.

        A queue of an application may have a name that ends as theirs.
        """
        if self._finals and destination in self._finals:
            return True
        if not destination.name.endswith(self._final_suffix):
            return False
        stem = destination.name.rpartition("::")[2].removesuffix(self._final_suffix)
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
        return self.restriction(destination)

    def restriction(self, destination: Destination) -> str | None:
        """Return why the operator or Classic's own rules keep redeliveries from a destination."""
        return self._restriction(destination)

    def is_dead_letter_queue(self, destination: Destination) -> bool:
        """Return whether it is one that the intake reads, or a final one."""
        return self.is_intake(destination) or self.is_final(destination)

    def final_problem(self, destination: Destination) -> str | None:
        """Return why no message at all may be sent to a destination; None = one may."""
        if self._notes and self._notes in destination.name.split("::"):
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
    if any(word.startswith(OWN_PREFIX) for word in name.split("::")):
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
    # Why not the start: an acceptor's prefix such as `jms.queue.` is cut off by the broker.
    return any(word.endswith(_INTERNAL_ENDS) for word in name.split("::")) or any(
        part in name for part in _INTERNAL_PARTS
    )

"""The error tree.

SidecarError                      never raised itself
├── ConfigError                   the operator must change something; exit code 78
├── BrokerError
│   ├── LinkLost                  transient: the outcome of the transaction is unknown; reconnect
│   ├── SendsRefused              the broker refused some sends; nothing of the transaction happened
│   ├── CommitRefused             the broker refused the commit; nothing of the transaction happened
│   ├── BrokerRefused             permanent: credentials, permission, missing capability
│   │   ├── QueueRefused          ... of one dead-letter queue
│   │   ├── DiscoveryRefused      ... of the question which dead-letter queues there are
│   │   └── ManagementRefused     ... to manage the broker
│   ├── RemoteProtocolError       the broker violated its protocol
│   ├── NotHereYet                a message did not come out of its final queue in time
│   └── UndecodableMessage        one message can't be taken apart; it is parked whole
├── StoreError
│   ├── StoreUnavailable          transient: the store can't be reached or written
│   │   └── StoreFull             ... because its medium has no space left; nothing was changed
│   └── SchemaMismatch            the store was written by a version that this one doesn't know
├── NothingFound                  the requested thing does not exist; exit code 1
├── JournalError                  the journal's files can't be read or written, or are damaged
│   ├── ReaderNotStarted          transient: Spark's Python worker did not start in time
│   └── SegmentTaken              the journal has other events under the number of a segment
├── DemoFailed                    the demo lost or doubled a message, or could not be played
└── EditRefused                   a message can't be edited as a person asked
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class SidecarError(Exception):
    """Base of everything that amqsidecar raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a configuration or policy file.

    Attributes:
        where: `file:line`, a key path such as `store.url`, or the name of an option.
        what: the value found, the value expected, and the fix, as one sentence.
    """

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class ConfigError(SidecarError):
    """The configuration can't be used; holds every problem found, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class BrokerError(SidecarError):
    """Something between the broker and us."""


class LinkLost(BrokerError):
    """The connection is gone; whether the last transaction was committed is unknown.

    Attributes:
        held_up_by: the destinations, such as `queue://A`, that took nothing, so that it was given
            up; each with why. Empty = something else.
    """

    def __init__(self, reason: str, held_up_by: Mapping[str, str] | None = None) -> None:
        self.held_up_by = dict(held_up_by or {})
        super().__init__(reason)


class SendsRefused(BrokerError):
    """The broker refused some sends of a transaction; nothing of the transaction happened.

    Attributes:
        refusals: index of the refused send in the transaction (0-based) to the broker's words.
    """

    def __init__(self, refusals: Mapping[int, str]) -> None:
        self.refusals = dict(refusals)
        first = next(iter(self.refusals.values()), "")
        super().__init__(f"the broker refused {len(self.refusals)} send(s): {first}")


class CommitRefused(BrokerError):
    """The broker refused a commit without naming the message at fault; nothing happened."""


class BrokerRefused(BrokerError):
    """The broker permanently refuses a request: credentials, permission, capability."""


class QueueRefused(BrokerRefused):
    """One dead-letter queue can't be read: no permission, another type, or no such queue.

    Attributes:
        queue: its name as it was asked for.
        others: more names that were refused at once, with the reason of each.
    """

    def __init__(self, queue: str, reason: str, others: Mapping[str, str] | None = None) -> None:
        self.queue = queue
        self.others = dict(others or {})
        super().__init__(reason)

    @classmethod
    def all_of(cls, reasons: Mapping[str, str]) -> "QueueRefused":
        """Return the error about these queues, by name; the first one's reason is its message."""
        (name, reason), *others = reasons.items()
        return cls(name, reason, dict(others))


class DiscoveryRefused(BrokerRefused):
    """The user may not ask the broker which dead-letter queues it has."""


class ManagementRefused(BrokerRefused):
    """The user may not manage the broker, so it answers nothing about its queues."""


class RemoteProtocolError(BrokerError):
    """The broker violated its protocol."""


class NotHereYet(BrokerError):
    """A message did not come out of its final queue in time; it is still requested."""


class UndecodableMessage(BrokerError):
    """A message can't be taken apart; it must be kept whole."""


class StoreError(SidecarError):
    """Something between the store and us."""


class StoreUnavailable(StoreError):
    """The store can't be reached, opened or written."""


class StoreFull(StoreUnavailable):
    """The medium of the store has no space left; nothing was changed."""


class StoreMoved(StoreUnavailable):
    """The schedule is in another store, or on its way between two."""


class SchemaMismatch(StoreError):
    """The store was written by a version of amqsidecar that this one doesn't know."""


class NothingFound(SidecarError):
    """A request names something that does not exist; the message suggests similar names."""


class JournalError(SidecarError):
    """The journal's files can't be read or written, or are damaged."""


class ReaderNotStarted(JournalError):
    """Spark's Python worker, which reads the journal, did not start in time; nothing was read."""


class SegmentTaken(JournalError):
    """The journal has other events under the number of a segment; it can never be written."""


class EditRefused(SidecarError):
    """A message can't be edited as a person asked; names the fault, its place and the fix."""


class DemoFailed(SidecarError):
    """The demo lost or doubled a message, or could not be played; its output says why."""

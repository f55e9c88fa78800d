"""The contract of a failure model: why re-sends of one kind of message fail.

A model is fitted to the history of a destination and cause group. It says how likely that history
is, and what another policy's re-sends of the same messages would come to. The models stand in
`failure_models/`.
"""

from enum import StrEnum
from typing import Protocol

from amqsidecar.pipeline.whatif.attempts import KnownTries, Mask, Reach, Tries
from amqsidecar.pipeline.whatif.curve import Numbers


class FailureKind(StrEnum):
    """What a model takes to be the reason; as tables and the report name it."""

    TIME = "time"
    """Time heals: something is broken for a time, for each message its own."""
    CHANCE = "chance"
    """Each attempt fails by chance, which may differ from one to the next."""
    DOWN_OR_LOADED = "down_or_loaded"
    """The destination is out of order, for all messages at the same time."""


class FailureModel(Protocol):
    """One fitted model; immutable, and shipped to Spark's tasks."""

    @property
    def kind(self) -> FailureKind:
        """What it takes to be the reason."""

    def log_likelihood(self, known: KnownTries) -> Numbers:
        """Return the logarithm of the probability of each message's outcomes."""

    def open_after(self, known: KnownTries, planned: Tries) -> Numbers:
        """Return the probability that a message has not recovered after each planned re-send.

        Args:
            known: what history did with the messages: where history has the outcome of a planned
                re-send, the probability is 0 or 1.
            planned: the re-sends of a policy for the same messages, each as if all before it
                failed.

        Returns:
            Like `planned.at_ms`; it never grows along a row. Columns of re-sends that are not made
            have the value before them.
        """

    def open_shares(self, planned: Tries) -> Numbers:
        """Return the same for messages without a history."""

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        """Return which planned re-sends lie beyond what history shows, by this model."""

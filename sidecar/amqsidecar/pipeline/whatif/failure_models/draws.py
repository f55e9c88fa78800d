"""Models in which attempts succeed independently, each with its own probability.

Some messages may never succeed. A planned re-send and the one of the same number in history share
their luck: what succeeded by a small probability succeeds by a greater one, too. So a policy that
does what history did comes to what history came to.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from amqsidecar.pipeline.whatif.attempts import KnownTries, Mask, Reach, Tries
from amqsidecar.pipeline.whatif.curve import Numbers
from amqsidecar.pipeline.whatif.failure_model import FailureKind

_TINY = 1e-9


class SuccessRate(Protocol):
    """How likely attempts succeed."""

    def of(self, tries: Tries) -> Numbers:
        """Return the probability of each attempt, of a message that can succeed."""

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        """Return which attempts lie beyond what history shows."""


@dataclass(frozen=True)
class Draws:
    """A model by the success rate of attempts.

    Attributes:
        kind: see `failure_model`.
        rate: of each attempt.
        never: share of the messages that never succeed.
    """

    kind: FailureKind
    rate: SuccessRate
    never: float

    def log_likelihood(self, known: KnownTries) -> Numbers:
        _, all_of_it = likelihoods(self.rate.of(known), known)
        never = np.where(known.has_recovered, 0.0, self.never)
        return np.log(np.maximum(never + (1 - self.never) * all_of_it, 1e-300))

    def open_after(self, known: KnownTries, planned: Tries) -> Numbers:
        missed, _ = likelihoods(self.rate.of(known), known)
        lost = self.never / np.maximum(self.never + (1 - self.never) * missed, _TINY)
        lost = np.where(known.has_recovered, 0.0, lost)[:, None]
        return lost + (1 - lost) * np.cumprod(1 - coupled(self.rate, known, planned), axis=1)

    def open_shares(self, planned: Tries) -> Numbers:
        rate = np.where(planned.is_made, self.rate.of(planned), 0.0)
        return self.never + (1 - self.never) * np.cumprod(1 - rate, axis=1)

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        is_late = planned.at_ms > reach.at_ms
        return planned.is_made & (is_late | self.rate.is_beyond(planned, reach))


def likelihoods(rate: Numbers, known: KnownTries) -> tuple[Numbers, Numbers]:
    """Return, by message, the probability of its failures, and of all its outcomes."""
    missed = np.where(known.has_failed, 1 - rate, 1.0).prod(axis=1)
    return missed, missed * np.where(known.has_succeeded, rate, 1.0).prod(axis=1)


def coupled(rate: SuccessRate, known: KnownTries, planned: Tries) -> Numbers:
    """Return the probability that each planned re-send succeeds, given the one of its number."""
    count = min(known.at_ms.shape[1], planned.at_ms.shape[1])
    before, now = rate.of(known)[:, :count], rate.of(planned)
    has_failed, has_succeeded = known.has_failed[:, :count], known.has_succeeded[:, :count]
    same = now[:, :count]
    # Why not by the quotient alone: what hardly ever succeeds did so here all the same.
    is_likelier = now[:, :count] >= before
    same = np.where(
        has_succeeded, np.where(is_likelier, 1.0, same / np.maximum(before, _TINY)), same
    )
    more = np.maximum(0.0, (now[:, :count] - before) / np.maximum(1 - before, _TINY))
    same = np.where(has_failed, more, same)
    return np.where(planned.is_made, np.hstack([same, now[:, count:]]), 0.0)

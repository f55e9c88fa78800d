"""Judges how often a message is delivered: by the broker, times the redeliveries of the rules."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from amqsidecar.diagnosis.artemis_layout import delivery_attempts, listed
from amqsidecar.diagnosis.finding import Finding, new_finding
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import Redeliver, Redirect
from amqsidecar.model.destination import Destination
from amqsidecar.plugin import Decider

_COUNTED_MAX = 1_000
"""Redeliveries that are counted at most: rules that allow more have no product to report."""


def delivery_findings(
    decider: Decider | None,
    origins: Collection[Destination],
    settings_of: Mapping[str, Mapping[str, Any]],
) -> Iterator[Finding]:
    """Yield rules that never redeliver, and how many deliveries a failing message gets.

    Args:
        decider: the given rules; None = a run decides by the broker's own settings.
        origins: destinations of which dead letters are known.
        settings_of: Artemis: address to merged live settings; empty = not known.
    """
    counts = {
        origin: delivery_attempts(settings_of[origin.address])
        for origin in origins
        if origin.address in settings_of
    }
    yield from _never_redelivered(decider, origins, counts)
    found: dict[tuple[int, int], list[str]] = {}
    for origin, attempts in counts.items():
        lives = attempts if decider is None else _deliveries_by(decider, origin)
        if attempts > 1 and lives > 1:
            found.setdefault((attempts, lives), []).append(str(origin))
    for (attempts, lives), names in found.items():
        yield new_finding(
            "deliveries_multiplied",
            listed(names),
            attempts=attempts,
            lives=lives,
            total=attempts * lives,
        )


def _never_redelivered(
    decider: Decider | None, origins: Collection[Destination], counts: Mapping[Destination, int]
) -> Iterator[Finding]:
    found: dict[str, list[str]] = {}
    for origin in origins:
        decision = None if decider is None else decider.decide(DeadLetter(origin), None)
        if decision is not None and not isinstance(decision, Redeliver | Redirect):
            found.setdefault(decision.rule, []).append(str(origin))
        elif decider is None and counts.get(origin) == 1:
            found.setdefault("the broker's max-delivery-attempts=1", []).append(str(origin))
    for rule, names in found.items():
        yield new_finding("never_redelivered", listed(names), rule=rule)


def _deliveries_by(decider: Decider, origin: Destination) -> int:
    """Return how often the rules have a message delivered, each time until the broker gives up.

    Returns:
        1 = the rules redeliver nothing; 0 = more than `_COUNTED_MAX`.
    """
    for count in range(_COUNTED_MAX):
        decision = decider.decide(DeadLetter(origin, count), None)
        if not isinstance(decision, Redeliver):
            return count + 1
    return 0

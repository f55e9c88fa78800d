"""Where in Artemis a message may wait for its delivery time, and where it may be lost meanwhile.

Each was measured on a broker (`deploy/reference/schedules.md`).
"""

from collections.abc import Mapping
from typing import Any

from amqsidecar.brokers.artemis.management import ArtemisQuestions
from amqsidecar.brokers.artemis.routes import expires_by_itself
from amqsidecar.clock import Clock
from amqsidecar.model.destination import Destination

_KEEP_S = 10.0
# Bound: maximum remembered destinations.
_ENTRIES_MAX = 10_000


class WaitingPlaces:
    """Asks the broker about destinations, and remembers the answers for some seconds."""

    def __init__(self, management: ArtemisQuestions, clock: Clock) -> None:
        self._management = management
        self._clock = clock
        self._problems: dict[Destination, tuple[float, str | None]] = {}

    def problem(self, destination: Destination) -> str | None:
        """Return why a message that waits there may be lost, as a sentence; None = it is kept."""
        now_s = self._clock.monotonic_s()
        known = self._problems.get(destination)
        if known is not None and now_s < known[0]:
            return known[1]
        if len(self._problems) >= _ENTRIES_MAX:
            self._problems.clear()
        found = self._find_problem(destination)
        self._problems[destination] = (now_s + _KEEP_S, found)
        return found

    def _find_problem(self, destination: Destination) -> str | None:
        address, _, queue = destination.name.partition("::")
        settings = self._management.settings([address])[0]
        rows = [
            row
            for row in self._management.queues(address=address)
            if row.is_anycast == destination.is_queue and queue in ("", row.name)
        ]
        purged = [row.name for row in rows if row.is_purged]
        if not rows and settings.get("defaultPurgeOnNoConsumers"):
            purged = [address]
        if purged:
            return (
                f"queue {purged[0]} loses its waiting messages when its last consumer leaves "
                "(purge-on-no-consumers)"
            )
        for row in rows:
            if not row.is_durable:
                return f"queue {row.name} is not durable: a restart loses its waiting messages"
        deletes = [row.is_auto_deleted for row in rows] or [settings.get("autoDeleteQueues", True)]
        if settings.get("autoDeleteQueuesMessageCount", 0) != 0 and any(deletes):
            return (
                f"the broker removes the queue of {address} when it has no consumer, with its "
                "waiting messages (auto-delete-queues-message-count is not 0)"
            )
        return _settings_problem(address, settings)


def _settings_problem(address: str, settings: Mapping[str, Any]) -> str | None:
    if expires_by_itself(settings):
        return (
            f"the address settings of {address} make messages expire, and the time runs while they "
            "wait"
        )
    is_limited = any(
        int(settings.get(name, -1)) >= 0 for name in ("maxSizeBytes", "maxSizeMessages")
    )
    if is_limited and settings.get("addressFullMessagePolicy") == "DROP":
        return f"address {address} drops messages when it is full (address-full-policy DROP)"
    return None

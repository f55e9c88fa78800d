"""Where Core sends go: queues that have to be there, and room at their addresses.

Quirk (Artemis 2.44): over Core the broker silently drops a message that no queue takes, such as a
message for a deleted queue by its fully qualified name, or an anycast message for a multicast
address. A client asks first, and creates missing queues.
"""

from collections.abc import Mapping

from amqsidecar.brokers.core.refusal import QUEUE_EXISTS, CoreRefused
from amqsidecar.brokers.core.session import CoreSession
from amqsidecar.formats.core import packets
from amqsidecar.model.destination import Destination

_KEEP_S = 5.0
_ENTRIES_MAX = 20_000
_ROOM_TIMEOUT_S = 2.0

_Answer = packets.AddressAnswer | packets.AddressAnswerV5


class CoreTargets:
    """Caches the broker's answers about the targets of sends."""

    def __init__(self, session: CoreSession) -> None:
        """Prepare; nothing is asked yet. The sends go over this session."""
        self._session = session
        self._until_s: dict[tuple[Destination, str], float] = {}

    def prepare(self, targets: Mapping[Destination, str]) -> dict[Destination, str]:
        """Make sure that each target has a queue; return why some have none.

        Args:
            targets: the name to send to for each destination.
        """
        now_s = self._session.wire.clock.monotonic_s()
        unknown = {
            one: target
            for one, target in targets.items()
            if now_s >= self._until_s.get((one, target), 0.0)
        }
        if not unknown:
            return {}
        if len(self._until_s) > _ENTRIES_MAX:
            self._until_s.clear()
        refused: dict[Destination, str] = {}
        names = [target.partition("::")[0] for target in unknown.values()]
        for (one, target), answer in zip(
            unknown.items(), self._session.ask_addresses(names), strict=True
        ):
            problem = str(answer) if isinstance(answer, CoreRefused) else None
            if not isinstance(answer, CoreRefused):
                problem = self._problem(one, target, answer)
            if problem is None:
                self._until_s[one, target] = now_s + _KEEP_S
            else:
                refused[one] = problem
        return refused

    def _problem(self, destination: Destination, target: str, answer: _Answer) -> str | None:
        address, _, queue = target.partition("::")
        if queue:
            is_there = self._is_there(target, answer)
            return None if is_there else f"queue {queue} of address {address} does not exist"
        if not destination.is_queue:
            return None if answer.queues else f"no queue is bound to address {address}"
        if address in answer.queues or (answer.queues and not answer.auto_create_queues):
            return None
        return self._make(address, answer)

    def _is_there(self, target: str, answer: _Answer) -> bool:
        queue = target.partition("::")[2]
        if not queue:
            return bool(answer.queues)
        # Why ask: the answer leaves out a queue whose address has wildcards.
        return queue in answer.queues or self._session.ask_queue(queue).exists

    def _make(self, address: str, answer: _Answer) -> str | None:
        if not answer.auto_create_queues:
            return f"queue {address} does not exist and auto-create-queues is off"
        if not answer.exists and not answer.auto_create_addresses:
            return f"address {address} does not exist and auto-create-addresses is off"
        try:
            _make_queue(self._session, address)
        except CoreRefused as refused:
            return f"queue {address} can't be made: {refused}"
        return None

    def forget(self, address: str) -> None:
        """Forget an address, since its queues changed."""
        for one in [one for one in self._until_s if one[0].address == address]:
            del self._until_s[one]

    def are_gone(self, targets: Mapping[Destination, str]) -> dict[Destination, str]:
        """Return why some targets have lost their queue.

        Call it when all sends of a transaction were put: messages to a queue that exists before and
        after were not dropped.
        """
        gone: dict[Destination, str] = {}
        names = [target.partition("::")[0] for target in targets.values()]
        for one, answer in zip(targets, self._session.ask_addresses(names), strict=True):
            if isinstance(answer, CoreRefused) or not self._is_there(targets[one], answer):
                self._until_s.pop((one, targets[one]), None)
                gone[one] = f"{one} was removed while messages were sent to it"
        return gone

    def full(self, sizes_bytes: Mapping[str, int]) -> dict[str, str]:
        """Wait until each address has room for this many bytes; return why some have none."""
        found = self._session.rooms.take_all(sizes_bytes, _ROOM_TIMEOUT_S)
        return {address: str(refused) for address, refused in found.items()}


def make_missing_queue(session: CoreSession, destination: Destination) -> None:
    """Create a missing queue where the broker auto-creates queues; its name is an address.

    Raises:
        CoreRefused: it can't be created.
    """
    answer = session.ask_queue(destination.name)
    if not answer.exists and answer.auto_create_queues:
        _make_queue(session, destination.name)


def _make_queue(session: CoreSession, address: str) -> None:
    try:
        session.create_queue(
            address, address=address, routing_type=packets.ANYCAST, auto_created=True
        )
    except CoreRefused as refused:
        # Why: another client may have made it meanwhile.
        if refused.kind != QUEUE_EXISTS:
            raise

"""Room at addresses: what the broker grants before a client sends.

The broker takes what is sent without asking, and the address then holds more than it may.
"""

from collections.abc import Callable, Mapping

from amqsidecar.brokers.core.refusal import ADDRESS_FULL, CoreRefused
from amqsidecar.formats.core import packets
from amqsidecar.formats.core.packet_format import CorePacket

_TIMEOUT_S = 60.0
# Bound: maximum addresses with a remembered room.
_ENTRIES_MAX = 20_000


class CoreRooms:
    """How many bytes one session may still send to each address."""

    def __init__(
        self,
        put: Callable[[CorePacket], None],
        run_until: Callable[[Callable[[], bool], float], bool],
    ) -> None:
        self._put = put
        self._run_until = run_until
        self._granted: dict[str, int] = {}
        self._asked: set[str] = set()
        self._full: set[str] = set()

    def granted(self, answer: packets.ProducerCredits) -> None:
        """Note that an address has room."""
        if answer.address not in self._asked:
            return
        self._asked.discard(answer.address)
        self._granted[answer.address] = self._granted.get(answer.address, 0) + answer.credits

    def refused(self, answer: packets.ProducerCreditsFail) -> None:
        """Note that an address is full and refuses messages."""
        if answer.address not in self._asked:
            return
        self._asked.discard(answer.address)
        self._full.add(answer.address)

    def take(self, address: str, size_bytes: int, timeout_s: float = _TIMEOUT_S) -> bool:
        """Wait until an address has room for these bytes, then reserve it; False = not in time.

        Raises:
            CoreRefused: the address is full and refuses messages (address-full-policy FAIL).
        """
        found = self.take_all({address: size_bytes}, timeout_s)
        if address in found and found[address].kind == ADDRESS_FULL:
            raise found[address]
        return address not in found

    def take_all(self, sizes_bytes: Mapping[str, int], timeout_s: float) -> dict[str, CoreRefused]:
        """Wait until each address has room for this many bytes, then reserve it.

        The same amount is requested ahead, so that the next call need not wait.

        Returns:
            Addresses without room, and why; their kind is `ADDRESS_FULL` where they refuse
            messages, and 0 where there was no room in time.
        """
        if len(self._granted) > _ENTRIES_MAX:
            self._granted.clear()
        missing = {one for one, size in sizes_bytes.items() if self._granted.get(one, 0) < size}
        self._full -= missing
        found: dict[str, CoreRefused] = {}

        def is_known() -> bool:
            for address in missing & self._full:
                found[address] = CoreRefused(ADDRESS_FULL, f"address {address} is full")
            self._full.difference_update(missing)
            missing.difference_update(found)
            for address in list(missing):
                if self._granted.get(address, 0) < sizes_bytes[address]:
                    self._ask(address, sizes_bytes[address])
                else:
                    missing.discard(address)
            return not missing

        self._run_until(is_known, timeout_s)
        for address in missing:
            words = f"address {address} is full: the broker gives it no room"
            found[address] = CoreRefused(0, words)
        self._use({one: size for one, size in sizes_bytes.items() if one not in found})
        return found

    def _use(self, sizes_bytes: Mapping[str, int]) -> None:
        for address, size in sizes_bytes.items():
            self._granted[address] -= size
            if self._granted[address] < size:
                self._ask(address, size)

    def _ask(self, address: str, size_bytes: int) -> None:
        if address not in self._asked:
            self._asked.add(address)
            self._put(packets.RequestCredits(size_bytes, address))

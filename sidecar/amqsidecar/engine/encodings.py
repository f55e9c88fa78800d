"""Chooses the encoding of the next cycle, and holds the deliveries of each.

A cycle's takes and sends are of one encoding, so that they fit into one broker transaction where a
link has several wires. A change costs the link some questions to the broker, so that each encoding
keeps its turn for a while.
"""

from collections.abc import Iterable, Sequence

from amqsidecar.broker import Delivery

TURN_S = 0.05
"""How long one encoding may go on while another one waits; a cycle that was begun ends later."""


class InHand:
    """Deliveries that were received and are in no cycle yet, in order."""

    def __init__(self) -> None:
        self._of: dict[str, list[Delivery]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    @property
    def encodings(self) -> list[str]:
        """The encodings of the messages in hand."""
        return [encoding for encoding, deliveries in self._of.items() if deliveries]

    def add(self, deliveries: Sequence[Delivery]) -> None:
        """Take the result of one call of `receive`; all of one encoding."""
        if deliveries:
            self._of.setdefault(deliveries[0].encoding, []).extend(deliveries)

    def first(self, encoding: str, at_most: int) -> Sequence[Delivery]:
        """Return the first deliveries of an encoding."""
        return self._of.get(encoding, [])[:at_most]

    def remove(self, deliveries: Sequence[Delivery]) -> None:
        """Remove deliveries of one encoding that are in hand; the others keep their order."""
        if deliveries:
            encoding, gone = deliveries[0].encoding, set(map(id, deliveries))
            self._of[encoding] = [one for one in self._of[encoding] if id(one) not in gone]

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Put the last removed deliveries back in front."""
        if deliveries:
            self._of[deliveries[0].encoding][:0] = deliveries


class EncodingTurns:
    """Gives the encodings of a link their turns."""

    def __init__(self, encodings: Sequence[str]) -> None:
        """Begin with the first encoding.

        Args:
            encodings: that the link can send; at least one.
        """
        self._last = dict.fromkeys(encodings, -1)
        self._current = encodings[0]
        self._number = 0
        self._ends_at_s = 0.0

    @property
    def is_only_one(self) -> bool:
        """Whether at most one encoding has work."""
        return len(self._last) == 1

    def next(self, with_work: Iterable[str], now_s: float) -> str:
        """Return the encoding of the next cycle.

        Args:
            with_work: encodings of due messages and of deliveries in hand; encodings that the link
                doesn't have are ignored.
            now_s: the monotonic time.
        """
        if self.is_only_one:
            return self._current
        waiting = [one for one in dict.fromkeys(with_work) if one in self._last]
        if not waiting or (self._current in waiting and now_s < self._ends_at_s):
            return self._current
        # Why the longest ago: none of three would wait for ever.
        chosen = min(waiting, key=lambda one: (self._last[one], waiting.index(one)))
        self._number += 1
        self._last[chosen] = self._number
        if chosen != self._current or now_s >= self._ends_at_s:
            self._current = chosen
            self._ends_at_s = now_s + TURN_S
        return chosen

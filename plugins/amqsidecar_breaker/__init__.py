"""Gate `breaker`: where too many re-sends come back, the others wait until a few get through.

For each destination: *closed*, everything passes while the share that comes back is counted. When
of at least `least` re-sends within `window_ms` the share `share` came back, it is *open* for
`wait_ms`: nothing passes. Then it is *half-open*: `probe` messages pass, the others wait. If the
share of the probe comes back, it is open for twice as long as before, `most_wait_ms` at most; if
for `verdict_ms` it doesn't, it is closed.
"""

from collections import deque
from dataclasses import dataclass

from amqsidecar.plugin import (
    Destination,
    DueMessage,
    EntriesPlugin,
    EntryFinder,
    GateEntries,
    GatePlugin,
    OptionReader,
    RuleSource,
    Wait,
)

CIRCUITS_MAX = 10_000
"""Maximum destinations remembered; beyond it, the one examined first is closed anew."""

PARTS = 10
"""Steps in which the window slides."""


@dataclass(frozen=True, slots=True)
class Breaking:
    """The options of one entry; see the module."""

    share: float
    least: int
    window_ms: int
    probe: int
    wait_ms: int
    most_wait_ms: int
    verdict_ms: int
    source: RuleSource

    def __str__(self) -> str:
        return (
            f"opens when {self.share:.0%} of at least {self.least} come back within "
            f"{self.window_ms} ms ({self.source})"
        )


class ReturnCounts:
    """How many were re-sent and how many came back in the last `window_ms`."""

    def __init__(self, window_ms: int) -> None:
        self._part_ms = max(1, window_ms // PARTS)
        self._parts: deque[tuple[int, list[int]]] = deque(maxlen=PARTS)

    def add(self, now_ms: int, *, resent: int = 0, returned: int = 0) -> None:
        """Count."""
        part = now_ms // self._part_ms
        if not self._parts or self._parts[-1][0] != part:
            self._parts.append((part, [0, 0]))
        counts = self._parts[-1][1]
        counts[0] += resent
        counts[1] += returned

    def sums(self, now_ms: int) -> tuple[int, int]:
        """Return both sums."""
        part = now_ms // self._part_ms
        # Why both ends: what was counted before the clock was set back is not of now.
        counted = [counts for number, counts in self._parts if part - PARTS < number <= part]
        return sum(resent for resent, _ in counted), sum(returned for _, returned in counted)

    def clear(self) -> None:
        """Forget all."""
        self._parts.clear()


class Circuit:
    """One destination."""

    def __init__(self, options: Breaking) -> None:
        self._options = options
        self._counts = ReturnCounts(options.window_ms)
        self._delay_ms = 0
        self._opened_ms = 0
        self._is_news = False
        self._probes = self._probes_back = 0
        self._probed_ms = 0
        self._has_arrived = False

    @property
    def is_closed(self) -> bool:
        """Whether everything passes."""
        return self._delay_ms == 0

    def wait_of(self, now_ms: int) -> Wait | None:
        """Return until when a message waits; None = it may pass."""
        if self.is_closed:
            return None
        if self._opened_ms <= now_ms < self._opened_ms + self._delay_ms:
            is_news, self._is_news = self._is_news, False
            reason = f"breaker: open, too many come back ({self._options.source})"
            return Wait(self._opened_ms + self._delay_ms, reason, is_news)
        if self._probes and not 0 <= now_ms - self._probed_ms < self._options.verdict_ms:
            if self._has_arrived:
                self._close()
                return None
            self._probes = 0
        if self._probes < self._options.probe:
            return None
        reason = f"breaker: a probe of {self._probes} is sent"
        until_ms = self._probed_ms + self._options.verdict_ms
        return Wait(until_ms, f"{reason} ({self._options.source})")

    def passed(self, now_ms: int) -> None:
        """Count it as a probe, if it is one."""
        if not self.is_closed:
            self._probes += 1
            self._probed_ms = now_ms

    def resent(self, now_ms: int) -> None:
        """Count it."""
        if self.is_closed:
            self._counts.add(now_ms, resent=1)
        elif self._probes:
            self._has_arrived = True

    def returned(self, now_ms: int) -> None:
        """Count a return, which may open the breaker."""
        options = self._options
        if self.is_closed:
            self._counts.add(now_ms, returned=1)
            resent, returned = self._counts.sums(now_ms)
            if resent >= options.least and returned >= options.share * resent:
                self._open(options.wait_ms, now_ms)
        elif self._probes:
            self._probes_back += 1
            if self._probes_back >= options.share * self._probes:
                self._open(min(2 * self._delay_ms, options.most_wait_ms), now_ms)

    def _open(self, delay_ms: int, now_ms: int) -> None:
        self._is_news = True
        self._delay_ms, self._opened_ms = delay_ms, now_ms
        self._forget_probes()

    def _close(self) -> None:
        self._delay_ms = 0
        self._counts.clear()
        self._forget_probes()

    def _forget_probes(self) -> None:
        self._probes = self._probes_back = 0
        self._has_arrived = False


class BreakerGate:
    """A circuit for each destination."""

    def __init__(self, options: GateEntries[Breaking]) -> None:
        self._finder = EntryFinder(options)
        self._circuits: dict[Destination, Circuit] = {}

    def describe(self, destination: Destination) -> str | None:
        """Return the options that act on a destination."""
        return self._finder.describe(destination)

    def wait_of(self, message: DueMessage, now_ms: int) -> Wait | None:
        """Return until when a message waits; None = it may pass."""
        circuit = self._circuit(message.destination)
        return None if circuit is None else circuit.wait_of(now_ms)

    def passed(self, message: DueMessage, now_ms: int) -> None:
        """Count it as a probe, if it is one."""
        circuit = self._circuit(message.destination)
        # Why not a person's: it may go while all others wait, and says nothing of how many may.
        if circuit is not None and not message.passes_gates:
            circuit.passed(now_ms)

    def resent(self, destination: Destination, now_ms: int) -> None:
        """Count it."""
        circuit = self._circuit(destination)
        if circuit is not None:
            circuit.resent(now_ms)

    def returned(self, destination: Destination, now_ms: int) -> None:
        """Count it; perhaps the circuit opens."""
        circuit = self._circuit(destination)
        if circuit is not None:
            circuit.returned(now_ms)

    def _circuit(self, destination: Destination) -> Circuit | None:
        circuit = self._circuits.get(destination)
        if circuit is not None:
            return circuit
        options = self._finder.find(destination)
        if options is None:
            return None
        if len(self._circuits) >= CIRCUITS_MAX:
            del self._circuits[next(iter(self._circuits))]
        return self._circuits.setdefault(destination, Circuit(options))


def _read(reader: OptionReader) -> Breaking:
    share = reader.number("share", 0.5)
    if not 0 < share <= 1:
        reader.fail("share", f"expected a number above 0, at most 1, found {share}")
    day_ms = 86_400_000
    wait_ms = reader.integer("wait_ms", 30_000, least=100, most=day_ms)
    return Breaking(
        share=share,
        least=reader.integer("least", 20, least=1, most=1_000_000),
        window_ms=reader.integer("window_ms", 60_000, least=1_000, most=day_ms),
        probe=reader.integer("probe", 5, least=1, most=1_000_000),
        wait_ms=wait_ms,
        most_wait_ms=reader.integer("most_wait_ms", max(600_000, wait_ms), least=wait_ms),
        verdict_ms=reader.integer("verdict_ms", 10_000, least=100, most=day_ms),
        source=reader.source,
    )


plugin: GatePlugin = EntriesPlugin("breaker", _read, BreakerGate)

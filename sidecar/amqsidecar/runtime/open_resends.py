"""Re-sends whose outcome is not known yet, and how many had which."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from amqsidecar.model.event import AnyEvent, Resent, Returned
from amqsidecar.model.operation import OutcomeKind
from amqsidecar.model.outcome import Observation, outcome_of

OPEN_MAX: Final = 20_000
"""Maximum re-sends followed one by one; the outcome of others is unknown at once."""

ReportOutcomes = Callable[[Mapping[tuple[str, OutcomeKind], int]], None]
"""Called with the number of re-sends by destination and outcome."""


class _Sent(NamedTuple):
    destination: str
    at_ms: int


class OpenResends:
    """Counts the outcome of each re-send once, when it is known."""

    def __init__(self, window_ms: int, report: ReportOutcomes) -> None:
        self._window_ms = window_ms
        self._report = report
        self._open: dict[str, _Sent] = {}

    def follow(self, events: Iterable[AnyEvent]) -> None:
        """Take note of re-sends and of those that came back, in the order of the events."""
        found = Counter[tuple[str, OutcomeKind]]()
        for event in events:
            if isinstance(event, Returned):
                sent = self._open.pop(event.redelivery_id, None)
                if sent is not None:
                    found[sent.destination, OutcomeKind.CAME_BACK] += 1
            elif isinstance(event, Resent):
                if len(self._open) < OPEN_MAX:
                    self._open[event.redelivery_id] = _Sent(event.destination, event.at_ms)
                else:
                    found[event.destination, OutcomeKind.UNKNOWN] += 1
        self._report_any(found)

    def judge(self, latest: Mapping[str, Observation], now_ms: int) -> None:
        """Give outcomes to those whose window has passed.

        Args:
            latest: what was last seen of each destination; all deaths that it counts were followed.
            now_ms: the time.
        """
        found = Counter[tuple[str, OutcomeKind]]()
        for redelivery_id, sent in list(self._open.items()):
            if now_ms < sent.at_ms + self._window_ms:
                continue
            seen = latest.get(sent.destination)
            outcome = outcome_of(
                sent.at_ms, None, [] if seen is None else [seen], now_ms, self._window_ms
            )
            if outcome.kind is not OutcomeKind.RESENT:
                del self._open[redelivery_id]
                found[sent.destination, outcome.kind] += 1
        self._report_any(found)

    def _report_any(self, found: Mapping[tuple[str, OutcomeKind], int]) -> None:
        if found:
            self._report(found)

"""Re-sends whose outcome is not known yet, how many had which, and which are proved."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from amqsidecar.model.event import AnyEvent, Explained, OutcomeProved, Resent, Returned
from amqsidecar.model.operation import OutcomeKind
from amqsidecar.model.outcome import Observation, lies_in_queue, outcome_of

OPEN_MAX: Final = 20_000
"""Maximum re-sends followed one by one; the outcome of others is unknown at once."""

QUEUED: Final = "queued"

ReportOutcomes = Callable[[Mapping[tuple[str, OutcomeKind], int]], None]
"""Called with the number of re-sends by destination and outcome."""


class OpenResends:
    """Counts the outcome of each re-send once, when it is known."""

    def __init__(self, window_ms: int, report: ReportOutcomes) -> None:
        self._window_ms = window_ms
        self._report = report
        self._open: dict[str, Resent] = {}
        self._consumers: dict[str, str] = {}

    def follow(self, events: Iterable[AnyEvent]) -> None:
        """Follow re-sends, notes and returns, in the order of the events."""
        found = Counter[tuple[str, OutcomeKind]]()
        for event in events:
            if isinstance(event, Returned):
                self._consumers.pop(event.redelivery_id, None)
                sent = self._open.pop(event.redelivery_id, None)
                if sent is not None:
                    found[sent.destination, OutcomeKind.CAME_BACK] += 1
            elif isinstance(event, Explained) and event.consumer:
                self._consumers[event.redelivery_id] = event.consumer
                if len(self._consumers) > OPEN_MAX:
                    del self._consumers[next(iter(self._consumers))]
            elif isinstance(event, Resent):
                if len(self._open) < OPEN_MAX:
                    self._open[event.redelivery_id] = event
                else:
                    found[event.destination, OutcomeKind.UNKNOWN] += 1
        self._report_any(found)

    def judge(self, latest: Mapping[str, Observation], now_ms: int) -> list[OutcomeProved]:
        """Give outcomes to re-sends whose window has passed; return the proved outcomes.

        Args:
            latest: each destination's last observation; all deaths that it counts were followed.
        """
        found = Counter[tuple[str, OutcomeKind]]()
        proved = []
        for sent in list(self._open.values()):
            if now_ms < sent.at_ms + self._window_ms:
                continue
            seen = latest.get(sent.destination)
            outcome = outcome_of(
                sent.at_ms, None, [] if seen is None else [seen], now_ms, self._window_ms
            )
            if outcome.kind is OutcomeKind.RESENT:
                continue
            del self._open[sent.redelivery_id]
            consumer = self._consumers.pop(sent.redelivery_id, "")
            found[sent.destination, outcome.kind] += 1
            is_queued = seen is not None and lies_in_queue(seen, sent.at_ms)
            if is_queued or outcome.kind is OutcomeKind.CONSUMED:
                proved.append(
                    OutcomeProved(
                        at_ms=now_ms,
                        id=sent.id,
                        redelivery_id=sent.redelivery_id,
                        destination=sent.destination,
                        outcome=QUEUED if is_queued else outcome.kind.value,
                        redelivery_count=sent.redelivery_count,
                        lateness_ms=sent.lateness_ms,
                        consumer=consumer,
                    )
                )
        self._report_any(found)
        return proved

    def _report_any(self, found: Mapping[tuple[str, OutcomeKind], int]) -> None:
        if found:
            self._report(found)

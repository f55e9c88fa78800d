"""News of the messages that stay in the dead-letter queues."""

from collections.abc import Callable

import structlog

from amqsidecar.model.left_behind import REFUSED, LeftBehind

log = structlog.get_logger("amqsidecar.service")


class LeftBehindNews:
    """Reports changes of `left_behind`, over all links of a process."""

    def __init__(self, report: Callable[[tuple[LeftBehind, ...]], None]) -> None:
        """Make it; `report` is called before the log is written."""
        self._report = report
        self._told: dict[str, tuple[LeftBehind, ...]] = {}

    def report(self, items: tuple[LeftBehind, ...], found_by: str = "") -> None:
        """Report these items, unless they are those of the last call of the same finder."""
        if items == self._told.get(found_by, ()):
            return
        self._told = {**self._told, found_by: items}
        found = {(one.queue, one.reason): one for told in self._told.values() for one in told}
        self._report(tuple(found.values()))
        for item in items:
            if item.reason == REFUSED:
                continue
            log.warning(
                "left_behind",
                queue=str(item.queue),
                count=item.count,
                at_least=item.at_least,
                reason=item.reason,
                meaning=item.meaning,
            )

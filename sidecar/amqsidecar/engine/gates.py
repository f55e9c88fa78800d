"""Gates that due redeliveries pass or wait at: pace, windows, and others of plugins."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from amqsidecar.engine.judging.judge import LATEST_DUE_MS
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.event import AnyEvent, DestinationBlocked, Resent, Returned
from amqsidecar.model.schedule import DueRow, GroupPlace
from amqsidecar.plugin import DueMessage, Gate, GroupGate, Wait
from amqsidecar.store import RowDelays

FAULT_WAIT_MS = 60_000
"""How long a message waits whose gate fails or gives an answer that can't be used."""

REASON_MAX = 500
"""Maximum characters of a reason; each message stores its own copy."""

ReportWaits = Callable[[str, int], None]
"""Takes the name of a gate and the number of messages that it held back."""

ReportFault = Callable[[str, Exception], None]
"""Takes the name of a gate and the error that it raised when notified."""


GatesAt = Callable[[Destination], tuple[str, ...]]
"""Returns a text for each gate that redeliveries to a destination pass."""


def no_gates(_destination: Destination) -> tuple[str, ...]:
    """Return none."""
    return ()


def described(gates: Mapping[str, Gate]) -> GatesAt:
    """Return a function that describes gates; no other thread may use them meanwhile."""

    def gates_at(destination: Destination) -> tuple[str, ...]:
        told: list[str] = []
        for name, gate in gates.items():
            try:
                what = gate.describe(destination)
            except Exception as error:  # noqa: BLE001 - a stranger's gate may raise anything
                what = f"fails: {type(error).__name__}: {error}"
            if what is not None:
                told.append(f"{name}: {what}")
        return tuple(told)

    return gates_at if gates else no_gates


def _ignore_waits(_name: str, _count: int) -> None:
    """Do nothing."""


def _ignore_fault(_name: str, _error: Exception) -> None:
    """Do nothing."""


class Gates:
    """Asks gates in order; the first one that holds a message back decides.

    Only redeliveries pass gates; messages to a final dead-letter queue don't. A person's retries
    skip them; they are notified.

    Args:
        gates: by the name that operators know, in the order in which they are asked.
        report_waits: called after each cycle.
        report_fault: called when a gate raises on a notification, once for each gate.
    """

    def __init__(
        self,
        gates: Mapping[str, Gate],
        report_waits: ReportWaits = _ignore_waits,
        report_fault: ReportFault = _ignore_fault,
    ) -> None:
        self._gates = gates
        self._group_gates = {
            name: gate for name, gate in gates.items() if isinstance(gate, GroupGate)
        }
        self._report_waits = report_waits
        self._report_fault = report_fault
        self._faulty: set[str] = set()

    @property
    def are_none(self) -> bool:
        """Whether every message passes."""
        return not self._gates

    def choose(
        self, tx: RowDelays, rows: Sequence[DueRow], now_ms: int, events: list[AnyEvent]
    ) -> list[DueRow]:
        """Return the rows that pass; postpone the others, in one statement per time and reason.

        Args:
            tx: its writes count only with the rest of the cycle.
            rows: that would be sent now.
            events: receives new events.
        """
        if not self._gates:
            return list(rows)
        passing: list[DueRow] = []
        waiting: dict[tuple[int, str, str], list[int]] = {}
        counts: dict[str, int] = {}
        places = self._places(tx, rows)
        for row in rows:
            stopped = None if row.is_final else self._stop(row, now_ms, places.get(row.id))
            if stopped is None:
                passing.append(row)
                continue
            name, wait = stopped
            counts[name] = counts.get(name, 0) + 1
            waiting.setdefault((wait.until_ms, wait.reason, name), []).append(row.id)
            if wait.is_news:
                events.append(
                    DestinationBlocked(
                        at_ms=now_ms,
                        destination=row.destination,
                        reason=wait.reason,
                        retry_at_ms=wait.until_ms,
                        gate=name,
                    )
                )
        for (until_ms, reason, name), ids in waiting.items():
            tx.postpone(ids, until_ms, reason, name)
        for name, count in counts.items():
            self._report_waits(name, count)
        return passing

    def observe(
        self, events: Sequence[AnyEvent], sent: Sequence[DueRow] = (), now_ms: int = 0
    ) -> None:
        """Notify all gates of events.

        Args:
            events: since the last call.
            sent: rows that the broker has now.
            now_ms: the time, which may be long after that of the events.
        """
        if not self._gates:
            return
        for event in events:
            # Why by hand: a cycle has thousands of other events.
            if isinstance(event, Resent):
                self._notify("resent", parse_destination(event.destination), event.at_ms)
            elif isinstance(event, Returned) and event.origin is not None:
                self._notify("returned", parse_destination(event.origin), event.at_ms)
        if not self._group_gates:
            return
        for row in sent:
            if row.message_group is not None and not row.is_final:
                message = _message(row, None)
                for name, gate in self._group_gates.items():
                    self._call(name, gate.arrived, message, now_ms)

    def _places(self, tx: RowDelays, rows: Sequence[DueRow]) -> Mapping[int, GroupPlace]:
        """Return where rows stand in their groups, where a gate wants to know; asks once."""
        if not self._group_gates:
            return {}
        ids = [
            row.id
            for row in rows
            if row.message_group is not None and not row.is_final and not row.passes_gates
        ]
        return tx.group_places(ids) if ids else {}

    def _stop(
        self, row: DueRow, now_ms: int, place: GroupPlace | None = None
    ) -> tuple[str, Wait] | None:
        message = _message(row, place)
        if row.passes_gates:
            self._notify("passed", message, now_ms)
            return None
        for name, gate in self._gates.items():
            wait = _asked(name, gate.wait_of, message, now_ms)
            if wait is not None:
                return name, wait
        for name, gate in self._gates.items():
            wait = _asked(name, gate.passed, message, now_ms)
            if wait is not None:
                return name, wait
        return None

    def _notify(self, what: str, about: Destination | DueMessage, at_ms: int) -> None:
        for name, gate in self._gates.items():
            self._call(name, getattr(gate, what), about, at_ms)

    def _call(self, name: str, notify: Callable[..., None], *arguments: object) -> None:
        """Notify a gate; an error of a plugin's gate does not undo the event."""
        try:
            notify(*arguments)
        except Exception as error:  # noqa: BLE001 - a stranger's gate may raise anything
            if name not in self._faulty:
                self._faulty.add(name)
                self._report_fault(name, error)


NO_GATES: Final = Gates({})
"""Every message passes."""


def _message(row: DueRow, place: GroupPlace | None) -> DueMessage:
    return DueMessage(
        destination=parse_destination(row.destination),
        due_at_ms=row.due_at_ms,
        redelivery_count=row.redelivery_count,
        passes_gates=row.passes_gates,
        redelivery_id=row.redelivery_id,
        group=row.message_group,
        place=place,
    )


def _asked(
    name: str, ask: Callable[[DueMessage, int], Wait | None], message: DueMessage, now_ms: int
) -> Wait | None:
    """Return a gate's answer; one that fails or makes no sense delays messages, and loses none."""
    try:
        wait = ask(message, now_ms)
        return None if wait is None else _usable(wait, now_ms)
    except Exception as error:  # noqa: BLE001 - a stranger's gate may raise anything
        reason = f"the gate {name} fails: {type(error).__name__}: {error}"
        return _usable(Wait(0, reason), now_ms)


def _usable(wait: Wait, now_ms: int) -> Wait:
    """Return a wait that ends after now, by a clock that stores can keep."""
    until_ms = wait.until_ms
    if type(until_ms) is not int or until_ms <= now_ms:
        until_ms = now_ms + FAULT_WAIT_MS
    return Wait(min(until_ms, LATEST_DUE_MS), str(wait.reason)[:REASON_MAX], wait.is_news)

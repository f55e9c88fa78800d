"""Decides which due rows are sent now, wait for their destination, or are parked."""

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import islice

from amqsidecar.broker import BrokerDescription, Resend
from amqsidecar.clock import Clock
from amqsidecar.engine.blockage import Blockages
from amqsidecar.engine.loss import Losses
from amqsidecar.engine.send_gate import GateAction, GateAnswer, SendGate
from amqsidecar.model.destination import parse_destination
from amqsidecar.model.event import AnyEvent, DestinationBlocked, Parked, about_row
from amqsidecar.model.schedule import DueRow, TakenRow
from amqsidecar.store import RowDelays

FOREIGN_WAIT_MS = 60_000
"""How long a row waits that was taken over another kind of link than the present one."""

SHORTEST_PROBE_WAIT_MS = 250
"""How long the other messages of a destination wait at least while one, or a few, are sent."""

PROBES_MAX = 100
"""Maximum blocked destinations tried in one cycle."""

PROBES_S_MAX = 5.0
"""Maximum time for these trials in one cycle: the link is not served meanwhile."""

PROBE_TURN_MS = 1_000
"""How long the messages of the others wait for a later cycle."""

FEW_AT_ONCE = "only a few are sent there at once because more blocked the connection"

NextTry = tuple[int, str]
"""Until when a destination can't take rows, and why."""


class Dispatch:
    """Chooses among due rows; asks the gate about destinations, once per destination and cycle."""

    def __init__(
        self,
        description: BrokerDescription,
        gate: SendGate,
        blockages: Blockages,
        losses: Losses,
        clock: Clock,
    ) -> None:
        self._encodings = description.encodings
        self._gate = gate
        self._blockages = blockages
        self._losses = losses
        self._clock = clock
        self._probes_until_s = 0.0
        self._answers: dict[tuple[str, bool], GateAnswer] = {}

    def choose(
        self,
        tx: RowDelays,
        due: list[DueRow],
        encoding: str,
        now_ms: int,
        events: list[AnyEvent],
        *,
        hides_others: bool,
    ) -> list[DueRow]:
        """Return the rows to send now; postpone or park the others in the transaction.

        Rows of another encoding of the link stay due, and go with a later cycle.

        Args:
            tx: its writes count only with the rest of the cycle.
            due: rows whose time has come; sorted again where one may have ended a link.
            events: receives the events of the others.
            hides_others: more rows may be due than these.
        """
        encodings = self._encodings
        if len(encodings) > 1:
            due = [row for row in due if row.encoding == encoding or row.encoding not in encodings]
        if self._losses.has_suspects:
            # Why last: another one shows whether the destination takes anything.
            due.sort(key=lambda row: self._losses.is_suspect(row.id))
        return self._alone(self._sort(tx, due, now_ms, events, hides_others=hides_others))

    def _sort(
        self,
        tx: RowDelays,
        due: Sequence[DueRow],
        now_ms: int,
        events: list[AnyEvent],
        *,
        hides_others: bool,
    ) -> list[DueRow]:
        sendable: list[DueRow] = []
        postponed: dict[NextTry, list[int]] = {}
        parking: dict[str, list[int]] = {}
        fates: dict[tuple[str, str, bool], NextTry | str | None] = {}
        probed: set[str] = set()
        sent: Counter[str] = Counter()
        self._answers = {}
        self._probes_until_s = self._clock.monotonic_s() + PROBES_S_MAX
        in_turn = self._in_turn(due, now_ms)
        self._ask_ahead(due, in_turn)
        for row in due:
            target = (row.destination, row.encoding, row.is_final)
            if target not in fates:
                fates[target] = self._fate_of(row, now_ms, events, in_turn)
            wait = self._guilt_reason(row) or fates[target]
            if isinstance(wait, str):
                self._park(row, wait, now_ms, parking, events)
                continue
            blockage = self._blockages.get(row.destination)
            if wait is None and blockage is not None:
                if row.destination in probed:
                    wait_ms = max(blockage.delay_ms // 2, SHORTEST_PROBE_WAIT_MS)
                    wait = (now_ms + wait_ms, blockage.reason)
                probed.add(row.destination)
            if wait is not None:
                postponed.setdefault(wait, []).append(row.id)
                continue
            most = self._losses.most_to(row.destination)
            if most is None or sent[row.destination] < most:
                sent[row.destination] += 1
                sendable.append(row)
            elif hides_others:
                wait = (now_ms + SHORTEST_PROBE_WAIT_MS, FEW_AT_ONCE)
                postponed.setdefault(wait, []).append(row.id)
        for (due_at_ms, reason), ids in postponed.items():
            tx.postpone(ids, due_at_ms, reason)
        for reason, ids in parking.items():
            tx.park(ids, reason)
        return sendable

    def _in_turn(self, due: Sequence[DueRow], now_ms: int) -> set[str]:
        """Return the destinations that may be tried in this cycle.

        Why not all: questions about thousands of blocked destinations would delay the open ones.
        """
        names = dict.fromkeys(row.destination for row in due)
        blocked = {name: self._blockages.get(name) for name in names}
        probes = (name for name, one in blocked.items() if one is not None and one.is_over(now_ms))
        is_open = {name for name, one in blocked.items() if one is None}
        return is_open | set(islice(probes, PROBES_MAX))

    def _ask_ahead(self, due: Sequence[DueRow], names: Collection[str]) -> None:
        self._gate.ask_ahead(
            dict.fromkeys(
                row.destination
                for row in due
                if row.destination in names and row.encoding in self._encodings
            )
        )

    def _guilt_reason(self, row: DueRow) -> str | None:
        if self._losses.is_guilty(row.id):
            return "the connection ended each time it was sent, and stays up without it"
        return None

    def _fate_of(
        self, row: DueRow, now_ms: int, events: list[AnyEvent], in_turn: Collection[str]
    ) -> NextTry | str | None:
        """Return until when rows like this one wait, or why they are parked; None = neither."""
        # Why first: it needs no broker, no other wire, and no turn.
        if not row.is_final:
            forbidden = self._gate.forbid(parse_destination(row.destination))
            if forbidden is not None:
                return str(forbidden)
        wait = self._wait_of(row, now_ms, events, in_turn)
        answer = self._answers.get((row.destination, row.is_final))
        if answer is not None and answer.action is GateAction.PARK:
            return str(answer)
        return wait

    def _alone(self, sendable: list[DueRow]) -> list[DueRow]:
        """Return all of these rows, or only the first one that may end the link."""
        for row in sendable:
            blockage = self._blockages.get(row.destination)
            if self._losses.is_suspect(row.id) or (blockage is not None and blockage.ends_links):
                return [row]
        return sendable

    def _wait_of(
        self, row: DueRow, now_ms: int, events: list[AnyEvent], in_turn: Collection[str]
    ) -> NextTry | None:
        """Return until when rows like this one can't be sent and why; None = they can."""
        if row.encoding not in self._encodings:
            # Why no blockage: the destination itself takes messages of this link.
            reason = (
                f"it was taken as {row.encoding} and can't be sent over a link for "
                f"{', '.join(self._encodings)}: run with a broker.url of "
                f"{row.encoding.partition('/')[0]}:// again until it is sent"
            )
            until_ms = now_ms + FOREIGN_WAIT_MS
            events.append(
                DestinationBlocked(
                    at_ms=now_ms,
                    destination=row.destination,
                    reason=reason,
                    retry_at_ms=until_ms,
                )
            )
            return until_ms, reason
        blockage = self._blockages.get(row.destination)
        if blockage is not None and not blockage.is_over(now_ms):
            return blockage.until_ms, blockage.reason
        if blockage is not None and not (
            row.destination in in_turn and self._clock.monotonic_s() < self._probes_until_s
        ):
            return now_ms + PROBE_TURN_MS, blockage.reason
        answer = self._gate.ask(
            parse_destination(row.destination), is_final=row.is_final, makes=row.is_final
        )
        self._answers[row.destination, row.is_final] = answer
        if answer.action is not GateAction.WAIT:
            return None
        reason = str(answer)
        return self._blockages.report(row.destination, reason, now_ms, events), reason

    def admit(
        self, tx: RowDelays, rows: Sequence[DueRow], now_ms: int, events: list[AnyEvent]
    ) -> tuple[list[DueRow], list[Resend]]:
        """Return the rows of the last `choose` that pass the gate, and their re-sends.

        Args:
            tx: parks the others; counts only with the rest of the cycle.
            rows: to send now.
            events: receives the events of the others.
        """
        passing: list[DueRow] = []
        resends: list[Resend] = []
        parking: dict[str, list[int]] = {}
        for row in rows:
            found = self._gate.admit(row, self._answers[row.destination, row.is_final])
            if isinstance(found, Resend):
                passing.append(row)
                resends.append(found)
            else:
                self._park(row, str(found), now_ms, parking, events)
        for reason, ids in parking.items():
            tx.park(ids, reason)
        return passing, resends

    def _park(
        self,
        row: DueRow,
        reason: str,
        now_ms: int,
        parking: dict[str, list[int]],
        events: list[AnyEvent],
    ) -> None:
        parking.setdefault(reason, []).append(row.id)
        events.append(parked(row, reason, now_ms))
        self._losses.forget([row.id])


def parked(row: DueRow | TakenRow, reason: str, now_ms: int) -> Parked:
    """Return the event of a row that waits for a person from now on."""
    return Parked(**about_row(row, now_ms, row.destination), reason=reason)

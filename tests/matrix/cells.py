"""The cells of the matrix: what became of each subject, in the words of the record."""

from collections.abc import Iterable

from amqsidecar.diagnosis import fidelity
from amqsidecar.diagnosis.fidelity import ADDED
from matrix.explained import explain
from matrix.play import Change, Outcome, Pair, Played
from matrix.record import Cell
from matrix.specimens import COMMON_HEADERS, fields_of


def cells_of(broker: str, played: Played) -> tuple[dict[Cell, fidelity.CellOutcome], list[str]]:
    """Return the outcome of each cell, and the differences that nothing explains."""
    cells: dict[Cell, fidelity.CellOutcome] = {}
    unexplained: list[str] = []
    for pair, outcomes in played.outcomes.items():
        for subject, outcome in _by_subject(outcomes.values()):
            cell = Cell(broker, played.wire.name, *pair, subject)
            if isinstance(outcome, str):
                cells[cell] = outcome
                continue
            ids = [(change, explain(cell, change)) for change in outcome]
            unexplained += [
                f"{' | '.join(cell)}: {change}: {change.first!r} -> {change.second!r}"
                for change, known in ids
                if known is None
            ]
            cells[cell] = tuple(sorted({known for _, known in ids if known is not None}))
    return cells, unexplained


def _by_subject(
    outcomes: Iterable[Outcome],
) -> Iterable[tuple[str, str | list[Change]]]:
    """Yield what became of each subject: REFUSED, NOT_SHOWN, or what differs."""
    outcomes = list(outcomes)
    rest: dict[str, list[Change]] = {name: [] for name in COMMON_HEADERS}
    added: list[Change] = []
    seen = 0
    for outcome in outcomes:
        own = fields_of(outcome.specimen.subject)
        state = _state(outcome)
        if isinstance(state, str):
            yield outcome.specimen.subject, state
            continue
        seen += 1
        mine = [one for one in state if one.field in own]
        yield outcome.specimen.subject, mine
        for one in state:
            if one in mine:
                continue
            rest.get(one.field, added).append(one)
    if seen == 0:
        state = fidelity.REFUSED if any(map(_is_refused, outcomes)) else fidelity.NOT_SHOWN
        if outcomes:
            yield from ((f"header {name}", state) for name in COMMON_HEADERS)
        return
    for name, changes in rest.items():
        yield f"header {name}", changes
    yield ADDED, added


def _state(outcome: Outcome) -> str | list[Change]:
    if _is_refused(outcome):
        return fidelity.REFUSED
    if outcome.first is None:
        return fidelity.NOT_SHOWN
    if outcome.second is None:
        return [Change(fields_of(outcome.specimen.subject)[0], "not shown again")]
    changes = outcome.changes()
    if any(str(one) == "property testId: removed" for one in changes):
        return [Change(fields_of(outcome.specimen.subject)[0], "all of it is something else")]
    return changes


def _is_refused(outcome: Outcome) -> bool:
    return outcome.place == "dead-letter queue" and not outcome.was_resent


def pairs_of(clients: Iterable[str]) -> list[Pair]:
    """Return every producer with every consumer."""
    clients = list(clients)
    return [(producer, consumer) for producer in clients for consumer in clients]

"""Prints what each wire carries, for operators: `python -m amqsidecar.diagnosis.fidelity_page`."""

import sys
from collections.abc import Iterable

from amqsidecar.diagnosis.differences import DIFFERENCES
from amqsidecar.diagnosis.fidelity import (
    BROKERS,
    CLIENTS,
    NOT_SHOWN,
    REFUSED,
    WIRES,
    Row,
    Summary,
    left_words,
    listed,
    recorded,
    summarised,
)
from amqsidecar.diagnosis.marks import MARKS

_INTRODUCTION = """# What each wire carries

Printed by `python -m amqsidecar.diagnosis.fidelity_page` out of what `make matrix` has recorded on
real brokers. A message of each body type, with each kind of property and header, is sent by each
client, seen once by each client, failed, taken and sent again by the sidecar, and seen by the same
client again. What that client reports is compared field by field. `make test` does it again.

- **whole**: nothing that the application wrote is different, for any producer and consumer.
- **altered**: some client sees one of the differences listed below.
- **refused**: it is not taken. The dead letter stays in its queue, whole, and is counted by
  `amqsidecar_left_behind`.
"""


def fidelity_markdown() -> str:
    """Return the page."""
    rows = recorded()
    lines = [
        _INTRODUCTION,
        "| broker | wire | whole | altered | refused |",
        "|---|---|---|---|---|",
    ]
    for wire, wire_name in WIRES.items():
        for brokers, found in _by_summary(wire):
            lines.append(
                f"| {', '.join(brokers)} | {wire_name} | {_whole(found)} | {_altered(found)} "
                f"| {left_words(found) or '-'} |"
            )
    lines += ["", "## Differences", "", "| | alters | what and why |", "|---|---|---|"]
    lines += [
        f"| {name} | {'yes' if one.alters else 'no'} | {one.sentence} |"
        for name, one in DIFFERENCES.items()
    ]
    lines += [
        *(
            "",
            "## Marks",
            "",
            "Whether what a redelivery adds or takes off acts on it or a copy:",
            "",
        ),
        *("| names | may change | why it does not, or what is left | test |", "|---|---|---|---|"),
    ]
    lines += [
        f"| {one.names} | {one.may_change} | {one.why_safe} | `tests/{one.test}` |" for one in MARKS
    ]
    for wire, wire_name in WIRES.items():
        lines += _details(wire_name, [row for row in rows if row.wire == wire])
    return "\n".join(lines) + "\n"


def _by_summary(wire: str) -> Iterable[tuple[list[str], Summary]]:
    found: list[tuple[list[str], Summary]] = []
    for broker, (_, name) in BROKERS.items():
        one = summarised(broker, wire)
        if not (one.whole or one.altered or one.refused_of):
            continue
        for names, known in found:
            if known == one:
                names.append(name)
                break
        else:
            found.append(([name], one))
    return found


def _whole(found: Summary) -> str:
    if not found.altered and not found.refused:
        return "everything of the others" if found.refused_of else "everything"
    spoilt = len(found.refused) + sum(map(len, found.altered.values()))
    return "all else" if len(found.whole) > spoilt else listed(found.whole) or "nothing"


def _altered(found: Summary) -> str:
    return "; ".join(f"{listed(of)} ({name})" for name, of in found.altered.items()) or "-"


def _details(wire_name: str, rows: list[Row]) -> list[str]:
    if not rows:
        return []
    lines = [
        *("", f"## {wire_name}", ""),
        "| broker | producer | consumer | what | outcome |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        among = {
            subject
            for other in rows
            if set(row.producers) & set(other.producers)
            for subject in other.subjects
        }
        outcome = {
            REFUSED: "refused before it is taken",
            NOT_SHOWN: "the broker can't show it to this client, with or without us",
        }.get(row.outcome if isinstance(row.outcome, str) else "")
        if outcome is None:
            outcome = f"as documented: {', '.join(row.outcome)}" if row.outcome else "identical"
        lines.append(
            f"| {', '.join(BROKERS[name][1] for name in row.brokers)} "
            f"| {', '.join(CLIENTS[name] for name in row.producers)} "
            f"| {', '.join(CLIENTS[name] for name in row.consumers)} "
            f"| {listed(row.subjects, among)} | {outcome} |"
        )
    return lines


def main() -> None:
    """Print the page."""
    sys.stdout.write(fidelity_markdown())


if __name__ == "__main__":
    main()

"""Prints the fidelity of each wire: `python deploy/site/fidelity_page.py`.

`--matrix` prints the recorded outcome of each field in place of the summary.
"""

import argparse
import sys
from collections.abc import Iterable

from marks import MARKS

from amqsidecar.diagnosis.fidelity import (
    BROKERS,
    CLIENTS,
    DIFFERENCES,
    NOT_SHOWN,
    REFUSED,
    WIRES,
    FidelityRow,
    Summary,
    left_words,
    listed,
    recorded,
    summarised,
)

_INTRODUCTION = """# What each wire carries

A redelivered message is the message that died, except for the differences on this page. Messages
that a wire would damage further are not taken, unless `intake.allow_lossy` permits it.

## Test

`make matrix`, on real brokers; `make test` repeats it and compares. Each client sends messages of
each body type, property and header, reads each one, fails, and reads the redelivery; the two
readings are compared field by field. `python deploy/site/fidelity_page.py` prints this
page from the record, and with `--matrix` the outcome of each field, which the site has, too.

## Measured

- **whole**: no field that the application wrote differs, for any producer and consumer.
- **altered**: some client sees one of the [differences](#differences).
- **refused**: the dead letter is not taken. It stays whole in its queue and is counted by
  `amqsidecar_left_behind`. With `intake.allow_lossy`: [wires.md](../reference/wires.md).
"""

_ORIGINS = """
## What else acts on a redelivery

Composites, mirrors, diverts, other queues of the address and special queues:
[origins.md](../reference/origins.md) has the result of each.
"""

_MATRIX_INTRODUCTION = """# Each field over each wire

Made of the record of `make matrix`. Summary, method and the meaning of the differences:
[evidence](README.md#fidelity).
"""


def fidelity_markdown() -> str:
    """Return the summary page."""
    lines = [
        _INTRODUCTION,
        "| broker | wire | whole | altered | refused |",
        "|---|---|---|---|---|",
    ]
    for wire, wire_name in WIRES.items():
        if "allow_lossy" in wire_name:
            continue
        for brokers, found in _by_summary(wire):
            lines.append(
                f"| {', '.join(brokers)} | {wire_name} | {_whole(found)} | {_altered(found)} "
                f"| {left_words(found) or '-'} |"
            )
    lines += [_ORIGINS, "## Differences", ""]
    lines += ["| | alters | what and why |", "|---|---|---|"]
    lines += [
        f"| {name} | {'yes' if one.alters else 'no'} | {one.sentence} |"
        for name, one in DIFFERENCES.items()
    ]
    lines += [
        *(
            "",
            "## Marks",
            "",
            "Names that a redelivery adds or removes, and their effect on it or on a copy:",
            "",
        ),
        *("| names | may change | why it does not, or what is left | test |", "|---|---|---|---|"),
    ]
    lines += [
        f"| {one.names} | {one.may_change} | {one.why_safe} | `tests/{one.test}` |" for one in MARKS
    ]
    return "\n".join(lines) + "\n"


def matrix_markdown() -> str:
    """Return the page with the outcome of each field, by wire and clients."""
    lines = [_MATRIX_INTRODUCTION.rstrip("\n")]
    for wire, wire_name in WIRES.items():
        lines += _details(wire_name, [row for row in recorded() if row.wire == wire])
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


def _details(wire_name: str, rows: list[FidelityRow]) -> list[str]:
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
    """Print a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matrix", action="store_true", help="print the outcome of each field")
    page = matrix_markdown() if parser.parse_args().matrix else fidelity_markdown()
    sys.stdout.write(page)


if __name__ == "__main__":
    main()

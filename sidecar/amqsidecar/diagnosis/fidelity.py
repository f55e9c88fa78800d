"""Messages that each wire carries whole, alters or refuses: recorded from runs on real brokers.

`fidelity.json` is written by `make matrix` and compared with real brokers by `make test`. Printed
for operators by `deploy/site/fidelity_page.py`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

from amqsidecar.broker import BrokerKind


class Difference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One difference.

    Attributes:
        alters: whether an application loses something that it wrote; False = a mark of the
            redelivery, or of a conversion, beside what it wrote.
        sentence: the difference and its reason.
    """

    alters: bool
    sentence: str


DIFFERENCES: Mapping[str, Difference] = msgspec.toml.decode(
    files("amqsidecar.diagnosis").joinpath("differences.toml").read_bytes(),
    type=dict[str, Difference],
)
"""All differences that a redelivered message may have from the one that died.

A run of the matrix fails at a difference that is not here, and at an entry that nothing needs.
"""


REFUSED = "refused"
"""The dead letter stays in its queue, whole, and is counted there."""
NOT_SHOWN = "not shown"
"""The broker itself can't show this message to this client, with or without a sidecar."""

NEARLY_ALL = 0.75
"""From which share on a producer's messages count as refused as a whole, in a summary."""
ADDED = "added properties"
"""The subject of properties that no producer has sent."""

BROKERS: Mapping[str, tuple[BrokerKind, str]] = {
    "classic_5": (BrokerKind.CLASSIC, "Classic 5.18.3"),
    "classic_6": (BrokerKind.CLASSIC, "Classic 6.3.1"),
    "artemis": (BrokerKind.ARTEMIS, "Artemis 2.44.0"),
}
WIRES: Mapping[str, str] = {
    "openwire": "OpenWire",
    "artemis": "Core and AMQP (`artemis://`)",
    "amqp": "AMQP",
    "amqp-jms": "AMQP, `transport.transformer=jms`",
    "stomp": "STOMP",
    "stomp-lossy": "STOMP with all of `intake.allow_lossy`, for messages that it else refuses",
}
CLIENTS: Mapping[str, str] = {
    "openwire": "OpenWire JMS",
    "core": "Core JMS",
    "qpid": "qpid-jms",
    "qpid-jms": "qpid-jms (`transformer=jms`)",
    "stomp": "STOMP",
}

CellOutcome = str | tuple[str, ...]
"""REFUSED, NOT_SHOWN, or the ids of the differences; () = identical."""


class FidelityRow(NamedTuple):
    """Cells of one outcome: the product of its columns."""

    brokers: tuple[str, ...]
    wire: str
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    subjects: tuple[str, ...]
    outcome: CellOutcome


@lru_cache(maxsize=1)
def recorded() -> tuple[FidelityRow, ...]:
    """Return the recorded matrix."""
    text = files("amqsidecar.diagnosis").joinpath("fidelity.json").read_text(encoding="utf-8")
    return tuple(
        FidelityRow(
            tuple(brokers),
            wire,
            tuple(producers),
            tuple(consumers),
            tuple(subjects),
            outcome if isinstance(outcome, str) else tuple(outcome),
        )
        for brokers, wire, producers, consumers, subjects, outcome in json.loads(text)
    )


class Summary(NamedTuple):
    """The fidelity of one wire of one broker, over all clients.

    Attributes:
        whole: subjects that come back as they were for every client; marks of ours aside.
        altered: subjects by id of the difference that some client sees.
        refused: subjects that stay in the dead-letter queue, for some other producer.
        refused_by: these producers, where not all others are; else none.
        refused_of: producers whose messages are nearly all refused.
    """

    whole: tuple[str, ...]
    altered: Mapping[str, tuple[str, ...]]
    refused: tuple[str, ...]
    refused_by: tuple[str, ...]
    refused_of: tuple[str, ...]


def summarised(broker: str, wire: str, rows: Iterable[FidelityRow] | None = None) -> Summary:
    """Return the types that are whole, altered and refused; empty where nothing is recorded."""
    rows = [
        row
        for row in (recorded() if rows is None else rows)
        if row.wire == wire and broker in row.brokers and row.outcome != NOT_SHOWN
    ]
    producers = {name for row in rows for name in row.producers}
    taken = {name for name in producers if _share_refused(name, rows) < NEARLY_ALL}
    refused_of = producers - taken
    altered: dict[str, set[str]] = {}
    refused: set[str] = set()
    refused_by: set[str] = set()
    seen: set[str] = set()
    for row in rows:
        of_these = taken.intersection(row.producers)
        if not of_these:
            continue
        seen.update(row.subjects)
        if isinstance(row.outcome, str):
            refused.update(row.subjects)
            refused_by.update(of_these)
            continue
        for name in row.outcome:
            if DIFFERENCES[name].alters:
                altered.setdefault(name, set()).update(row.subjects)
    spoilt = refused.union(*altered.values())
    return Summary(
        whole=tuple(sorted(seen - spoilt)),
        altered={name: tuple(sorted(found)) for name, found in sorted(altered.items())},
        refused=tuple(sorted(refused)),
        refused_by=() if refused_by == taken else tuple(sorted(refused_by)),
        refused_of=tuple(sorted(refused_of)),
    )


def _share_refused(producer: str, rows: Iterable[FidelityRow]) -> float:
    every: set[str] = set()
    refused: set[str] = set()
    for row in rows:
        if producer in row.producers:
            every.update(row.subjects)
            refused.update(row.subjects if row.outcome == REFUSED else ())
    return len(refused) / len(every)


def summary(kind: BrokerKind, wire: str) -> tuple[str, ...]:
    """Return sentences on the messages that a wire carries, alters, refuses; () = not recorded.

    Args:
        kind: the product, in all its recorded versions.
        wire: openwire, amqp or stomp; for Classic, amqp speaks of both kinds of connector.
    """
    names = [name for name, (known, _) in BROKERS.items() if known is kind]
    wires = [name for name in WIRES if name == wire or name.startswith(f"{wire}-")]
    sentences: list[str] = []
    for name in wires:
        for broker in names:
            found = summarised(broker, name)
            for sentence in _sentences(found):
                text = f"{WIRES[name]}: {sentence}"
                if text not in sentences:
                    sentences.append(text)
    return tuple(sentences)


def _sentences(found: Summary) -> Iterator[str]:
    if not found.whole and not found.refused_of:
        return
    if left := left_words(found):
        yield f"left in the dead-letter queue, whole: {left}."
    if found.whole and not found.altered and not found.refused:
        yield (
            "every body type, property type and header of the others comes back whole."
            if (found.refused_of)
            else "every body type, property type and header comes back whole."
        )
    for name, subjects in found.altered.items():
        yield f"{listed(subjects)}: {DIFFERENCES[name].sentence}"


def left_words(found: Summary) -> str:
    """Return the messages that stay in the dead-letter queue, in short words; "" = none."""
    words = [f"everything, or nearly, of {', '.join(CLIENTS[name] for name in found.refused_of)}"]
    words = words if found.refused_of else []
    if found.refused:
        of = f"of {', '.join(CLIENTS[name] for name in found.refused_by)}: " * bool(
            found.refused_by
        )
        words.append(f"{of}{listed(found.refused)}")
    return "; ".join(words)


def listed(subjects: Iterable[str], among: Iterable[str] = ()) -> str:
    """Return subjects in short words: `body Map, Object; every property but int`.

    Args:
        subjects: such as `body Map`.
        among: all subjects; a nearly complete group is described by its exceptions.
    """
    groups, whole = _grouped(subjects), _grouped(among)
    words = []
    for group, names in groups.items():
        lacking = [name for name in whole.get(group, ()) if name not in names]
        if not names[0]:
            words.append(group)
        elif len(lacking) > len(names) / 3 or group not in whole:
            words.append(f"{group} {', '.join(names)}")
        else:
            words.append(f"every {group}" + (f" but {', '.join(lacking)}" if lacking else ""))
    return "; ".join(words)


def _grouped(subjects: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for subject in sorted(subjects):
        group, _, name = subject.partition(" ")
        if subject == ADDED:
            group, name = ADDED, ""
        groups.setdefault(group, []).append(name)
    return groups

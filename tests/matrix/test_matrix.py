"""What clients see of a message before and after its death is what is recorded, on real brokers."""

from pathlib import Path

import pytest

from amqsidecar.broker import BrokerKind
from amqsidecar.diagnosis import fidelity
from amqsidecar.diagnosis.fidelity import DIFFERENCES
from matrix.explained import RULES
from matrix.matrix import played
from matrix.record import outcomes
from matrix.stage import KINDS, clients_of, wires_of
from support.versions import TESTED

# What is telling and quick; `make matrix` plays every producer with every consumer.
PAIRS = {
    "classic_5": [
        ("openwire", "openwire"),
        ("qpid", "qpid"),
        ("qpid-jms", "openwire"),
        ("stomp", "stomp"),
    ],
    "classic_6": [("openwire", "openwire"), ("qpid-jms", "qpid-jms")],
    "artemis": [("core", "core"), ("qpid", "qpid"), ("stomp", "openwire")],
}
OTHERS = {("stomp", "openwire"): ("stomp", "core")}
"""In place of a pair whose wires the release does not speak."""


@pytest.mark.broker
@pytest.mark.parametrize(
    "kind",
    [pytest.param(one, marks=pytest.mark.proof if one == "classic_5" else ()) for one in KINDS],
)
def test_a_redelivery_differs_only_as_recorded(kind: str, tmp_path: Path) -> None:
    """Every field of every specimen; each difference has its entry, nothing is gone."""
    asked = (pair if _is_spoken(kind, *pair) else OTHERS.get(pair, pair) for pair in PAIRS[kind])
    pairs = [pair for pair in asked if _is_spoken(kind, *pair)]
    wires = {wire.name for wire in wires_of(kind)}
    cells, wrong = played(kind, pairs, tmp_path)
    assert wrong == []
    known = {
        cell: outcome
        for cell, outcome in outcomes(fidelity.recorded()).items()
        if cell.broker == kind and cell.wire in wires and (cell.producer, cell.consumer) in pairs
    }
    differing = {
        cell: f"{outcome!r}, recorded {known.get(cell)!r}"
        for cell, outcome in cells.items()
        if outcome != known.get(cell)
    }
    assert differing == {}
    assert known.keys() == cells.keys()


def _is_spoken(kind: str, *clients: str) -> bool:
    """Whether the release that is tested speaks the wires of these clients."""
    wire_of = {"qpid": "amqp", "qpid-jms": "amqp"}
    return all(wire_of.get(one, one) in TESTED[kind].wires for one in clients)


def test_every_difference_that_is_documented_occurs() -> None:
    """An entry that no cell of the record needs is out of date."""
    used = {
        name
        for outcome in outcomes(fidelity.recorded()).values()
        if not isinstance(outcome, str)
        for name in outcome
    }
    assert used == set(DIFFERENCES) == {rule.entry for rule in RULES}


def test_every_wire_and_pair_is_recorded() -> None:
    """Each broker with each of its wires and clients."""
    recorded = outcomes(fidelity.recorded())
    there = {(cell.broker, cell.wire, cell.producer, cell.consumer) for cell in recorded}
    asked = {
        (kind, wire.name, producer, consumer)
        for kind in KINDS
        for wire in wires_of(kind)
        for producer in clients_of(kind)
        for consumer in clients_of(kind)
        if not wire.after
    }
    assert asked - there == set()


@pytest.mark.parametrize(
    ("kind", "wire", "says"),
    [
        (BrokerKind.CLASSIC, "openwire", "astral"),
        (BrokerKind.ARTEMIS, "amqp", "without body"),
        (BrokerKind.ARTEMIS, "stomp", "JMSMessageID is gone"),
    ],
)
def test_the_summary_says_what_is_not_whole(kind: BrokerKind, wire: str, says: str) -> None:
    """As sentences for `doctor`."""
    sentences = fidelity.summary(kind, wire)
    assert any(says in sentence for sentence in sentences)
    assert all(sentence.endswith(".") for sentence in sentences)


def test_nothing_is_said_of_what_is_not_recorded() -> None:
    assert fidelity.summary(BrokerKind.ARTEMIS, "openwire") == ()

"""Which entry of the documented differences explains a difference that was seen."""

import re
from collections.abc import Callable
from typing import NamedTuple

from amqsidecar.diagnosis.fidelity import Cell
from matrix.play import Change


class Rule(NamedTuple):
    """An entry holds for changes whose text matches, where the condition holds."""

    entry: str
    change: str
    holds: Callable[[Cell], bool] = lambda _: True


def _on_classic(cell: Cell) -> bool:
    return cell.broker.startswith("classic")


def _on_artemis(cell: Cell) -> bool:
    return not _on_classic(cell)


RULES = (
    Rule("marks", r"property (amqsidecarRedelivery(Id|Count)|redeliveryDelay): added"),
    Rule("original-id", r"property amqsidecarOriginalMessageId: added"),
    Rule("new-id", r"JMSMessageID: changed", _on_classic),
    Rule("redelivered", r"JMSRedelivered: (False -> True|added)", _on_classic),
    Rule("redelivered", r"JMSXDeliveryCount: 1 -> 2", _on_classic),
    Rule("user", r"JMSXUserID: 'app' -> 'sidecar'"),
    Rule("ttl-anew", r"(JMSExpiration|JMSTimestamp): changed", _on_classic),
    Rule("ttl-gone", r"JMSExpiration: gone", _on_artemis),
    Rule("duplicate-id", r"property _AMQ_DUPL_ID: added", _on_artemis),
    Rule(
        "conversion",
        r"property (JMS_AMQP_\w+(-\w+)*|NATIVE_MESSAGE_ID): added|property __AMQ_CID: removed"
        r"|JMSMessageID: changed",
        lambda cell: _on_artemis(cell) and cell.consumer != "qpid",
    ),
    Rule(
        "stomp-frame",
        r"property (destination|destination-type|receipt|content-length): removed",
        lambda cell: _on_artemis(cell) and cell.producer == "stomp",
    ),
    Rule(
        "no-body",
        r"type: 'Message' -> 'Bytes'|body: None -> ''",
        lambda cell: _on_artemis(cell) and cell.subject == "body plain Message",
    ),
    Rule(
        "empty-bytes",
        r"type: 'Bytes' -> 'Text'",
        lambda cell: _on_artemis(cell) and cell.subject == "body empty Bytes",
    ),
    Rule(
        "group-sequence",
        r"group sequence: '?7'? -> '?0'?",
        lambda cell: _on_artemis(cell) and cell.producer == "stomp",
    ),
    Rule(
        "astral",
        r"property p: ('.*' -> '\ufffd+'|not shown again)",
        lambda cell: _on_classic(cell) and cell.subject == "property astral String",
    ),
)


def explain(cell: Cell, change: Change) -> str | None:
    """Return the entry that explains the difference, None where none does."""
    text = str(change)
    for rule in RULES:
        if re.fullmatch(rule.change, text) and rule.holds(cell):
            return rule.entry
    return None

"""Which entry of the documented differences explains a difference that was seen."""

import re
from collections.abc import Callable
from typing import NamedTuple

from matrix.play import Change
from matrix.record import Cell


class Rule(NamedTuple):
    """An entry holds for changes whose text matches, where the condition holds."""

    entry: str
    change: str
    holds: Callable[[Cell], bool] = lambda _: True


def _on_classic(cell: Cell) -> bool:
    return cell.broker.startswith("classic")


def _on_artemis(cell: Cell) -> bool:
    return not _on_classic(cell)


def _over(*wires: str) -> Callable[[Cell], bool]:
    return lambda cell: cell.wire in wires


def _artemis_over(wire: str) -> Callable[[Cell], bool]:
    return lambda cell: _on_artemis(cell) and cell.wire == wire


RULES = (
    Rule("marks", r"property (amqsidecarRedelivery(Id|Count|Check)|redeliveryDelay): added"),
    Rule("original-id", r"property amqsidecarOriginalMessageId: added"),
    Rule("new-id", r"JMSMessageID: changed", _on_classic),
    Rule("redelivered", r"JMSRedelivered: (False -> True|added)", _on_classic),
    Rule("redelivered", r"JMSXDeliveryCount: 1 -> 2", _on_classic),
    Rule("user", r"JMSXUserID: (('app'|None) -> '(sidecar|app)'|added)"),
    Rule("ttl-anew", r"(JMSExpiration|JMSTimestamp): changed", _on_classic),
    Rule("ttl-gone", r"JMSExpiration: (gone|removed)"),
    Rule(
        "conversion",
        r"property (JMS_AMQP_\w+(-\w+)*|NATIVE_MESSAGE_ID): added|property __AMQ_CID: removed"
        r"|JMSMessageID: changed",
        lambda cell: _artemis_over("amqp")(cell) and cell.consumer != "qpid",
    ),
    Rule(
        "foreign-id",
        r"JMSMessageID: changed",
        lambda cell: _artemis_over("artemis")(cell) and cell.consumer != cell.producer,
    ),
    Rule("no-id", r"JMSMessageID: (gone|changed)", _artemis_over("stomp")),
    Rule("new-timestamp", r"JMSTimestamp: changed", _artemis_over("stomp")),
    Rule("client-marks", r"property (__AMQ_CID|__HDR_[A-Z_]+): removed", _artemis_over("stomp")),
    Rule(
        "stomp-frame",
        r"property (destination|destination-type|receipt|transaction|content-length): "
        r"(added|changed|removed)",
        lambda cell: _on_artemis(cell) and "stomp" in (cell.producer, cell.wire),
    ),
    Rule(
        "no-body",
        r"type: 'Message' -> 'Bytes'|body: None -> ''",
        lambda cell: _artemis_over("amqp")(cell) and cell.subject == "body plain Message",
    ),
    Rule(
        "empty-bytes",
        r"type: 'Bytes' -> 'Text'",
        lambda cell: _artemis_over("amqp")(cell) and cell.subject == "body empty Bytes",
    ),
    Rule(
        "group-sequence",
        r"group sequence: '?7'? -> '?0'?",
        lambda cell: _on_artemis(cell) and cell.producer == "stomp",
    ),
    Rule("jms-conversion", r"property JMS_AMQP_\w+(-\w+)*: added", _over("amqp-jms")),
    Rule(
        "encoded-view",
        r"body: changed|property JMS_AMQP_HEADER: added",
        lambda cell: (
            _on_classic(cell)
            and cell.producer in ("qpid", "qpid-jms")
            and cell.wire in ("amqp", "amqp-jms")
        ),
    ),
    Rule(
        "stomp-body",
        r"type: '(Map|Object|Stream|Message|Bytes|Text)' -> '(Text|Bytes)'|body( error)?: .*"
        r"|property JMS_AMQP_TYPED_ENCODING: removed",
        _over("stomp-lossy"),
    ),
    Rule(
        "stomp-properties",
        r"property \S+: ((Boolean|Byte|Short|Integer|Long|Float|Double|null) -> String|changed)",
        _over("stomp-lossy"),
    ),
    Rule("stomp-group", r"group (id: .* -> None|sequence: .* -> '?0'?|.*: removed)", _on_classic),
    Rule(
        "astral",
        r"property p: ('.*' -> '\ufffd+'|'\ufffd+' -> '.*'|not shown again)",
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

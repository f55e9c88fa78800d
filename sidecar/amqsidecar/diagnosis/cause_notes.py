"""Judges the queue of consumers' notes (`deploy/reference/cause-notes.md`)."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from amqsidecar.diagnosis.finding import Check, Finding, Severity
from amqsidecar.model.destination import Destination

_finding = partial(Finding, Check.CAUSE_NOTES)


class CauseNoteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How notes are read.

    Attributes:
        queue: the queue of notes.
        obeys: whether their verdicts are obeyed.
    """

    queue: Destination
    obeys: bool


def cause_note_findings(
    notes: CauseNoteSettings,
    refusal: str,
    address_settings: Mapping[str, Any],
    allowed_origins: tuple[str, ...],
) -> Iterator[Finding]:
    """Yield whether notes are read, where lost ones go, and what a verdict could do.

    Args:
        notes: how they are read.
        refusal: the broker's words why they can't be read; "" = they can.
        address_settings: of their address on Artemis; empty = not known.
        allowed_origins: patterns of where redeliveries may go; () = anywhere.
    """
    queue = notes.queue
    if refusal:
        what = f"can't be read, so that no note gives a cause: {refusal}"
        yield _finding(Severity.WARNING, str(queue), what)
    else:
        yield _finding(Severity.OK, str(queue), "notes of consumers can be read")
    targets = [address_settings.get(name) for name in ("deadLetterAddress", "expiryAddress")]
    if kept := ", ".join(dict.fromkeys(str(one) for one in targets if one)):
        yield _finding(
            Severity.NOTE,
            str(queue),
            f"notes that expire or fail go to {kept}, where only the sidecar can separate "
            "them from dead letters",
            f'<address-setting match="{queue.name}"><dead-letter-address/><expiry-address/>'
            "</address-setting>",
        )
    if notes.obeys and not allowed_origins:
        yield _finding(
            Severity.WARNING,
            "redelivery.allowed_origins",
            "is empty while verdicts are obeyed: anyone who may write notes can redirect messages "
            "to any destination that the sidecar may send to",
            'redelivery: {allowed_origins: ["orders.>"]}',
        )

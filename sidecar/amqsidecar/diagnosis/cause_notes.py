"""Judges the queue of consumers' notes (`deploy/reference/cause-notes.md`)."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from amqsidecar.diagnosis.finding import Finding, new_finding
from amqsidecar.model.destination import Destination


class CauseNoteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How notes are read."""

    queue: Destination
    obeys: bool


def cause_note_findings(
    notes: CauseNoteSettings,
    refusal: str,
    address_settings: Mapping[str, Any],
    allowed_origins: tuple[str, ...],
) -> Iterator[Finding]:
    """Yield whether notes are read, where lost notes go, and possible effects of verdicts.

    Args:
        notes: how they are read.
        refusal: the broker's words why they can't be read; "" = they can.
        address_settings: of their address on Artemis; empty = not known.
        allowed_origins: patterns of where redeliveries may go; () = anywhere.
    """
    queue = notes.queue
    if refusal:
        yield new_finding("notes_unreadable", queue, refusal=refusal)
    else:
        yield new_finding("notes_readable", queue)
    targets = [address_settings.get(name) for name in ("deadLetterAddress", "expiryAddress")]
    if kept := ", ".join(dict.fromkeys(str(one) for one in targets if one)):
        yield new_finding("notes_among_dead_letters", queue, kept=kept, name=queue.name)
    if notes.obeys and not allowed_origins:
        yield new_finding("verdicts_without_allowed_origins", "redelivery.allowed_origins")

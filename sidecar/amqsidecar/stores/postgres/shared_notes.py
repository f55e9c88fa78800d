"""Notes of consumers that the instances of one schedule hand over to each other."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from amqsidecar.model.cause_note import NOTES_KEPT_BYTES, NOTES_KEPT_S, CauseNote, SharedNotes
from amqsidecar.stores.postgres.database import PostgresDatabase
from amqsidecar.stores.postgres.reserve import PostgresReserve

KEPT: Final[Mapping[str, float]] = {"kept_s": NOTES_KEPT_S, "kept_bytes": NOTES_KEPT_BYTES}

_encode = msgspec.json.Encoder().encode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode = msgspec.json.Decoder(CauseNote).decode


class PostgresSharedNotes:
    """The notes of the store that inherits it."""

    _database: PostgresDatabase
    _reserve: PostgresReserve
    _number: int

    def share_notes(self, notes: Sequence[CauseNote]) -> None:
        if not notes or not self._reserve.look().is_enough:
            return
        database = self._database
        with database.transaction():
            # Invariant: numbers become visible in their order, so that a position misses none.
            database.queue("lock", lock=database.advisory_lock("notes"))
            database.queue("add_shared_notes", instance=self._number, body=_encode(notes))
            database.queue("forget_shared_notes", **KEPT)

    def shared_notes(self, position: int | None) -> SharedNotes:
        rows = self._database.rows(
            "read_shared_notes",
            instance=self._number,
            is_first=position is None,
            position=position or 0,
        )
        notes = [
            (age_s, note) for _, age_s, body in rows if body is not None for note in _read(body)
        ]
        return SharedNotes(rows[-1][0] if rows else position or 0, notes)


def _read(body: bytes) -> Iterator[CauseNote]:
    for note in _decode_list(body):
        # Why dropped: a newer program wrote it, with a verdict that this one does not know.
        with suppress(msgspec.ValidationError):
            yield _decode(note)

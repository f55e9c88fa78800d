"""What became of a re-send, from what was seen of its destination."""

import msgspec


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a destination at one moment, and what this and earlier looks prove.

    So that the latest of a minute tells all: counters are compared by who looks, not by who reads.

    Attributes:
        destination: canonical text.
        at_ms: when, by the sidecar's clock.
        depth: messages in it, those in delivery too; None = can't be told.
        acknowledged: how many were acknowledged since the broker's counter began; None = this
            broker doesn't tell.
        removed: how many went otherwise (expired, killed, purged) since then; None = not told.
        steady_since_ms: since then the counters went on, and whatever went otherwise than by an
            acknowledgement came to the sidecar as a dead letter; None = this can't be said.
        moved_at_ms: the last look at which `acknowledged` was higher than before; None = none was.
        empty_at_ms: the last look at which it was empty, and up to which `steady_since_ms` holds;
            None = none was.
    """

    destination: str
    at_ms: int
    depth: int | None
    acknowledged: int | None = None
    removed: int | None = None
    steady_since_ms: int | None = None
    moved_at_ms: int | None = None
    empty_at_ms: int | None = None

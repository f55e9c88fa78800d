"""What became of a re-send, from what was seen of its destination."""

import msgspec


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a destination at one moment.

    Attributes:
        destination: canonical text.
        at_ms: when, by the sidecar's clock.
        depth: messages in it, those in delivery too; None = can't be told.
        acknowledged: how many were acknowledged since the broker's counter began; None = this
            broker doesn't tell.
        removed: how many went otherwise (expired, killed, purged) since then; None = not told.
    """

    destination: str
    at_ms: int
    depth: int | None
    acknowledged: int | None = None
    removed: int | None = None

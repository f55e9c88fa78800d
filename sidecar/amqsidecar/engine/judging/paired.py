"""Takes one where a delivery is reported more than once, by the broker or by the listener.

A listener that dies between its copy and the acknowledgement leaves a copy and, where the address
has no attempt left, the broker's dead letter; else the message comes again, perhaps after hours
(`brokers/artemis/left_behind.py`), and its next NACK makes a second copy where the broker has
forgotten the duplicate id of the first. All name the queue, the broker's number and the time of the
message; a re-send has another number. The history keeps these names, so that they are recognised in
any order, over any wire and after a restart, as long as the history is kept and is not older or
newer than the broker.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from amqsidecar.broker import Delivery
from amqsidecar.engine.judging.judge import Judge, Judgement
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.model.event import Discarded, Received, about_row
from amqsidecar.model.provenance import COPY, pair_of, twin_of

IS_TWIN: Final = (
    "the listener died between its copy and the acknowledgement: of the copy and the dead letter "
    "of this delivery, this is the second; the first was taken"
)
IS_REPEATED: Final = (
    "a copy of this delivery was taken before: the consumer gave the message up twice, because the "
    "listener or the broker died in between, or somebody sent the copy once more"
)

KnownLives = Callable[[Collection[str]], Mapping[str, bool]]
"""See `Store.known_lives`."""


class PairedJudge:
    """Judges the first report of a delivery by another judge, and discards the others."""

    def __init__(self, judge: Judge, known_lives: KnownLives) -> None:
        self._judge = judge
        self._known_lives = known_lives
        self._ended: set[str] = set()

    @property
    def send_rules(self) -> SendRules:
        """See `Judging`."""
        return self._judge.send_rules

    def prepare(self, deliveries: Sequence[Delivery], /) -> Sequence[Delivery]:
        """Ask the history for the lives of deliveries and their twins; see `Judging`.

        A twin of a life in another instance's unfinished cycle must wait: if the twin were
        discarded and that cycle undone, no report of the delivery would be left.
        """
        deliveries = self._judge.prepare(deliveries)
        lives = [*map(self._judge.life_of, deliveries)]
        asked = {name for life in lives if life for name in (life, twin_of(life))}
        known = self._known_lives(asked) if asked else {}
        self._ended = {life for life, counts in known.items() if counts}
        if len(self._ended) == len(known):
            return deliveries
        waits = {pair_of(life) for life, counts in known.items() if not counts}
        return [
            one
            for one, life in zip(deliveries, lives, strict=True)
            if not life or pair_of(life) not in waits
        ]

    def judge(
        self, delivery: Delivery, uid: str, row_id: int, now_ms: int, *, is_backlog: bool
    ) -> Judgement:
        """Return the judgement on a delivery that was prepared for; see `Judge.judge`."""
        found = self._judge.judge(delivery, uid, row_id, now_ms, is_backlog=is_backlog)
        received = found.events[0] if found.events else None
        if not isinstance(received, Received) or not received.life:
            return found
        life = received.life
        if twin_of(life) in self._ended:
            return _discarded(received, IS_TWIN)
        if life in self._ended and life.startswith(COPY):
            return _discarded(received, IS_REPEATED)
        self._ended.add(life)
        return found


def _discarded(received: Received, rule: str) -> Judgement:
    # Why without its life: only a message that was taken stands for its twin.
    received = msgspec.structs.replace(received, life="")
    known = about_row(received, received.at_ms, received.origin or received.source)
    return Judgement(None, (received, Discarded(**known, rule=rule)))

"""Options `redelivery.*` and `outcomes.*`."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator

from amqsidecar.config.option import (
    DestinationPatterns,
    Entries,
    KeyedProblem,
    Section,
    StrictBool,
    StrictInt,
    as_texts,
    each_text,
    option,
)
from amqsidecar.model.destination import parse_pattern
from amqsidecar.model.send_terms import ResendEffect
from amqsidecar.model.sidecar_names import FINAL_SUFFIX


class OutcomesOptions(Section):
    """Outcomes of re-sends."""

    watch: StrictBool = option(
        True,
        "Whether the sidecar watches the queues that it re-sends to, over a separate read-only "
        "connection. If not, no re-send is reported as consumed (`operations.md`).",
        why="a few requests to the broker every few seconds, and none when nothing waits",
    )
    window_s: StrictInt = option(
        60,
        "Time after a re-send in which the message may come back; only afterwards it can be "
        "reported as consumed.",
        why="longer than most consumers process a message; a later return is still recognised",
        unit="seconds",
        ge=2,
        le=86_400,
    )
    interval_s: StrictInt = option(
        5,
        "How often a queue is checked while its re-sends may still come back.",
        why="a queue may be empty for only a short time",
        unit="seconds",
        ge=1,
        le=3600,
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield a window that is over before the first look."""
        if self.window_s < 2 * self.interval_s:
            yield "window_s", "has to be at least twice `interval_s`"


Effects = Annotated[
    tuple[ResendEffect, ...], BeforeValidator(as_texts, json_schema_input_type=list[ResendEffect])
]


def _check_manual(text: str) -> None:
    if "*" in (name := parse_pattern(text).name).split(".") and name.endswith(">"):
        raise ValueError(f"{text!r} has `*` before `>`: name the words, or end with `*`")


class ExhaustedChoice(StrEnum):
    """Where messages are that the rules redeliver no more."""

    QUEUE = "queue"
    KEEP = "keep"


class RedeliveryMode(StrEnum):
    """Whether the rules or a person decide about a dead letter."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"
    IN_PLACE = "in_place"


class RedeliveryOptions(Section):
    """Redelivery and its destinations."""

    mode: RedeliveryMode = option(
        RedeliveryMode.AUTOMATIC,
        "`automatic` = dead letters are taken and redelivered by the rules. `manual` = they stay "
        "in their queues as exhausted messages, with the decision that the rules would make; "
        "only a person takes them, by a retry, a redirect or a discard. `in_place` = they stay "
        "there until the rules redeliver or discard them, each in one transaction (Artemis; "
        "`observe.md`). A change of this or `manual` in the file acts within seconds.",
    )
    manual: Annotated[tuple[str, ...], each_text(_check_manual)] = option(
        (),
        "Dead letters that stay as with `mode: manual` while others are redelivered: patterns of "
        "origins, such as `pay.>` (Artemis: `pay.#`), or of dead-letter queues. Classic and STOMP "
        "can't leave a part of a shared dead-letter queue, so each has to match a whole queue.",
    )
    final_suffix: str = option(
        FINAL_SUFFIX,
        "Suffix of the final queue's name if the rules name a dead-letter queue that the sidecar "
        "reads; without it, exhausted messages would circulate.",
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9._-]+$",
    )
    allow: Effects = option(
        (),
        "Broker features that may act on a redelivery again (`origins.md`). A message is parked "
        "if a feature that is not named here would copy, divert or replace its redelivery.",
        why="a redelivery must reach only the queue that the message died in",
    )
    allowed_origins: DestinationPatterns = option(
        (),
        "Destinations that redeliveries may go to, as patterns such as `orders.>` (Artemis: "
        "`orders.#`) or `topic://news.*`; messages that died elsewhere are parked. Empty = "
        "anywhere. Whoever may write to a dead-letter queue chooses the origin of what they "
        "put there (`broker-side.md`).",
        why="the broker does not limit its own redeliveries either",
    )
    exhausted: ExhaustedChoice = option(
        ExhaustedChoice.QUEUE,
        "Where exhausted messages go: `queue` = to their final dead-letter queue, as the "
        "broker's rules say; the schedule takes them back when a person acts on them. `keep` = "
        "they stay in the schedule, with their bodies; messages in final queues whose name "
        "ends with `redelivery.final_suffix` are taken back, unless a person gave them up.",
    )
    parked_keep: Entries = option(
        {},
        "How long parked messages are kept, by destination: `entries`, each with a pattern and "
        "`days`, and `default_entry`; with `move_to` they go to that queue then, else they are "
        "discarded, with `export: true` once they are in the journal's folder (`journal.md`). Each "
        "is an operation of the actor `retention`, which begins `retention_notice_h` after it "
        "appears and can be cancelled; a discard can be undone for an hour, a move can't. Empty = "
        "for ever.",
    )
    exhausted_keep: Entries = option(
        {}, "The same for exhausted messages, in their final queues or kept in the schedule."
    )
    in_place_keep: Entries = option(
        {}, "The same for dead letters that are left to a person in their queues."
    )
    retention_notice_h: StrictInt = option(
        24,
        "Time between the announcement of a retention and its begin; a cancelled one is announced "
        "again after it.",
        unit="hours",
        ge=0,
        le=336,
    )

"""Options `redelivery.*`: what redeliveries look like."""

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator

from amqsidecar.broker import FINAL_SUFFIX
from amqsidecar.config.option import Section, as_texts, option
from amqsidecar.model.resend_effect import ResendEffect

Effects = Annotated[
    tuple[ResendEffect, ...], BeforeValidator(as_texts, json_schema_input_type=list[ResendEffect])
]


class ExhaustedChoice(StrEnum):
    """Where messages are that the rules redeliver no more."""

    QUEUE = "queue"
    KEEP = "keep"


class RedeliveryOptions(Section):
    """What redeliveries look like."""

    final_suffix: str = option(
        FINAL_SUFFIX,
        "Where the rules' dead-letter queue is one that the sidecar reads, messages that are "
        "given up go to the queue of that name plus this suffix, so that none circles.",
        why="sorts beside its queue",
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9._-]+$",
    )
    allow: Effects = option(
        (),
        "What may act on a redelivery once more (`origins.md`). Without its name here, a message "
        "whose redelivery it would copy, take away, or replace is parked.",
        why="a redelivery reaches the queue that the message died in, and nothing else",
    )
    exhausted: ExhaustedChoice = option(
        ExhaustedChoice.QUEUE,
        "Where messages go that the rules redeliver no more: `queue` = to their final dead-letter "
        "queue, as the broker's rules say; the schedule keeps ids, group and history. `keep` = "
        "they stay in the schedule, with their bodies, where all actions work on them; what lies "
        "in final queues whose name ends with `redelivery.final_suffix` is taken back. Both are "
        "shown as exhausted until a person acts on them.",
        why="the broker's rules name that queue",
    )

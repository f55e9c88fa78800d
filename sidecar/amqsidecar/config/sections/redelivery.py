"""Options `redelivery.*`: what redeliveries look like."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator

from amqsidecar.broker import FINAL_SUFFIX
from amqsidecar.config.option import Section, as_texts, option
from amqsidecar.engine.allowed_origins import parse_pattern
from amqsidecar.model.resend_effect import ResendEffect

Effects = Annotated[
    tuple[ResendEffect, ...], BeforeValidator(as_texts, json_schema_input_type=list[ResendEffect])
]


def _as_origins(value: object) -> object:
    texts = as_texts(value)
    for text in texts if isinstance(texts, Sequence) else ():
        parse_pattern(str(text))
    return texts


OriginPatterns = Annotated[
    tuple[str, ...], BeforeValidator(_as_origins, json_schema_input_type=str | list[str])
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
    allowed_origins: OriginPatterns = option(
        (),
        "Destinations that redeliveries may go to, as patterns such as `orders.>` (Artemis: "
        "`orders.#`) or `topic://news.*`; what died anywhere else is parked. Empty = anywhere. Who "
        "may write to a dead-letter queue chooses the origin of what they put there "
        "(`permissions.md`).",
        why="the broker does not limit where its own redeliveries go either",
    )
    exhausted: ExhaustedChoice = option(
        ExhaustedChoice.QUEUE,
        "Where messages go that the rules redeliver no more: `queue` = to their final dead-letter "
        "queue, as the broker's rules say; the schedule keeps ids, group and history, and takes "
        "messages back when a person acts on them. `keep` = they stay in the schedule, with their "
        "bodies; what lies in final queues whose name ends with `redelivery.final_suffix` is taken "
        "back, unless a person has given it up. Both are shown as exhausted until a person acts "
        "on them.",
        why="the broker's rules name that queue",
    )

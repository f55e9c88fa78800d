"""Tokens of other instances on Artemis, as its management tells of them."""

from collections.abc import Collection

from amqsidecar.broker import ForeignToken
from amqsidecar.brokers.artemis.management import ArtemisQuestions
from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX, is_examiner
from amqsidecar.errors import BrokerRefused


def foreign_tokens(
    management: ArtemisQuestions, known: Collection[str]
) -> tuple[ForeignToken, ...]:
    """Return the tokens of all instances but these.

    Raises:
        BrokerRefused: the user may not ask.
        LinkLost: the connection is gone.
    """
    if management.missing is not None:
        raise BrokerRefused(f"can't look for other sidecars' tokens: {management.missing}")
    found = []
    for row in management.queues_like(TOKEN_QUEUE_PREFIX):
        instance = row.name.removeprefix(TOKEN_QUEUE_PREFIX)
        if instance == row.name or instance in known or is_examiner(instance):
            continue
        if row.message_count:
            sent_at_ms = management.first_sent_at_ms(row.name)
            found.append(
                ForeignToken(
                    instance=instance, sent_at_ms=sent_at_ms, is_held=row.consumer_count > 0
                )
            )
    return tuple(found)

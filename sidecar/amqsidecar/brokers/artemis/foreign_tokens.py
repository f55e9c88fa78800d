"""Tokens of other instances on Artemis, found through its management."""

import json
from collections.abc import Collection

from amqsidecar.brokers.artemis.management import ArtemisQuestions, ManagementQuestion
from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX, is_examiner
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.sidecar_names import PROPERTY_RULES_DIGEST


def foreign_tokens(
    management: ArtemisQuestions, known: Collection[str]
) -> tuple[ForeignToken, ...]:
    """Return the tokens of all instances but these.

    Raises:
        BrokerRefused: the user may not ask.
        LinkLost: the connection is gone.
    """
    management.demand("can't look for other sidecars' tokens: {}")
    found = []
    for row in management.queues_like(TOKEN_QUEUE_PREFIX):
        instance = row.name.removeprefix(TOKEN_QUEUE_PREFIX)
        if instance == row.name or instance in known or is_examiner(instance):
            continue
        if row.message_count:
            sent_at_ms = management.first_sent_at_ms(row.name)
            found.append(
                ForeignToken(
                    instance=instance,
                    sent_at_ms=sent_at_ms,
                    is_held=row.consumer_count > 0,
                    rules_digest=_rules_digest(management, row.name),
                )
            )
    return tuple(found)


def _rules_digest(management: ArtemisQuestions, queue: str) -> str:
    """Return the digest that the tokens of a queue show, handed out or not; "" = none.

    Source: Artemis, QueueControl.listDeliveringMessagesAsJSON, which also lists what a transaction
    acknowledges that is not committed yet.
    """
    resource = f"queue.{queue}"
    delivered = management.ask(ManagementQuestion(resource, "listDeliveringMessagesAsJSON"))
    by_consumer = json.loads(delivered.value) if delivered.is_ok and delivered.value else []
    found = [entry for consumer in by_consumer for entry in consumer.get("elements", ())]
    if not found:
        lying = management.ask(ManagementQuestion(resource, "listMessagesAsJSON", ("",)))
        found = json.loads(lying.value) if lying.is_ok and lying.value else []
    digests = (entry.get(PROPERTY_RULES_DIGEST) for entry in found)
    return next((one for one in digests if isinstance(one, str) and one), "")

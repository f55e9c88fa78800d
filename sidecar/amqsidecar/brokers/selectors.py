"""Selectors that every wire uses, in the language of JMS."""

from collections.abc import Collection

from amqsidecar.engine.manual import ORIGINS
from amqsidecar.model.provenance import BY_AGAIN, BY_MESSAGE_ID, BY_NUMBER
from amqsidecar.model.sidecar_names import PROPERTY_REDELIVERY_COUNT, PROPERTY_REDELIVERY_ID


def both(*selectors: str) -> str:
    """Return the selector of messages that match all of these; "" = every message."""
    parts = [one for one in selectors if one]
    return " AND ".join(f"({one})" for one in parts) if len(parts) > 1 else "".join(parts)


def quoted(text: str) -> str:
    """Return a text as a string literal of selectors."""
    return "'" + text.replace("'", "''") + "'"


def of_redelivery_ids(redelivery_ids: Collection[str]) -> str:
    """Return the selector of messages that have one of these redelivery ids; "" = no ids.

    A message that never left its queue has the name that `lying_id` gave it.
    """
    if not redelivery_ids:
        return ""
    found = [_among(PROPERTY_REDELIVERY_ID, redelivery_ids)]
    names = [
        one.removeprefix(BY_MESSAGE_ID) for one in redelivery_ids if one.startswith(BY_MESSAGE_ID)
    ]
    if names:
        # Why both: Classic knows the first, Artemis the second.
        found += [_among("JMSMessageID", names), _among("AMQUserID", names)]
    for one in redelivery_ids:
        number, _, created_ms = one.removeprefix(BY_NUMBER).partition("-")
        if one.startswith(BY_NUMBER):
            found.append(f"(_AMQ_ORIG_MESSAGE_ID = {number} AND AMQTimestamp = {created_ms})")
        if one.startswith(BY_AGAIN):
            address, _, name = one.removeprefix(BY_AGAIN).partition("\n")
            origins = (f"{key} = {quoted(address)}" for key in ORIGINS)
            found.append(f"(AMQUserID = {quoted(name)} AND ({' OR '.join(origins)}))")
    return " OR ".join(found)


def not_of_count(count: int) -> str:
    """Return the selector of messages that a sidecar has not redelivered this often."""
    return f"({PROPERTY_REDELIVERY_COUNT} IS NULL OR {PROPERTY_REDELIVERY_COUNT} <> {count})"


def _among(name: str, values: Collection[str]) -> str:
    return f"{name} IN ({', '.join(map(quoted, values))})"

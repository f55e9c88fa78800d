"""Selectors that every wire uses, in the language of JMS."""

from collections.abc import Collection

from amqsidecar.model.sidecar_names import PROPERTY_REDELIVERY_ID


def both(*selectors: str) -> str:
    """Return the selector of what all of these match; "" = everything."""
    parts = [one for one in selectors if one]
    return " AND ".join(f"({one})" for one in parts) if len(parts) > 1 else "".join(parts)


def quoted(text: str) -> str:
    """Return a text as selectors write it."""
    return "'" + text.replace("'", "''") + "'"


def of_redelivery_ids(redelivery_ids: Collection[str]) -> str:
    """Return the selector of messages that have one of these redelivery ids; "" = no ids."""
    if not redelivery_ids:
        return ""
    return f"{PROPERTY_REDELIVERY_ID} IN ({', '.join(map(quoted, redelivery_ids))})"

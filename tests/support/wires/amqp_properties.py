"""The application properties of a Proton message, whose own annotation is `None`."""

from typing import Any

from proton import Message


def properties_of(message: Message) -> dict[str, Any]:
    """Return the application properties of a message that has some."""
    found: object = message.properties
    assert isinstance(found, dict)
    return found

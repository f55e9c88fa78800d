"""Shows kept messages to people, whatever their wire."""

from typing import Final

from amqsidecar.formats import core_artemis_message, openwire_codec
from amqsidecar.messages import amqp_view, core_view, openwire_view, stomp_view
from amqsidecar.model.message import MessageView

BODY_BYTES_MAX: Final = 64 * 1024
"""Default maximum bytes of a body in a view."""


def view_message(encoding: str, message: bytes, max_bytes: int = BODY_BYTES_MAX) -> MessageView:
    """Return the view of a kept message; never raises.

    Args:
        encoding: of the row.
        message: of the row.
        max_bytes: maximum bytes of its body to show.
    """
    if encoding.startswith("amqp/"):
        return amqp_view.view(message, max_bytes)
    if encoding == openwire_codec.ENCODING:
        return openwire_view.view(message, max_bytes)
    if encoding == core_artemis_message.ENCODING:
        return core_view.view(message, max_bytes)
    return stomp_view.view(message, max_bytes)

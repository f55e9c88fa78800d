"""Shows kept messages to people, whatever their wire."""

from typing import Final

from amqsidecar.formats import openwire_codec
from amqsidecar.messages import amqp_view, openwire_view, stomp_view
from amqsidecar.model.message import MessageView

BODY_BYTES_MAX: Final = 64 * 1024
"""What is shown of a body unless more is asked for."""


def view_message(encoding: str, message: bytes, max_bytes: int = BODY_BYTES_MAX) -> MessageView:
    """Return what people see of a kept message; never raises.

    Args:
        encoding: of the row.
        message: of the row.
        max_bytes: maximum bytes of its body to show.
    """
    if encoding.startswith("amqp/"):
        return amqp_view.view(message, max_bytes)
    if encoding == openwire_codec.ENCODING:
        return openwire_view.view(message, max_bytes)
    return stomp_view.view(message, max_bytes)

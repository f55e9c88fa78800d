"""Makes kept messages what people edit them to, whatever their wire."""

from amqsidecar.errors import EditRefused, UndecodableMessage
from amqsidecar.formats import core_artemis_message, openwire_codec
from amqsidecar.messages import amqp_edit, core_edit, openwire_edit, stomp_edit
from amqsidecar.model.message import MessageEdit


def edit_message(encoding: str, message: bytes, edit: MessageEdit) -> bytes:
    """Return a kept message after an edit; what is not named in it is the same bytes.

    Args:
        encoding: of the row.
        message: of the row.
        edit: what is to be changed.

    Raises:
        EditRefused: the edit can't be made, or the message can't be taken apart.
    """
    if edit.text is not None and edit.data is not None:
        raise EditRefused("body: a text or bytes are expected, not both")
    try:
        if encoding.startswith("amqp/"):
            return amqp_edit.edit(message, edit)
        if encoding == openwire_codec.ENCODING:
            return openwire_edit.edit(message, edit)
        if encoding == core_artemis_message.ENCODING:
            return core_edit.edit(message, edit)
        return stomp_edit.edit(message, edit)
    except UndecodableMessage as error:
        raise EditRefused(f"message: it can't be parsed: {error}") from error

"""Makes kept messages what people and rules edit them to, whatever their wire."""

import msgspec

from amqsidecar.errors import EditRefused, UndecodableMessage
from amqsidecar.formats import core_artemis_message, openwire_codec
from amqsidecar.messages import amqp_edit, core_edit, openwire_edit, stomp_edit
from amqsidecar.messages.view import view_message
from amqsidecar.model.message import FIELDS_MAX, MessageEdit


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


def edit_properties(encoding: str, message: bytes, edit: MessageEdit) -> bytes:
    """Return a kept message after an edit of properties; names to remove need not be there.

    Raises:
        EditRefused: as `edit_message`; or a part of the message can't be read, so that a property
            might stay.
    """
    view = view_message(encoding, message, 0)
    if view.problems:
        raise EditRefused(view.problems[0])
    if view.left_out:
        raise EditRefused(f"it has more than {FIELDS_MAX} properties")
    there = {one.name for one in view.properties if not one.depth}
    removed = tuple(name for name in edit.remove_properties if name in there)
    if not removed and not edit.set_properties:
        return message
    edit = msgspec.structs.replace(edit, remove_properties=removed)
    return edit_message(encoding, message, edit)

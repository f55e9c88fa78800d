"""Shows kept messages of every wire to people."""

from typing import Final

from msgspec.structs import replace

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import core_artemis_message, openwire_codec
from amqsidecar.messages.body_text import bytes_body
from amqsidecar.messages.slots import Slot, shown
from amqsidecar.messages.tree import Form, MessageTree, noted
from amqsidecar.messages.trees.amqp import AmqpTree
from amqsidecar.messages.trees.core import CoreTree
from amqsidecar.messages.trees.openwire import OpenWireTree
from amqsidecar.messages.trees.stomp import StompTree
from amqsidecar.model.message import (
    EDITABLE_TYPES,
    FIELDS_MAX,
    HEADER,
    BodyKind,
    BodyView,
    MessageView,
)

BODY_BYTES_MAX: Final = 64 * 1024
"""Default maximum bytes of a body in a view."""

_TREES: Final[dict[str, type[MessageTree]]] = {
    openwire_codec.ENCODING: OpenWireTree,
    core_artemis_message.ENCODING: CoreTree,
}
_UNREADABLE_BODY: Final = BodyView(kind=BodyKind.EMPTY, locked="it can't be read")


def tree_of(encoding: str) -> type[MessageTree]:
    """Return the class that takes messages of an encoding apart."""
    return AmqpTree if encoding.startswith("amqp/") else _TREES.get(encoding, StompTree)


def view_message(encoding: str, message: bytes, max_bytes: int = BODY_BYTES_MAX) -> MessageView:
    """Return the view of a kept message; never raises."""
    kind = tree_of(encoding)
    try:
        tree = kind(message)
    except UndecodableMessage as error:
        return MessageView(
            wire=kind.wire,
            body=replace(bytes_body(message, max_bytes), locked="it can't be parsed"),
            size_bytes=len(message),
            problems=(f"it can't be parsed: {error}",),
        )
    problems: list[str] = []
    headers = tree.headers(problems)
    properties: list[Slot] = []
    with noted(tree.properties_name, problems):
        properties = tree.properties()
    body = _UNREADABLE_BODY
    with noted("its body", problems):
        body = tree.body(max_bytes)
    form = tree.form if body.locked is None else None
    return MessageView(
        wire=tree.wire,
        kind=tree.kind,
        headers=shown(headers, lambda _name: HEADER),
        properties=shown(properties, tree.lock),
        left_out=max(0, len(headers) - FIELDS_MAX) + max(0, len(properties) - FIELDS_MAX),
        body=body,
        size_bytes=tree.size_bytes,
        problems=tuple(problems),
        property_types=tuple(tree.property_types),
        entry_types=EDITABLE_TYPES if form is Form.MAP else (),
        body_as_bytes=form is Form.BYTES,
        body_as_text=form in (Form.TEXT, Form.BYTES),
    )

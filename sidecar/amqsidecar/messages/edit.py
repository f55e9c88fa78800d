"""Edits kept messages of every wire, for people and rules."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from amqsidecar.errors import EditRefused, UndecodableMessage
from amqsidecar.messages.body_text import JAVA_LOCK, is_java
from amqsidecar.messages.slots import Lock, Slot, check_text, read_value
from amqsidecar.messages.tree import Form, MessageTree
from amqsidecar.messages.view import tree_of, view_message
from amqsidecar.model.message import (
    EDITABLE_TYPES,
    FIELDS_MAX,
    MessageEdit,
    PropertyEdit,
    ValueType,
)


def edit_message(encoding: str, message: bytes, edit: MessageEdit) -> bytes:
    """Return a kept message after an edit; parts that it does not name keep their bytes.

    Raises:
        EditRefused: the edit can't be made, or the message can't be taken apart.
    """
    if edit.text is not None and edit.data is not None:
        raise EditRefused("body: a text or bytes are expected, not both")
    try:
        tree = tree_of(encoding)(message)
        changes_body = edit.text is not None or edit.data is not None
        changes_entries = bool(edit.set_entries or edit.remove_entries)
        if (changes_body or changes_entries) and (lock := tree.body_lock()) is not None:
            raise EditRefused(f"body: it can't be changed, {lock}")
        if changes_body:
            _replace_body(tree, edit.text, edit.data)
        if changes_entries:
            if tree.form is not Form.MAP:
                raise EditRefused(f"body: {tree.no_map}")
            entries = _Values(tree, "entry", EDITABLE_TYPES, lambda _name: None, tree.entries())
            if (pieces := entries.edited(edit.set_entries, edit.remove_entries)) is not None:
                tree.set_entries(pieces)
        if edit.set_properties or edit.remove_properties:
            lines = _Values(tree, "property", tree.property_types, tree.lock, tree.lines())
            if (pieces := lines.edited(edit.set_properties, edit.remove_properties)) is not None:
                tree.set_lines(pieces)
        return tree.encoded()
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
    return edit_message(encoding, message, replace(edit, remove_properties=removed))


def _replace_body(tree: MessageTree, text: str | None, data: bytes | None) -> None:
    if text is not None:
        check_text("body", text)
    if tree.form is Form.TEXT:
        if text is None:
            raise EditRefused("body: it is a text; a text is expected instead of bytes")
        if text != tree.text():
            tree.set_text(text)
        return
    if tree.form is not Form.BYTES:
        raise EditRefused(f"body: {tree.not_replaceable}")
    before = tree.data()
    if is_java(before or b"", tree.content_type):
        raise EditRefused(f"body: it can't be changed, {JAVA_LOCK}")
    after = data if data is not None else (text or "").encode()
    if after != before:
        tree.set_data(after)


class _Values:
    """The properties of a message, or the entries of a map, in order.

    A name that is there more than once is one value: it is set at its first place.
    """

    def __init__(
        self,
        tree: MessageTree,
        what: str,
        types: Collection[ValueType],
        lock: Lock,
        slots: Sequence[Slot],
    ) -> None:
        self._tree = tree
        self._what = what
        self._types = types
        self._lock = lock
        self._slots = slots
        self._first = {slot.name: slot for slot in reversed(slots)}

    def edited(self, sets: Sequence[PropertyEdit], removed: Collection[str]) -> list[bytes] | None:
        """Return the values after an edit, each encoded with its name; None = nothing changes.

        Raises:
            EditRefused: part of it can't be done; nothing is changed.
        """
        asked: set[str] = set()
        for name in (*removed, *(one.name for one in sets)):
            self._check_name(name, asked)
            asked.add(name)
        for name in removed:
            if name not in self._first:
                raise EditRefused(f"{self._what} {name!r}: there is no such property to remove")
        settled: dict[str | None, bytes] = {one.name: self._settled(one) for one in sets}
        pieces = [
            settled.get(slot.name, slot.encoded)
            for slot in self._slots
            if slot.name not in removed
            and not (slot.name in settled and slot is not self._first[slot.name])
        ]
        pieces += [piece for name, piece in settled.items() if name not in self._first]
        return None if pieces == [slot.encoded for slot in self._slots] else pieces

    def _check_name(self, name: str, asked: Collection[str]) -> None:
        if not name:
            raise EditRefused(f"a {self._what} without a name: a name is expected")
        why = self._lock(name)
        if why is not None:
            raise EditRefused(f"{self._what} {name!r}: it can't be changed, {why}")
        if name in asked:
            raise EditRefused(f"{self._what} {name!r}: it is named twice; once is expected")

    def _settled(self, one: PropertyEdit) -> bytes:
        old, where = self._first.get(one.name), f"{self._what} {one.name!r}"
        type_ = one.type or (ValueType.STRING if old is None else old.type)
        if type_ not in self._types:
            known = ", ".join(self._types)
            raise EditRefused(f"{where}: it can't be of type {type_} here; expected: {known}")
        if old is not None and (old.type, old.text) == (type_, one.value):
            return old.encoded
        value = read_value(where, type_, one.value)
        return self._tree.encode(self._what, one.name, type_, value)

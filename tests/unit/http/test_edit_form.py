"""A form that is sent off as a browser shows it edits nothing, whatever is in the message."""

import re

from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.http.console.edit_pages import _editable, read_edit
from amqsidecar.model.message import (
    EDITABLE_TYPES,
    BodyKind,
    BodyView,
    MessageEdit,
    MessageView,
    PropertyEdit,
    TypedValue,
    ValueType,
)
from amqsidecar.operations.message import is_typable
from support.wires.fuzz import fuzz

texts = st.text(st.sampled_from("a\r\n\t\0\x0bé😀\ud83d"), max_size=8) | st.text(max_size=8)
properties = st.lists(
    st.builds(
        TypedValue,
        name=st.text(min_size=1, max_size=5),
        type=st.sampled_from(ValueType),
        value=texts,
        is_cut=st.booleans(),
        locked=st.none() | st.just("why"),
    ),
    max_size=6,
)


def view(properties: list[TypedValue], text: str) -> MessageView:
    return MessageView(
        wire="AMQP 1.0",
        properties=tuple(properties),
        body=BodyView(kind=BodyKind.TEXT, text=text),
        size_bytes=1,
        property_types=EDITABLE_TYPES,
        body_as_text=True,
    )


def sent(text: str) -> str:
    """What a browser makes of the text of a field."""
    shown = text.replace("\0", "\ufffd").encode(errors="replace").decode()
    return re.sub(r"\r\n|\r|\n", "\r\n", shown)


def form_of(looks: MessageView) -> dict[str, str]:
    form = {"text": sent(looks.body.text)}
    for at, one in enumerate(_editable(looks)):
        form |= {f"value-{at}": sent(one.value), f"type-{at}": str(one.type)}
        assert one.type in looks.property_types
    return form


@fuzz
@given(properties, texts)
def test_what_is_sent_as_it_was_shown_is_no_edit(found: list[TypedValue], text: str) -> None:
    looks = view(found, text)
    assert read_edit(form_of(looks), looks) == MessageEdit()


def test_what_is_typed_is_what_is_meant() -> None:
    lines = TypedValue(name="a", type=ValueType.STRING, value="1\n2")
    looks = view([lines], "x\ny")
    form = {**form_of(looks), "value-0": "1\r\n3", "text": "x\r\nz"}
    assert read_edit(form, looks) == MessageEdit(
        text="x\nz",
        set_properties=(PropertyEdit(name="a", value="1\n3", type=ValueType.STRING),),
    )
    assert not is_typable("a\0b")

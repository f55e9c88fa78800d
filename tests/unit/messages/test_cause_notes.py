"""Notes in the messages of each wire."""

import pytest

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.messages.cause_notes import read_cause_note

NOTE = '{"message_id":"ID:m1","exception":"shop.NoStock"}'


def stomp(body: bytes) -> bytes:
    return b"content-length:%d\n\n%b" % (len(body), body)


@pytest.mark.parametrize(
    "body", [NOTE.encode(), b"\0\x53\x77" + amqp.string(NOTE)], ids=["plain", "of an AMQP client"]
)
def test_a_note_is_read_also_as_classics_stock_amqp_connector_wraps_it(body: bytes) -> None:
    note = read_cause_note("stomp/1.2", stomp(body))
    assert (note.message_id, note.exception) == ("m1", "shop.NoStock")


@pytest.mark.parametrize("body", [b"\xff{", b"\0\x53\x77\xa1\x09{"])
def test_other_bytes_are_none(body: bytes) -> None:
    with pytest.raises(UndecodableMessage):
        read_cause_note("stomp/1.2", stomp(body))

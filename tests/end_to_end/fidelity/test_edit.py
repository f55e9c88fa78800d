"""An edited message reaches its consumer with the edit, and with everything else as it was."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from amqsidecar.clock import SystemClock
from amqsidecar.messages.edit import edit_message
from amqsidecar.messages.view import view_message
from amqsidecar.model.message import BodyKind, MessageEdit, MessageView, PropertyEdit, ValueType
from amqsidecar.model.schedule import RowFilter, RowView
from amqsidecar.operations.message import edit_and_retry, message_page
from amqsidecar.stores.sqlite.store import SqliteStore
from support.brokers.real import Broker
from support.jms.message import JmsMessage
from support.jms.peer import JmsPeer
from support.sidecar.process import SidecarProcess
from support.waiting import eventually
from support.wires.stomp_peer import StompPeer

pytestmark = pytest.mark.broker

POLICIES = Path(__file__).parents[1] / "policies"
TEXT = "edited: é € 😀\n2nd line"
ENTRY = "edited"
PROPERTIES = (
    PropertyEdit(name="p_string", value="changed é€"),
    PropertyEdit(name="p_short", value="-7"),
    PropertyEdit(name="p_long", value="1.25", type=ValueType.DOUBLE),
    PropertyEdit(name="added", value="true", type=ValueType.BOOLEAN),
)
EDITED_PROPERTIES = {
    "p_string": ["String", "changed é€"],
    "p_short": ["Short", -7],
    "p_long": ["Double", 1.25],
    "added": ["Boolean", True],
}
OF_ONE_MESSAGE = (
    *("testId", "amqsidecarRedeliveryId", "amqsidecarRedeliveryCheck"),
    "amqsidecarOriginalMessageId",
)
"""Properties in which two redeliveries of equal messages differ."""


@dataclass
class Site:
    """A sidecar at a broker, its store as the console has it, and the applications."""

    sidecar: SidecarProcess
    store: SqliteStore
    peer: JmsPeer
    how: str

    def rows(self, queue: str, count: int) -> dict[str, tuple[RowView, MessageView]]:
        """Wait for dead letters; returns each with what people see of it, by its test id."""
        destination = RowFilter(destination=f"queue://{queue}")

        def found() -> list[RowView] | None:
            rows = self.store.list_rows(destination, 100)
            return rows if len(rows) == count else None

        views = {}
        for row in eventually(found, what=f"{count} rows for {queue}"):
            view = view_message(row.encoding, self.store.message(row.id) or b"")
            test_id = next(one.value for one in view.properties if one.name == "testId")
            views[test_id] = row, view
        return views

    def edit(self, row: RowView, change: MessageEdit) -> None:
        now_ms = SystemClock().now_ms()
        edit_and_retry(self.store, row.id, change, edit_message, now_ms=now_ms, actor="cli:test")


def attach(broker: Broker, provider: str, url: str, policy: str, folder: Path) -> Iterator[Site]:
    sets = ["intake.backlog=process"]
    with SidecarProcess(folder, url, policy=POLICIES / policy, sets=sets) as sidecar:
        sidecar.start()
        store = SqliteStore(folder / "schedule.db", clock=SystemClock())
        store.open()
        how = "reject" if provider == "qpid" else "rollback"
        yield Site(sidecar, store, JmsPeer.of(broker, provider), how)
        store.close()


@pytest.fixture(params=["artemis", "classic"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    if request.param == "artemis":
        broker = request.getfixturevalue("artemis")
        yield from attach(broker, "qpid", broker.amqp_url, "artemis.yaml", tmp_path)
    else:
        broker = request.getfixturevalue("classic_6")
        yield from attach(broker, "openwire", broker.openwire_url, "redelivery.yaml", tmp_path)


EDITS = {
    "Text": MessageEdit(text=TEXT, set_properties=PROPERTIES, remove_properties=("p_empty",)),
    "Bytes": MessageEdit(
        data=bytes(range(256)), set_properties=PROPERTIES, remove_properties=("p_empty",)
    ),
    "Map": MessageEdit(
        set_entries=(
            PropertyEdit(name="added", value=ENTRY),
            PropertyEdit(name="number", value="5", type=ValueType.INT),
        ),
        set_properties=PROPERTIES,
        remove_properties=("p_empty",),
    ),
}


def test_a_consumer_gets_the_edit_and_all_else_as_before(site: Site, unique: str) -> None:
    """Beside an equal message that died and was re-sent unedited, only the edit differs."""
    queue, peer = f"e2e.late.{unique}", site.peer
    sent = peer.produce(queue, list(EDITS), count=2)
    peer.fail(queue, site.how, messages=6, deliveries=1, quiet_ms=0)
    rows = site.rows(queue, 6)
    pairs = {kind: [one.test_id for one in sent if one.type == kind] for kind in EDITS}
    for kind, (edited, _) in pairs.items():
        row, view = rows[edited]
        assert view.problems == ()
        site.edit(row, EDITS[kind])
    site.sidecar.json_command("retry", "--destination", queue, "--yes")

    got = {one.test_id: one for one in peer.consume(queue, count=6)}
    ids = {one.test_id: one.message_id for one in sent}
    for kind, (edited, plain) in pairs.items():
        found, beside = got[edited], got[plain]
        assert edited_body(kind, found, beside) == ""
        properties = {name: found.properties.get(name) for name in EDITED_PROPERTIES}
        assert properties == EDITED_PROPERTIES
        assert "p_empty" not in found.properties
        changed = (*EDITED_PROPERTIES, "p_empty", *OF_ONE_MESSAGE)
        differing = found.differences(beside, without_properties=changed)
        assert [one for one in differing if not one.startswith(("body:", "group seq"))] == []
        assert found.value("amqsidecarOriginalMessageId") == ids[edited]
    check_page(site, rows[pairs["Text"][0]][0])


def edited_body(kind: str, found: JmsMessage, beside: JmsMessage) -> str:
    """Return what is wrong with the body of an edited message; "" = nothing."""
    bodies: Mapping[str, Callable[[], object]] = {
        "Text": lambda: TEXT,
        "Bytes": lambda: bytes(range(256)).hex(),
        "Map": lambda: {**beside.body, "added": ["String", ENTRY], "number": ["Integer", 5]},
    }
    expected = bodies[kind]()
    return "" if found.body == expected else f"{found.body!r} != {expected!r}"


def check_page(site: Site, row: RowView) -> None:
    """The message's page has the edit with the original, and its author."""

    def page() -> list[str]:
        found = message_page(
            site.store, row.redelivery_id, "", SystemClock().now_ms(), view_message
        )
        assert found is not None
        [original] = found.originals
        assert (original.actor, original.view.body.kind) == ("cli:test", BodyKind.TEXT)
        assert original.view.body.text != TEXT
        return [one.kind for one in found.life]

    kinds = eventually(lambda: kinds if "resent" in (kinds := page()) else None, what="a re-send")
    # Why each once: the retry of all may come before the service has sent what was edited.
    assert list(dict.fromkeys(kinds)) == ["received", "scheduled", "edited", "retried", "resent"]


def test_a_compressed_body_is_edited_and_stays_compressed(
    classic_6: Broker, tmp_path: Path, unique: str
) -> None:
    """Clients with `jms.useCompression` write them; each type has its own form."""
    queue = f"e2e.late.{unique}"
    url = classic_6.openwire_url
    for site in attach(classic_6, "openwire", url, "redelivery.yaml", tmp_path):
        packing = JmsPeer.of(classic_6, "openwire", url_options={"jms.useCompression": "true"})
        sent = packing.produce(queue, list(EDITS), body_size=500)
        site.peer.fail(queue, site.how, messages=3, deliveries=1, quiet_ms=0)
        rows = site.rows(queue, 3)
        for one in sent:
            row, view = rows[one.test_id]
            assert (view.problems, view.body.is_compressed) == ((), True)
            # Why before: the sidecar sends an edited message at once.
            message = site.store.message(row.id)
            assert message is not None
            edited = edit_message(row.encoding, message, EDITS[one.type])
            assert view_message(row.encoding, edited).body.is_compressed
            site.edit(row, EDITS[one.type])
        before = {one.type: one for one in sent}
        for found in site.peer.consume(queue, count=3):
            assert edited_body(found.type, found, before[found.type]) == ""


def test_over_stomp_a_text_stays_a_text_and_bytes_stay_bytes(
    classic_6: Broker, tmp_path: Path, unique: str
) -> None:
    queue = f"e2e.late.{unique}"
    headers = {"own": "x", "other": "ä:\\n", "correlation-id": "c-1"}
    lengths = {"text": {}, "bytes": {"content-length": "3"}}
    edit = MessageEdit(
        text="né w",
        set_properties=(
            PropertyEdit(name="own", value="a:b\nc"),
            PropertyEdit(name="n", value=""),
        ),
    )
    url = classic_6.stomp_url
    with StompPeer(classic_6.ports["STOMP_PORT"]) as stomp:
        stomp.subscribe(f"/queue/{queue}")
        for kind, length in lengths.items():
            stomp.send(f"/queue/{queue}", {**headers, **length, "testId": kind}, b"old")
            stomp.nack(stomp.receive())
        for site in attach(classic_6, "openwire", url, "redelivery.yaml", tmp_path):
            for row, _ in site.rows(queue, 2).values():
                site.edit(row, edit)
            for _ in lengths:
                found = stomp.receive()
                stomp.ack(found)
                assert found.body == "né w".encode()
                is_bytes = found.headers["testId"] == "bytes"
                assert ("content-length" in found.headers) == is_bytes
                told = {name: found.headers.get(name) for name in ("own", "n", *headers)}
                assert told == {**headers, "own": "a:b\nc", "n": ""}

"""Everything has exhausted: from the first look to proven success, and taken back through kills."""

import dataclasses
import json
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Locator, Page, expect

from amqsidecar.engine import crash_points
from amqsidecar.wiring.app import CRASH_POINT_VARIABLE
from support.brokers.broker_xml import STOCK_ADDRESS_SETTINGS, attempts_without_limit
from support.brokers.purge import purge
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.brokers.web_console import ConsoleBroker
from support.jms.message import JmsMessage
from support.jms.peer import JmsPeer
from support.sidecar.observed import is_counted
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.tier import at_length
from support.versions import CLASSIC_5, CLASSIC_6
from support.waiting import PATIENCE_S, eventually
from support.web.chromium import opened_page, running_chromium
from support.web.client import fetch, web_client
from support.wires.stomp_peer import StompPeer

pytestmark = pytest.mark.broker

ALL, OURS = at_length((5_000, 300), otherwise=(200, 100))
NOT_NAMED = 300
KILLED = at_length(400, otherwise=200)
CLASSIC_POLICY = """\
plugins:
  - redelivery:
      default_entry:
        maximum_redeliveries: 1
        initial_redelivery_delay_ms: 100
"""
ARTEMIS_POLICY = """\
address_settings:
  - match: "#"
    dead_letter_address: DLQ
    max_delivery_attempts: 2
    redelivery_delay_ms: 100
"""
ARTEMIS_SETTINGS = attempts_without_limit("DLQ", "DLQ.exhausted")
KEEP = "redelivery.exhausted=keep"


class Site:
    """Two queues whose messages all fail until none is redelivered any more."""

    def __init__(self, broker: Broker, folder: Path, unique: str, wire: str = "") -> None:
        is_artemis = isinstance(broker, ArtemisBroker)
        self.wire = wire
        self.peer = JmsPeer.of(broker, "qpid" if is_artemis else "openwire")
        self.ours_by = JmsPeer.of(broker, "core" if is_artemis else "openwire")
        self.how = "reject" if is_artemis else "rollback"
        self.ours, self.others = f"{unique}.orders", f"{unique}.bills"
        self.final = "DLQ.exhausted" if is_artemis else "ActiveMQ.DLQ.exhausted"
        policy = write_policy(folder, ARTEMIS_POLICY if is_artemis else CLASSIC_POLICY)
        # Why: what the two clients have made lies in one queue, and goes back over two wires.
        url = broker.pair_url if isinstance(broker, ArtemisBroker) else broker.openwire_url
        sets = ["intake.backlog=process", "broker.idle_timeout_s=2"]
        if isinstance(broker, ClassicBroker) and wire == "stomp":
            url = broker.stomp_url
            sets.append("intake.allow_lossy=[property_types]")
        elif isinstance(broker, ClassicBroker) and wire == "amqp":
            url = broker.amqp_jms_url
            sets.append(f"intake.origin={{ActiveMQ.DLQ: {self.ours}}}")
        if isinstance(broker, ConsoleBroker):
            secret = folder / "password"
            secret.write_text("admin\n")
            sets.append(f"broker.jolokia_url={broker.jolokia_url}")
            sets.append(f"broker.jolokia_password_file={secret}")
        self.sidecar = SidecarProcess(folder, url, policy=policy, sets=sets)
        self.stomp_port = broker.ports["STOMP_PORT"] if isinstance(broker, ClassicBroker) else 0

    def exhaust(self, queue: str, count: int) -> None:
        """Let messages die until they have used up their redeliveries."""
        by = self.ours_by if queue == self.ours else self.peer
        by.fill(queue, count, size=100, test_id=f"{queue}-")
        self.fail(queue, count)

    def fail(self, queue: str, count: int) -> None:
        """Let messages that are in a queue die until they have used up their redeliveries."""
        before = self.exhausted(queue)
        with self.peer.start_flaky_consumer(queue, failures=-1, how=self.how):
            eventually(
                lambda: self.exhausted(queue) == before + count,
                within_s=180,
                what=f"all of {queue} has exhausted",
            )

    def status(self) -> dict[str, Any]:
        """Return how the schedule stands between two cycles, as JSON."""
        found: dict[str, Any] = msgspec.to_builtins(self.sidecar.finished_status())
        return found

    def exhausted(self, queue: str, *, in_queue: bool | None = None) -> int:
        return sum(
            one["count"]
            for one in self.status()["exhausted"]
            if one["destination"] == f"queue://{queue}" and in_queue in (None, one["is_in_queue"])
        )

    def address(self) -> str:
        [started] = [line for line in self.sidecar.log_lines() if line.get("event") == "started"]
        return f"http://{started['http']}"

    def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, str]:
        with web_client(self.address()) as client:
            csrf = client.get("/api/v1/session").json()["csrf"]
            answer = client.post(path, json=body, headers={"X-CSRF-Token": csrf})
        return answer.status_code, answer.text

    def wait_until_counted(self) -> None:
        """Wait until what is re-sent to our queue from now on can be proved consumed."""
        eventually(lambda: is_counted(self.sidecar, self.ours), what="our queue is watched")

    def lying(self, count: int) -> list[JmsMessage]:
        """Return what lies in the final queue, once a browser shows this number.

        Why once: under load a browser of Classic has shown none of them.
        """
        found: list[JmsMessage] = []

        def are_shown() -> bool:
            found[:] = self.peer.browse(self.final)
            return len(found) == count

        eventually(are_shown, what=f"a browser shows {count} final messages")
        return found

    def keep(self) -> None:
        """From now on exhausted messages stay in the schedule."""
        self.sidecar.options.append(KEEP)


on_classic_in_proof = pytest.mark.parametrize(
    "broker", [pytest.param("classic", marks=pytest.mark.proof), "artemis"], indirect=True
)
on_artemis_in_proof = pytest.mark.parametrize(
    "broker", ["classic", pytest.param("artemis", marks=pytest.mark.proof)], indirect=True
)
# Why with its console: a stock Classic shows its counters nowhere else.
on_counting_in_proof = pytest.mark.parametrize(
    "broker", [pytest.param("classic_console", marks=pytest.mark.proof), "artemis"], indirect=True
)


def make_broker(kind: str) -> Broker:
    """Return a broker that makes final queues, not started yet."""
    if kind == "classic":
        return ClassicBroker()
    if kind == "classic_console":
        return ConsoleBroker()
    return ArtemisBroker(address_settings=STOCK_ADDRESS_SETTINGS + ARTEMIS_SETTINGS)


@pytest.fixture(scope="module", params=["classic", "artemis"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of our own, so that no other test's messages are in its final queue."""
    with make_broker(request.param) as running:
        yield running


@pytest.fixture
def site(broker: Broker, tmp_path: Path, unique: str) -> Iterator[Site]:
    site = Site(broker, tmp_path, unique)
    with site.sidecar:
        yield site
    # Why: the next test's sidecar would know them for its own once it has put them back.
    lies_there = any(one["is_in_queue"] for one in site.status()["exhausted"])
    # Why also by the schedule: under load a browser of Classic has shown none of them.
    if site.peer.browse(site.final) or (lies_there and isinstance(broker, ClassicBroker)):
        purge(broker, site.final)


@on_artemis_in_proof
def test_what_lies_in_the_final_queue_is_shown_and_does_not_move(
    site: Site, tmp_path: Path
) -> None:
    site.sidecar.start()
    site.exhaust(site.ours, 5)

    def lying() -> list[tuple[str, str, object]]:
        return [(one.test_id, one.message_id, one.body) for one in site.peer.browse(site.final)]

    before = lying()
    [row, *_] = site.sidecar.rows("--state", "exhausted", "--limit", "1")
    number = str(row["id"])
    page = json.loads(site.sidecar.get(f"/api/v1/messages/{number}")[1])
    properties = {one["name"]: one["value"] for one in page["view"]["properties"]}
    assert properties["testId"] in [one[0] for one in before]
    assert page["view"]["body"]["size_bytes"] > 0
    assert page["unseen"] == ""
    assert "nothing moved" in site.sidecar.get(f"/messages/one?id={number}")[1]
    content = fetch(f"{site.address()}/api/v1/messages/{number}/content").content
    assert len(content) == page["view"]["size_bytes"]
    said = site.sidecar.run_command("show", number, "--content")
    assert f"testId (string) = {properties['testId']}" in said
    assert site.sidecar.json_command("show", "--content", number)["body"] == page["view"]["body"]
    saved = tmp_path / "saved.bin"
    site.sidecar.run_command("show", number, "--save", str(saved))
    assert saved.read_bytes() == content
    assert lying() == before
    assert site.exhausted(site.ours, in_queue=True) == 5
    site.peer.consume(site.final, count=5)
    page = json.loads(site.sidecar.get(f"/api/v1/messages/{number}")[1])
    assert page["view"] is None
    assert "does not show it" in page["unseen"]


def test_what_others_took_out_of_the_final_queue_is_missed(site: Site, broker: Broker) -> None:
    """Classic does not show without counters that they are gone: then the whole queue is read."""
    site.sidecar.start()
    site.exhaust(site.ours, 20)
    site.exhaust(site.others, 1)
    taken = {one.test_id for one in site.peer.consume(site.final, count=8)}
    site.sidecar.run_command("retry", "--destination", f"queue://{site.ours}", "--yes")
    eventually(lambda: site.status()["total"] == 1, what="all is sent or missed")
    lives = {one.test_id for one in site.peer.consume(site.ours, count=12)}
    assert len(lives | taken) == 20
    eventually(lambda: "exhausted_gone" in site.sidecar.log(), what="the log says what is missed")
    assert ("final_queue_read_whole" in site.sidecar.log()) == isinstance(broker, ClassicBroker)
    assert len(site.lying(1)) == 1


@on_classic_in_proof
def test_messages_of_unread_queues_are_counted_that_the_schedule_does_not_know(
    site: Site,
) -> None:
    """Those of a final queue from before the sidecar came, and of one that is not named."""
    is_artemis = site.final.startswith("DLQ")
    site.sidecar.options.append("outcomes.interval_s=1")
    site.peer.fill(site.final, 12, size=100, test_id="old-")
    site.sidecar.start()
    site.exhaust(site.ours, 5)

    def unknown() -> dict[str, int]:
        return {one["queue"]: one["count"] for one in site.status()["unknown"]}

    eventually(
        lambda: unknown() == {f"queue://{site.final}": 12},
        within_s=PATIENCE_S + 60,
        every_s=1,
        what="the queue was looked at twice since its last message came",
        last=lambda _: str(site.status()),
    )
    assert f"12 in queue://{site.final} are not in the schedule" in site.sidecar.run_command(
        "status"
    )
    address = json.loads(site.sidecar.get("/api/v1/overview")[1])
    assert [one["count"] for one in address["unknown"]] == [12]
    site.sidecar.stop()

    # Now it reads another queue, so the broker's own is one that nobody reads.
    unread = site.final.removesuffix(".exhausted")
    site.sidecar.options.append(f"intake.queues=[DLQ.{site.ours}]")
    site.peer.fill(f"DLQ.{site.ours}" if is_artemis else unread, 1, size=10, test_id="x-")
    site.peer.fill(unread, 7, size=100, test_id="unread-")
    site.sidecar.start()
    eventually(
        lambda: unknown().get(f"queue://{unread}", 0) >= 7,
        within_s=PATIENCE_S + 60,
        every_s=1,
        what="the queue that is not read was looked at",
        last=lambda _: str(site.status()),
    )
    site.sidecar.stop()
    # Why all of it: the next test's sidecar reads this queue.
    assert len(site.peer.consume(unread, count=7 if is_artemis else 8)) >= 7


@on_classic_in_proof
def test_an_exhausted_message_is_edited_in_one_step(site: Site) -> None:
    """It lies in its final queue: by command line and by API it comes out, or goes back as it was.

    A refused edit, and a text that is the old one, leave it where it lay.
    """
    site.sidecar.start()
    site.exhaust(site.ours, 6)
    chosen = ("--state", "exhausted", "--destination", site.ours)
    listed = site.sidecar.rows(*chosen)
    by_command, by_api, refused, *_ = sorted(row["id"] for row in listed)
    before = {one.test_id: one for one in site.lying(6)}

    shown = site.sidecar.try_command("edit", str(refused), "--property", "a=b", "--dry-run")
    assert shown.returncode == 2
    assert f"amqsidecar take-back {refused}" in shown.stderr
    wrong = site.sidecar.try_command("edit", str(refused), "--without", "nothing", "--yes")
    assert wrong.returncode == 2
    assert "it stays in its final dead-letter queue" in wrong.stderr
    # Why: nobody can edit it while it goes back.
    all_back(site, 6)
    status, text = site.post(
        f"/api/v1/messages/{refused}/edit", {"change": {"remove_properties": ["nothing"]}}
    )
    assert (status, "nothing" in text) == (400, True)
    all_back(site, 6)
    after = {one.test_id: one for one in site.lying(6)}
    assert {key: one.body for key, one in after.items()} == {
        key: one.body for key, one in before.items()
    }

    site.sidecar.run_command("edit", str(by_command), "--property", "mended=yes", "--yes")
    [mended] = site.peer.consume(site.ours, count=1)
    assert mended.value("mended") == "yes"
    assert mended.value("amqsidecarRedeliveryId") == row_of(listed, by_command)["redelivery_id"]
    change = {"set_properties": [{"name": "mended", "value": "too"}]}
    status, _ = site.post(f"/api/v1/messages/{by_api}/edit", {"change": change, "reason": "OPS-1"})
    assert status == 201
    [mended] = site.peer.consume(site.ours, count=1)
    assert mended.value("mended") == "too"
    assert mended.value("amqsidecarRedeliveryId") == row_of(listed, by_api)["redelivery_id"]
    for edited in (by_command, by_api):
        history = site.sidecar.run_command("show", str(edited))
        assert row_of(listed, edited)["redelivery_id"] in history
    all_back(site, 4)


def all_back(site: Site, count: int) -> None:
    """Wait until only the messages not chosen are in their final queue again."""
    eventually(
        lambda: site.exhausted(site.ours, in_queue=True) == count == site.status()["total"],
        what="what nobody chose is in its final queue",
        last=lambda _: str(site.sidecar.rows()),
    )
    site.lying(count)


def row_of(rows: Sequence[Mapping[str, Any]], row_id: int) -> Mapping[str, Any]:
    return next(row for row in rows if row["id"] == row_id)


@on_classic_in_proof
def test_killed_while_named_ones_are_taken_back_none_is_lost_or_doubled(site: Site) -> None:
    site.sidecar.start()
    site.exhaust(site.others, NOT_NAMED)
    site.exhaust(site.ours, 2 * KILLED)
    assert site.sidecar.stop() == 0
    site.sidecar.run_command("retry", "--state", "exhausted", "--destination", site.ours, "--yes")
    kill_everywhere(site, at_length((1, 3), otherwise=(3,)))
    all_are_once(site, chosen=2 * KILLED, others=site.others, left=NOT_NAMED)


@pytest.mark.proof
def test_killed_over_each_wire_none_is_lost_or_doubled(on_wire: Site) -> None:
    """Every second message is taken back, so that others lie before and behind each of them."""
    on_wire.sidecar.start()
    on_wire.exhaust(on_wire.ours, 2 * KILLED)
    assert on_wire.sidecar.stop() == 0
    rows = on_wire.sidecar.rows("--limit", str(2 * KILLED))
    ids = [str(row["id"]) for row in rows[1::2]]
    on_wire.sidecar.run_command("retry", *ids, "--yes")
    kill_everywhere(on_wire, (1,))
    all_are_once(on_wire, chosen=KILLED, others=on_wire.ours, left=KILLED)


def all_are_once(site: Site, *, chosen: int, others: str, left: int) -> None:
    """Wait until what was chosen of ours is consumed once, and the rest lies where it lay."""
    consumed = site.peer.consume(site.ours, count=chosen)
    assert len({one.test_id for one in consumed}) == chosen
    assert site.peer.consume(site.ours, wait_ms=300) == []
    eventually(
        lambda: site.exhausted(others, in_queue=True) == left == site.status()["total"],
        what="what nobody chose is in its final queue",
    )
    lying = site.peer.consume(site.final, count=left)
    assert len({one.test_id for one in lying}) == left
    assert site.peer.consume(site.final, wait_ms=300) == []


def kill_everywhere(site: Site, times: Sequence[int]) -> None:
    """Kill the sidecar at each crash point, when it comes there that many times; let it live."""
    site.sidecar.options.append("cycle.max_messages=20")
    for name in crash_points.NAMES:
        for hits in times:
            site.sidecar.die_at(f"{name}:{hits}")
    site.sidecar.start()


@pytest.fixture(
    params=[
        (CLASSIC_6, "openwire"),
        (CLASSIC_6, "stomp"),
        *(
            pytest.param((version, wire), marks=pytest.mark.proof)
            for version, wire in (
                (CLASSIC_6, "amqp"),
                *((CLASSIC_5, wire) for wire in ("openwire", "stomp", "amqp")),
            )
        ),
    ],
    ids="-".join,
)
def on_wire(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Iterator[Site]:
    """A Classic of our own, with a sidecar over one of its wires."""
    version, wire = request.param
    with ClassicBroker(version) as broker:
        site = Site(broker, tmp_path, unique, wire)
        with site.sidecar:
            yield site


def test_messages_not_chosen_stay_in_their_place_as_they_are(on_wire: Site) -> None:
    """Over each wire of Classic: no selector reaches beyond the first of a long queue."""
    site, count, chosen = on_wire, 12, 4
    expires_ms = int(time.time() * 1000) + 3_600_000
    site.sidecar.start()
    with StompPeer(site.stomp_port) as stomp:
        # Strangers, which the schedule does not know, before, between and behind the others.
        for number in range(3):
            headers = {"testId": f"s{number}", "persistent": "true"}
            headers["expires"] = str(expires_ms + number)
            stomp.send(f"/queue/{site.final}", headers, b"text")
            for known in range(number * count // 2, (number + 1) * count // 2):
                if known < count:
                    stomp.send(f"/queue/{site.ours}", {"testId": f"m{known:02}"}, b"text")
            if number < 2:
                site.fail(site.ours, count // 2)
    before = site.lying(count + 3)
    names = [one.test_id for one in before]
    assert [names.index(f"s{number}") for number in range(3)] == [0, 1 + count // 2, 2 + count]
    rows = site.sidecar.rows("--limit", str(count))
    # Why the last: all that lies before them is handed out.
    site.sidecar.run_command("retry", *(str(row["id"]) for row in rows[-chosen:]))
    lives = {one.test_id for one in site.peer.consume(site.ours, count=chosen)}
    after = site.lying(count + 3 - chosen)
    left = [one for one in before if one.test_id not in lives]
    assert list(map(kept, after)) == list(map(kept, left))
    if site.wire != "stomp":
        assert [one.delivery_count for one in after] == [one.delivery_count for one in left]


def kept(message: JmsMessage) -> JmsMessage:
    """Return what each wire leaves as it was.

    When a STOMP consumer ends, Classic counts all that it was handed as delivered once more.
    """
    headers = {name: one for name, one in message.headers.items() if name != "JMSRedelivered"}
    return dataclasses.replace(message, received_at_ms=0, delivery_count=None, headers=headers)


class Person:
    """Somebody at the console, whose clicks and keys are counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = self.keys = 0
        self.began_s = time.monotonic()

    def click(self, place: Locator) -> None:
        self.clicks += 1
        place.click()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.keys += 1
            self.page.keyboard.press(key)

    def write(self, field: str, text: str) -> None:
        self.click(self.page.get_by_label(field))
        self.press("Control+a", *text)

    def told(self) -> str:
        seconds = time.monotonic() - self.began_s
        return f"{self.clicks} clicks, {self.keys} keys, {seconds:.0f} seconds"


def play_the_rest_of_the_night(page: Page, person: Person, site: Site) -> None:
    """Redirect the 20 oldest, discard the next 10 and restore them, and leave a note."""
    repair, state = f"{site.others}.repair", page.locator("#live .badge").first

    def choose(action: str, left: int, count: int) -> None:
        person.click(page.get_by_role("link", name=f"{left:,} of queue://{site.others}"))
        person.click(page.get_by_role("link", name=f"{action}…"))
        person.write("Only the oldest", str(count))
        person.press("Enter")
        expect(page.get_by_text(f"{count} messages would be changed")).to_be_visible()

    choose("Redirect", ALL - OURS, 20)
    person.write("Destination", repair)
    person.click(page.get_by_role("radio", name="At once"))
    person.click(page.get_by_role("button", name="Redirect 20 messages"))
    expect(page.get_by_role("alert")).to_contain_text("does not exist")
    person.click(page.get_by_role("button", name="Redirect 20 messages"))
    expect(state).to_have_text("done")
    assert len(site.peer.consume(repair, count=20)) == 20

    person.press("g", "o")
    choose("Discard", ALL - OURS - 20, 10)
    person.click(page.get_by_role("checkbox", name="I know that"))
    person.click(page.get_by_role("button", name="Discard 10 messages"))
    expect(state).to_have_text("done")
    person.click(page.get_by_role("button", name="Undo the discard"))
    expect(state).to_have_text("undone")

    person.press("g", "g")
    person.click(page.locator("tr", has_text=site.others).get_by_role("link").first)
    person.write("Note for others", "OPS-1207: 20 are in repair.")
    person.click(page.get_by_role("button", name="Keep this note"))
    expect(page.locator("#notes")).to_be_visible()
    person.press("g", "o")
    expect(page.get_by_text("OPS-1207: 20 are in repair.")).to_be_visible()
    assert site.exhausted(site.others) == ALL - OURS - 20


@on_counting_in_proof
@pytest.mark.browser
def test_paged_at_three_some_of_many_at_the_console(site: Site, broker: Broker) -> None:
    site.keep()
    # Why: no window of a few seconds may go by without a look.
    site.sidecar.options.append("outcomes.interval_s=1")
    site.sidecar.start()
    site.exhaust(site.others, ALL - OURS)
    site.exhaust(site.ours, OURS)
    site.wait_until_counted()
    with running_chromium() as browser, opened_page(browser, site.address()) as page:
        page.goto("/")
        person = Person(page)
        heading = page.get_by_role("heading", name=f"{ALL:,} exhausted messages wait for a person")
        expect(heading).to_be_visible()
        person.click(page.get_by_role("link", name=f"{OURS} of queue://{site.ours}"))
        expect(page.get_by_role("link", name="Retry…")).to_be_visible()
        person.press("r")
        expect(page.get_by_text(f"{OURS} messages would be changed")).to_be_visible()
        expect(page.locator("#targets")).to_contain_text(f"They go to queue://{site.ours}.")
        person.write("A message may come back for", "5")
        person.write("Reason or ticket", "OPS-1207")
        person.press("Tab", "Enter")
        live = page.locator("#live")
        expect(live.locator(".badge").first).to_have_text("running")
        with site.peer.start_flaky_consumer(site.ours, how=site.how) as consumer:
            expect(live.locator(".badge").first).to_have_text("done")
            tiles = live.locator(".tiles div")
            still = tiles.filter(has_text="re-sent").locator("dd")
            expect(still).to_have_text("0")
            expect(tiles.filter(has_text="came back").locator("dd")).to_have_text("0")
            counts = {
                kind: int(tiles.filter(has_text=kind).locator("dd").inner_text())
                for kind in ("consumed", "unknown")
            }
            assert counts == {"consumed": OURS, "unknown": 0}
            assert len(set(consumer.wait_for_successes(OURS))) == OURS
        person.press("g", "o")
        heading = page.get_by_role("heading", name=f"{ALL - OURS:,} exhausted messages wait")
        expect(heading).to_be_visible()
        expect(page.get_by_role("link", name=f"of queue://{site.ours}")).to_have_count(0)
        play_the_rest_of_the_night(page, person, site)
    print(f"{type(broker).__name__}: {counts}, {person.told()}")


@pytest.mark.postgres
@on_classic_in_proof
def test_what_two_sidecars_keep_and_retry_is_neither_lost_nor_doubled_when_each_is_killed(
    postgres_url: str, site: Site, tmp_path: Path
) -> None:
    """They share one schedule and keep exhausted messages: one is killed, then the other."""
    first, count = site.sidecar, at_length(400, otherwise=100)
    first.options += [f"store.url={postgres_url}", "cycle.max_messages=20", "store.lease_s=2"]
    (tmp_path / "second").mkdir()
    with SidecarProcess(tmp_path / "second", "") as second:
        second.options = first.options
        keep_and_retry(site, second, count)


def keep_and_retry(here: Site, second: SidecarProcess, count: int) -> None:
    first = here.sidecar
    first.start()
    second.start()
    here.exhaust(here.ours, count // 2)
    for one in (first, second):
        assert one.stop() == 0
    here.keep()
    # Half is taken back out of the final queue, mostly by the second one: the first dies of it.
    first.start(ready=False, environ={CRASH_POINT_VARIABLE: "stored:2"})
    second.start()
    assert first.process is not None
    eventually(
        lambda: here.exhausted(here.ours, in_queue=False) == count // 2 == here.status()["total"],
        what="all is taken back into the schedule",
        last=lambda _: str(here.status()),
    )
    if first.process.poll() is None:
        first.kill()
    assert first.process.wait(PATIENCE_S) == -signal.SIGKILL
    assert KEEP in first.options
    # The other half never goes to the final queue.
    first.start()
    # Why ids of their own: what is received is counted by id.
    here.peer.fill(here.ours, count - count // 2, size=100, test_id="second-")
    here.fail(here.ours, count - count // 2)
    assert here.exhausted(here.ours, in_queue=False) == count
    assert here.peer.browse(here.final) == []

    first.stop()
    first.start(ready=False, environ={CRASH_POINT_VARIABLE: "sent:3"})
    first.run_command("retry", "--state", "exhausted", "--yes", "--reason", "all together")
    consumed = here.peer.consume(here.ours, count=count // 2)
    second.kill()
    # Why also by hand: it dies of its third send only if the second has left it one.
    if first.process.poll() is None:
        first.kill()
    assert first.process.wait(PATIENCE_S) == -signal.SIGKILL
    first.start(ready=False)
    consumed += here.peer.consume(here.ours, count=count - len(consumed))
    assert len({one.test_id for one in consumed}) == count == len(consumed)
    assert here.peer.consume(here.ours, wait_ms=1_000) == []
    second.start()
    eventually(lambda: here.status()["total"] == 0, what="nothing is left")
    assert here.peer.browse(here.final) == []
    assert here.peer.consume(here.ours, wait_ms=300) == []

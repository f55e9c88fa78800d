"""What doctor says of real brokers, and that it leaves what it looks at as it was."""

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from proton import Message

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.amqp_artemis.link import AmqpArtemisLink
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.openwire.link import OpenWireLink
from amqsidecar.clock import SystemClock
from amqsidecar.model.destination import queue
from support.brokers.broker_xml import STOCK_ADDRESSES, artemis_xml, classic_xml
from support.brokers.core_acceptor import CoreAcceptorArtemis
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.brokers.web_console import ConsoleBroker
from support.jms.peer import JmsMessage, JmsPeer
from support.links.amqp_artemis import AmqpArtemisHarness, leave_before_commit
from support.links.openwire import OpenWireHarness
from support.machine.ports import free_port
from support.sidecar import forked
from support.sidecar.doctor import Verdict, run_doctor
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_5
from support.waiting import eventually
from support.wires.openwire import WireMessage

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def classic_6() -> Iterator[Broker]:
    """A broker of our own: others leave dead letters and settings in theirs."""
    with ClassicBroker() as started:
        yield started


@pytest.fixture(scope="module")
def classic_5() -> Iterator[Broker]:
    with ClassicBroker(CLASSIC_5) as started:
        yield started


@pytest.fixture(scope="module")
def artemis() -> Iterator[Broker]:
    with ArtemisBroker() as started:
        yield started


@pytest.fixture(params=["classic_6", "artemis", pytest.param("classic_5", marks=pytest.mark.proof)])
def broker(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue(request.param)
    return found


POLICY = {
    "artemis": """
address_settings:
  - match: "#"
    dead_letter_address: "DLQ"
    max_delivery_attempts: 5
    redelivery_delay_ms: 1000
""",
    "classic": """
plugins:
  - redelivery:
      entries:
        - {queue: "test_a_doctor.>", maximum_redeliveries: 3, initial_redelivery_delay_ms: 1000}
""",
}


def best_url(broker: Broker) -> str:
    return broker.pair_url if isinstance(broker, ArtemisBroker) else broker.openwire_url


def peer_of(broker: Broker) -> JmsPeer:
    return JmsPeer.of(broker, "qpid" if broker.kind == "artemis" else "openwire")


def die(broker: Broker, queue: str, count: int = 1) -> None:
    """Leave dead letters of a queue."""
    peer = peer_of(broker)
    peer.produce(queue, "Text", count=count, test_id=queue)
    if broker.kind == "artemis":
        peer.fail(queue, "reject", messages=count, deliveries=1, max_redeliveries=9)
    else:
        peer.fail(queue, messages=count, deliveries=1)


def own_queues(broker: Broker) -> list[str]:
    """Return what doctors have left in a broker, by the broker's own word."""
    if broker.kind == "artemis":
        made = AmqpArtemisLink(
            ArtemisLinkSettings(broker.endpoint("PORT"), clock=SystemClock(), instance="test")
        )
        link = made.look()
        names = link.trials().addresses()
        link.close()
    else:
        look = OpenWireLink(
            ClassicLinkSettings(
                broker.endpoint("OPENWIRE_PORT"), clock=SystemClock(), instance="test"
            )
        ).look()
        look.trials().expand([queue(">")])
        names = tuple(look._queues._names)
        assert "ActiveMQ.DLQ" in names
        look.close()
    return [name for name in names if name.startswith("amqsidecar.token.doctor")]


def test_a_stock_broker_is_fit(broker: Broker, tmp_path: Path) -> None:
    """Over its recommended wire: nothing is a problem, everything was looked at."""
    verdict = run_doctor(best_url(broker), tmp_path)
    assert verdict.problems == []
    assert verdict.code == 0
    for check in ("broker", "permissions", "transactions", "loops", "clock", "final queues"):
        assert [one["severity"] for one in verdict.of(check)] == ["ok"], check
    assert broker.version in verdict.of("broker")[0]["what"]


def test_a_queue_that_is_not_there_is_named(broker: Broker, tmp_path: Path, unique: str) -> None:
    peer_of(broker).produce(unique, "Text", test_id=unique)
    named = f"intake.queues=[{unique}, {unique}.typo]"
    verdict = run_doctor(best_url(broker), tmp_path, named)
    missing = [one for one in verdict.of("dead letters") if "no such queue" in one["what"]]
    assert [one["subject"] for one in missing] == [f"queue://{unique}.typo"]
    assert missing[0]["severity"] == "warning"


def ours_of(messages: list[JmsMessage], unique: str) -> list[JmsMessage]:
    return [one for one in messages if one.test_id.startswith(f"{unique}-")]


def test_dead_letters_are_as_before_and_nothing_is_left(
    broker: Broker, tmp_path: Path, unique: str
) -> None:
    """Order, redelivered flag, delivery count, headers, properties, bodies: as if not looked at."""
    die(broker, unique, count=3)
    dead_letter_queue = "DLQ" if broker.kind == "artemis" else "ActiveMQ.DLQ"
    peer = peer_of(broker)
    # Why waited for: a reject is settled before the dead letter is there.
    before = eventually(
        lambda: len(ours_of(seen := peer.browse(dead_letter_queue), unique)) == 3 and seen,
        what="the dead letters are shown",
    )
    verdict = run_doctor(best_url(broker), tmp_path, "intake.backlog_threshold=1")
    # Why by number: under load a browser of Classic has shown none of them.
    after = eventually(
        lambda: len(seen := peer.browse(dead_letter_queue)) >= len(before) and seen,
        what="the dead letters are shown again",
    )
    taken = peer.consume(
        dead_letter_queue, count=3, selector=f"testId LIKE '{unique}-%'", transacted=True
    )

    assert verdict.problems == []
    [backlog] = verdict.of("backlog")
    assert backlog["severity"] == "warning"
    assert backlog["mend"] == "intake: {backlog: process}"
    assert {"check": "origins", "severity": "ok", "subject": f"queue://{unique}"}.items() <= {
        key: value
        for one in verdict.of("origins")
        if unique in one["subject"]
        for key, value in one.items()
    }.items()
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        assert one.differences(other, without_headers=()) == []
        assert one.delivery_count == other.delivery_count
    for one, other in zip(ours_of(before, unique), taken, strict=True):
        assert one.differences(other, without_headers=()) == []
        assert one.delivery_count == other.delivery_count
    for name in (unique, f"{dead_letter_queue}.exhausted"):
        assert peer.browse(name) == []
    eventually(
        lambda: not {*own_queues(broker)} - {"amqsidecar.token.doctor-stomp-admin"},
        what="no queue of the doctor is left",
    )


def test_what_was_given_up_before_the_sidecar_came_is_counted(
    broker: Broker, tmp_path: Path
) -> None:
    final = "DLQ.exhausted" if broker.kind == "artemis" else "ActiveMQ.DLQ.exhausted"
    [fine] = run_doctor(best_url(broker), tmp_path).of("exhausted")
    peer = peer_of(broker)
    peer.produce(final, "Text", count=3, test_id="given-up")
    verdict = run_doctor(best_url(broker), tmp_path)
    left = peer.consume(final, count=3)

    assert fine["severity"] == "ok"
    [found] = verdict.of("exhausted")
    assert (found["severity"], found["subject"]) == ("note", f"queue://{final}")
    assert "holds 3 messages that are not in the schedule" in found["what"]
    assert found["mend"] == "redelivery: {exhausted: keep}"
    assert [one.delivery_count for one in left] == [1] * 3


@pytest.mark.parametrize("broker", ["classic_6", "artemis"], indirect=True)
def test_a_doctor_does_not_disturb_a_running_sidecar(
    broker: Broker, tmp_path: Path, unique: str
) -> None:
    """The sidecar's link stays up, and what dies meanwhile is taken and comes back."""
    policy = write_policy(tmp_path, POLICY[broker.kind])
    queue_name = f"test_a_doctor.{unique}"
    with SidecarProcess(tmp_path, best_url(broker), policy=policy).start() as sidecar:
        verdict = run_doctor(best_url(broker), tmp_path, policy=policy)
        die(broker, queue_name)
        [back] = peer_of(broker).consume(queue_name, count=1)
        assert sidecar.metric("amqsidecar_link_reconnects_total") == 0
        assert sidecar.metric("amqsidecar_link_up") == 1

    assert verdict.problems == []
    assert back.value("amqsidecarRedeliveryCount") == 1


def test_address_settings_are_refused_on_classic(classic_6: Broker, tmp_path: Path) -> None:
    """By doctor, and by a run before it takes anything: where none acts, messages would be gone."""
    policy = write_policy(tmp_path, POLICY["artemis"])
    verdict = run_doctor(best_url(classic_6), tmp_path, policy=policy)
    words = SidecarProcess(tmp_path, best_url(classic_6), policy=policy).run_refused(expect=78)

    assert verdict.code == 78
    assert [one["check"] for one in verdict.problems] == ["policy"]
    assert "policy.source: holds address settings of Artemis" in words


def test_messages_that_break_stomp_break_no_examination(
    classic_6: Broker, tmp_path: Path, unique: str
) -> None:
    """A run refuses their queue, by a link of its own, and goes on."""
    peer = peer_of(classic_6)
    peer.produce(unique, "Text", count=2)
    peer.produce(unique, "Text", count=3, sample_properties=False, text="plain")
    peer.fail(unique, messages=5, deliveries=1)
    with closing(OpenWireHarness(classic_6, unique)) as openwire:
        openwire.send([WireMessage(compressed=True)])
        try:
            verdict = run_doctor(classic_6.stomp_url, tmp_path)
        finally:
            assert len(openwire.drain_raw("ActiveMQ.DLQ")) == 6
    assert (verdict.code, verdict.problems) == (0, [])
    assert "transactions" in {one["check"] for one in verdict.findings}, "all of it was examined"
    told = [one["what"] for one in verdict.of("fidelity", "note")]
    assert any("the broker can't convert for STOMP" in one for one in told), told


def left(verdict: Verdict) -> set[tuple[str, str]]:
    """Return how many messages doctor reports as left, by reason."""
    told = [re.match(r"(\d+) messages? .*\((\w+)\)", one["what"]) for one in verdict.findings]
    return {(one[1], one[2]) for one in told if one is not None}


ZERO = "a run would leave 0 of the dead letters that wait now"


def test_what_a_run_would_leave_is_counted_on_artemis(
    artemis: Broker, tmp_path: Path, unique: str
) -> None:
    """By the types that the management lists; a run over STOMP leaves as many."""
    peer = JmsPeer.of(artemis, "core")
    peer.produce(unique, ["Text", "Map", "Stream", "Object"], sample_properties=False)
    peer.fail(unique, messages=4, deliveries=10)
    eventually(lambda: len(peer.browse("DLQ")) == 4)
    policy = write_policy(tmp_path, POLICY["artemis"].replace("1000", "3600000"))
    verdicts = [
        run_doctor(url, tmp_path, policy=policy) for url in (artemis.stomp_url, artemis.amqp_url)
    ]
    # Why ended: of what a STOMP connection that dies has in hand, Artemis may keep one.
    with SidecarProcess(tmp_path, artemis.stomp_url, policy=policy).running() as sidecar:
        eventually(lambda: sidecar.left_behind() == 4)
    assert len(peer.consume("DLQ", count=4)) == 4

    assert [left(verdict) for verdict in verdicts] == [
        {("3", "body_type"), ("1", "property_types")},
        {("2", "not_convertible")},
    ]
    emptied = run_doctor(artemis.amqp_url, tmp_path, policy=policy)
    assert ZERO in [one["what"] for one in emptied.of("fidelity", "ok")]


def test_acceptors_are_named_where_a_nack_destroys_messages(tmp_path: Path) -> None:
    """Not those of other protocols; `test_stomp_artemis_link.py` shows that it is so."""
    with CoreAcceptorArtemis() as broker:
        notes = run_doctor(broker.pair_url, tmp_path).of("dead letters", "note")
    assert [one["subject"] for one in notes if "NACK" in one["what"]] == ["artemis"]
    assert [one["subject"] for one in notes if "rejected" in one["what"]] == ["artemis"]


def test_what_a_run_would_leave_is_counted_on_classic(
    classic_6: ClassicBroker, tmp_path: Path, unique: str
) -> None:
    """Over AMQP by looking at each, over OpenWire it is nothing."""
    peer = peer_of(classic_6)
    peer.produce(unique, ["Text", "Message"])
    peer.fail(unique, messages=2, deliveries=1)
    named = ("intake.queues=[ActiveMQ.DLQ]", f"intake.origin={{ActiveMQ.DLQ: {unique}}}")
    mapped = run_doctor(classic_6.amqp_jms_url, tmp_path, *named)
    native = run_doctor(classic_6.amqp_url, tmp_path, *named, "intake.producers=amqp")
    whole = run_doctor(classic_6.openwire_url, tmp_path)
    assert len(peer.consume("ActiveMQ.DLQ", count=2)) == 2

    assert [verdict.problems for verdict in (mapped, native, whole)] == [[], [], []]
    assert left(mapped) == {("1", "body_type")}
    assert left(native) == {("2", "not_amqp_made")}
    assert left(whole) == set()
    assert ZERO in [one["what"] for one in whole.of("fidelity", "ok")]


def test_an_unreachable_broker_is_one_line(tmp_path: Path) -> None:
    """Exit code 69, and nothing on standard output."""
    url = f"broker.url=openwire://127.0.0.1:{free_port()}"
    done = forked.run(["doctor", "--set", url], timeout=120, cwd=tmp_path)
    assert done.returncode == 69
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "can't be reached" in done.stderr


SETTINGS = {
    "#": {"dead-letter-address": "DLQ", "max-size-bytes": "-1"},
    "DLQ": {"expiry-delay": "3600000", "redelivery-delay": "500"},
    "amqsidecar.token.#": {"expiry-delay": "3600000"},
    "gone.#": {"dead-letter-address": "Nowhere"},
    "full.#": {"max-size-bytes": "1000000", "address-full-policy": "DROP"},
    "kept.#": {"dead-letter-address": ""},
    "purged.#": {"dead-letter-address": "Purged"},
    "Purged": {"max-delivery-attempts": "-1"},
}
ADDRESSES = STOCK_ADDRESSES + "".join(
    f'<address name="{name}"><anycast><queue name="{name}"/></anycast></address>'
    for name in ("gone.a", "full.a", "kept.a", "purged.a")
)
PURGED = '<queue name="Purged" purge-on-no-consumers="{}"/>'
ADDRESSES += f'<address name="Purged"><anycast>{PURGED.format("true")}</anycast></address>'


class SetArtemis(ArtemisBroker):
    """Artemis with address settings that can be mended."""

    def __init__(self) -> None:
        self.settings = {match: dict(values) for match, values in SETTINGS.items()}
        self.addresses = ADDRESSES
        super().__init__()

    def _prepare(self) -> None:
        super()._prepare()
        self.write()

    def write(self) -> None:
        settings = "".join(
            f'<address-setting match="{match}">'
            + "".join(f"<{name}>{value}</{name}>" for name, value in values.items())
            + "</address-setting>"
            for match, values in self.settings.items()
        )
        text = artemis_xml(address_settings=settings, addresses=self.addresses)
        self.config_path.write_text(self._filled(text), encoding="utf-8")

    def mend(self, line: str) -> None:
        """Put a line of doctor's where it says."""
        found = re.findall(r'<address-setting match="(.*?)">(.*?)</address-setting>', line)
        if "purge" in line:
            self.addresses = self.addresses.replace(PURGED.format("true"), line)
        elif not found:
            self.addresses += line
        for match, values in found:
            for name, value in re.findall(r"<([\w-]+)>(.*?)</\1>", values):
                self.settings.setdefault(match, {})[name] = value


def test_settings_of_artemis_that_lose_messages_are_named_with_the_line_that_mends_them(
    tmp_path: Path,
) -> None:
    """Each line is put where it says; then the broker is fit."""
    with SetArtemis() as broker:
        die(broker, "kept.b")
        peer_of(broker).produce("full.a", "Text")
        before = run_doctor(broker.amqp_url, tmp_path)
        for one in before.findings:
            if one["mend"] and one["severity"] in ("problem", "warning"):
                broker.mend(one["mend"])
        broker.write()
        broker.restart()
        after = run_doctor(broker.amqp_url, tmp_path)

    said = {(one["subject"], one["mend"]) for one in before.problems}
    assert said == {
        (
            "DLQ",
            '<address-setting match="DLQ"><expiry-delay>-1</expiry-delay></address-setting>',
        ),
        (
            "Nowhere",
            '<address name="Nowhere"><anycast><queue name="Nowhere"/></anycast></address>',
        ),
        ("queue://Purged", PURGED.format("false")),
        *(
            (one["subject"], one["mend"])
            for one in before.of("token queue", "problem")
            if 'match="amqsidecar.token.#"><expiry-delay>-1' in one["mend"]
        ),
    }
    assert before.code == 78
    assert [(one["subject"], one["mend"]) for one in before.of("origins", "warning")] == [
        (
            "full.a",
            '<address-setting match="full.a"><address-full-policy>PAGE</address-full-policy>'
            "</address-setting>",
        )
    ]
    assert after.of("origins", "warning") == []
    assert len(before.of("token queue", "problem")) == 1
    [kept] = [one for one in before.of("dead letters", "warning") if "kept.a" in one["subject"]]
    assert "destroys" in kept["what"]
    assert re.findall('match="(.*?)"', kept["mend"]) == ["kept.a", "kept.b"]
    assert after.problems == []
    assert after.code == 0


NEVER = (
    '<address-setting match="#"><dead-letter-address>DLQ</dead-letter-address>'
    "<max-delivery-attempts>1</max-delivery-attempts></address-setting>"
)
CAUSES = (
    '<address-setting match="amqsidecar.causes"><dead-letter-address/><expiry-address/>'
    "</address-setting>"
)


def test_the_guides_go_together_on_a_broker_with_one_attempt(tmp_path: Path) -> None:
    """As frameworks.md and cause-notes.md advise, with the broker's file as policy.

    Doctor and run say that nothing would be redelivered. Doctor advises nothing that it warns of,
    and a line for our configuration can be written where it says, beside the token of a lost store.
    """
    with ArtemisBroker(address_settings=NEVER + CAUSES) as broker:
        policy = tmp_path / "broker.xml"
        policy.write_text(broker.config_path.read_text(encoding="utf-8"), encoding="utf-8")
        lost = tmp_path / "lost"
        lost.mkdir()
        sidecar = SidecarProcess(lost, broker.pair_url, policy=policy).start()
        assert "the sidecar never redelivers these messages" in sidecar.log()
        assert sidecar.stop() == 0
        die(broker, "orders")
        path = tmp_path / "amqsidecar.yaml"
        lines = [
            "broker:",
            f"  url: {broker.pair_url}",
            "store:",
            f"  url: sqlite:///{tmp_path}/schedule.db",
            "policy:",
            "  source: broker.xml",
        ]

        def run() -> tuple[int, str]:
            path.write_text("\n".join(lines), encoding="utf-8")
            done = forked.run(["doctor", "--config", str(path)], timeout=120)
            return done.returncode, done.stdout

        code, before = run()
        found = re.search(rf"{path}:(\d+), under store: (.*)", before)
        assert found is not None, before
        lines.insert(int(found[1]) - 1, f"  {found[2]}")
        fit, after = run()

    assert (code, fit) == (78, 0)
    assert "queue://orders: the rules never redeliver these messages" in after
    assert "amqsidecar.causes" not in after
    assert "  note " not in after


STRATEGIES = """
    <policyEntry queue="quick.>"><deadLetterStrategy>
      <discarding/>
    </deadLetterStrategy></policyEntry>
    <policyEntry queue="orders.>"><deadLetterStrategy>
      <individualDeadLetterStrategy queuePrefix="DLQ." expiration="60000"/>
    </deadLetterStrategy></policyEntry>
"""
REDELIVERY = """
    <redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><redeliveryPolicyEntries>
      <redeliveryPolicy queue="orders" maximumRedeliveries="1"/>
      <redeliveryPolicy queue="odd*name.x.exhausted" maximumRedeliveries="1"/>
    </redeliveryPolicyEntries></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>
"""


def test_rules_of_classic_that_lose_messages_and_loops_are_named(
    classic_6: ClassicBroker, tmp_path: Path
) -> None:
    """Discarding and expiring strategies, and queues that are read as well as written."""
    policy = tmp_path / "activemq.xml"
    text = classic_xml(destination_policy=STRATEGIES, plugins=REDELIVERY)
    policy.write_text(text, encoding="utf-8")
    verdict = run_doctor(
        classic_6.openwire_url,
        tmp_path,
        "intake.queues=[orders, DLQ.a.exhausted]",
        policy=policy,
    )
    assert verdict.code == 78
    assert {(one["check"], one["subject"], one["mend"]) for one in verdict.problems} == {
        ("dead letters", 'queue="orders.>"', 'expiration="0"'),
        ("loops", "queue://orders", "intake: {queues: [DLQ]}"),
        ("loops", "DLQ.a.exhausted", "intake: {queues: [DLQ]}"),
    }
    [discarding] = [one for one in verdict.findings if one["subject"] == 'queue="quick.>"']
    assert discarding["severity"] == "warning"
    assert "redeliveryPlugin" in verdict.of("policy", "note")[0]["what"]


STAMPS = '<timeStampingBrokerPlugin zeroExpirationOverride="3600000"/>'


def test_a_classic_that_lets_the_token_expire_is_found_and_mended(tmp_path: Path) -> None:
    """The plug-in that gives every message an expiration, and the line that stops it."""
    with ClassicBroker(plugins=STAMPS) as broker:
        before = run_doctor(broker.openwire_url, tmp_path)
        [problem] = before.problems
        replace_in_file(broker, STAMPS, problem["mend"])
        after = run_doctor(broker.openwire_url, tmp_path)

    assert (before.code, problem["check"]) == (78, "token queue")
    assert (after.code, after.of("token queue")[0]["severity"]) == (0, "ok")


def test_counters_at_the_web_console_prove_outcomes_and_what_is_missing_is_named(
    tmp_path: Path,
) -> None:
    with ConsoleBroker() as broker:
        JmsPeer.of(broker, "openwire").fill("ActiveMQ.DLQ", 1, size=10)
        secret = tmp_path / "secret"
        secret.write_text("admin")
        console = f"broker.jolokia_url={broker.jolokia_url}"
        password = f"broker.jolokia_password_file={secret}"

        def outcomes(*sets: str) -> dict[str, str]:
            [found] = run_doctor(broker.openwire_url, tmp_path, *sets).of("outcomes")
            return found

        without = outcomes()
        with_console = outcomes(console, password)
        secret.write_text("wrong")
        refused = outcomes(console, password)
        elsewhere = console.replace("/api/jolokia", "/api/message")
        no_jolokia = outcomes(elsewhere, password)
    assert (without["severity"], without["mend"]) == ("warning", "<statisticsBrokerPlugin/>")
    assert "broker.jolokia_url" in without["what"]
    assert with_console["severity"] == "ok"
    assert (refused["severity"], "HTTP 401; correct the user" in refused["what"]) == (
        "warning",
        True,
    )
    assert "wrong" not in str(refused)
    assert no_jolokia["severity"] == "warning"


def test_every_wire_of_a_stock_classic_is_judged(classic_6: ClassicBroker, tmp_path: Path) -> None:
    """STOMP and AMQP with what they can't do; openwire:// is the line that mends it."""
    by_wire = {
        name: run_doctor(url, tmp_path, "intake.queues=[ActiveMQ.DLQ, DLQ.>]")
        for name, url in {
            "stomp": classic_6.stomp_url,
            "amqp": classic_6.amqp_url,
            "amqp-jms": classic_6.amqp_jms_url,
        }.items()
    }
    for verdict in by_wire.values():
        [fidelity] = verdict.of("fidelity", "warning")
        assert fidelity["mend"] == "broker: {url: openwire://127.0.0.1:61616}"
    assert (by_wire["stomp"].code, by_wire["stomp"].problems) == (0, [])
    for name in ("amqp", "amqp-jms"):
        origins = by_wire[name].of("origins", "problem")
        assert [one["mend"] for one in origins] == [
            "intake: {origin: {ActiveMQ.DLQ: ORIGIN}}",
            "intake: {origin: {DLQ.>: ORIGIN}}",
        ]
        assert "queue://DLQ.>" in [one["subject"] for one in by_wire[name].of("permissions")]
        assert by_wire[name].code == 78
    [connector] = by_wire["amqp"].of("broker", "problem")
    assert "transport.transformer=jms" in connector["mend"]
    assert by_wire["amqp-jms"].of("broker", "problem") == []


def test_stomp_to_a_stock_artemis_is_judged(artemis: ArtemisBroker, tmp_path: Path) -> None:
    """All is tried, and nothing is left."""
    verdict = run_doctor(artemis.stomp_url, tmp_path)
    assert (verdict.code, verdict.problems) == (0, [])
    assert (
        verdict.of("fidelity", "warning")[0]["mend"] == "broker: {url: artemis://127.0.0.1:61616}"
    )
    assert [one["severity"] for one in verdict.of("transactions")] == ["warning", "ok"]
    assert [one["subject"] for one in verdict.of("dead letters", "warning")] == ["DLQ"]
    for check in ("permissions", "final queues", "token queue", "clock"):
        assert [one["severity"] for one in verdict.of(check)] == ["ok"], check
    eventually(lambda: own_queues(artemis) == [], what="no queue of the doctor is left")


def test_the_broker_that_answers_is_examined(artemis: ArtemisBroker, tmp_path: Path) -> None:
    """Of several URLs; the others are reported."""
    away = f"artemis://admin:admin@127.0.0.1:{free_port()}"
    verdict = run_doctor(f"[{away}, {artemis.pair_url}]", tmp_path)
    assert verdict.code == 0
    assert [one["severity"] for one in verdict.of("broker")] == ["note", "ok"]


def test_a_schedule_in_postgresql_is_looked_at(
    artemis: ArtemisBroker, tmp_path: Path, postgres_url: str
) -> None:
    """The server of the tests writes in a way that loses messages."""
    verdict = run_doctor(artemis.pair_url, tmp_path, f"store.url={postgres_url}")
    assert verdict.code == 78
    [problem] = verdict.problems
    assert (problem["check"], problem["subject"]) == ("schedule", postgres_url)
    assert "fsync" in problem["what"]
    assert "fsync = on" in problem["mend"]


def test_as_text_each_line_to_be_copied_stands_alone(
    artemis: ArtemisBroker, tmp_path: Path
) -> None:
    sets = (
        f"broker.url={artemis.pair_url}",
        f"store.url=sqlite:///{tmp_path / 'schedule.db'}",
        "store.accept_orphans=true",
    )
    options = (part for one in sets for part in ("--set", one))
    done = forked.run(["doctor", *options], timeout=120)
    assert done.returncode == 0
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert (
        '<address-setting match="DLQ"><max-delivery-attempts>-1</max-delivery-attempts>'
        "</address-setting>"
    ) in lines
    assert lines[-1].startswith("fit: 0 problems, ")
    assert lines[-1].endswith("(print them by --notes)")
    assert [line for line in lines if line.startswith("note ")] == []
    assert done.stderr == ""


def replace_in_file(broker: Broker, old: str, new: str) -> None:
    """Change the configuration of a broker, and start it again."""
    text = broker.config_path.read_text(encoding="utf-8")
    assert old in text
    broker.config_path.write_text(text.replace(old, new), encoding="utf-8")
    broker.restart()


@pytest.mark.parametrize("wire", ["amqp", pytest.param("stomp", marks=pytest.mark.proof)])
def test_a_full_disk_of_the_broker_is_named_and_mended(tmp_path: Path, wire: str) -> None:
    """Nothing could be sent, and the examination ends; the line that it prints is enough."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY["artemis"])
    with ArtemisBroker() as broker:
        # As with less than a tenth free by default.
        full = "<max-disk-usage>1</max-disk-usage>"
        replace_in_file(broker, "<max-disk-usage>100</max-disk-usage>", full)
        url = getattr(broker, f"{wire}_url")

        def named() -> list[dict[str, Any]]:
            verdict = run_doctor(url, tmp_path, "intake.queues=[DLQ]", policy=policy)
            # Why always: in the run during which the broker looks, its refusals are the disk's.
            assert {one["subject"] for one in verdict.problems} <= {"disk"}, verdict.problems
            return [one for one in verdict.findings if one["subject"] == "disk"]

        # Why not at once: the broker looks at its disk every five seconds, also during a run.
        [found] = eventually(
            lambda: [one for one in named() if one["severity"] == "problem"],
            what="the broker has looked at its disk",
        )
        replace_in_file(broker, full, found["mend"])
        mended = named()
    assert "it blocks all producers until" in found["what"]
    # Why perhaps: on a machine whose disk is nearly full there is no higher limit.
    assert mended == [] or "99" in found["mend"]


def test_a_classic_counts_acknowledgements_by_the_line_that_is_printed(tmp_path: Path) -> None:
    with ClassicBroker(plugins="<forcePersistencyModeBrokerPlugin/>") as broker:
        JmsPeer.of(broker, "openwire").fill("ActiveMQ.DLQ", 1, size=10)
        [without] = run_doctor(broker.openwire_url, tmp_path).of("outcomes")
        replace_in_file(broker, "</plugins>", f"{without['mend']}</plugins>")
        [counted] = run_doctor(broker.openwire_url, tmp_path).of("outcomes")
    assert (without["severity"], without["mend"]) == ("warning", "<statisticsBrokerPlugin/>")
    assert counted["severity"] == "ok"


def test_the_queue_of_notes_is_tried(broker: Broker, tmp_path: Path, unique: str) -> None:
    """It can be read; on Artemis its address has stock settings, which keep failed notes."""
    notes = f"amqsidecar.causes.{unique}"
    peer_of(broker).produce(notes, "Text")
    verdict = run_doctor(
        best_url(broker), tmp_path, f"intake.cause_notes={notes}", "policy.verdicts=obey"
    )
    assert [one["subject"] for one in verdict.of("cause notes", "ok")] == [f"queue://{notes}"]
    kept = [one["what"] for one in verdict.of("cause notes", "note")]
    assert len(kept) == (broker.kind == "artemis")
    assert len(verdict.of("cause notes", "warning")) == 1
    eventually(lambda: len(peer_of(broker).browse(notes)) == 1, what="the note is there")


STUCK_POLICY = 'address_settings:\n  - {match: "#", dead_letter_address: DLQ}\n'


@contextmanager
def handed_out_to_nobody(broker: ArtemisBroker, name: str) -> Iterator[None]:
    """Have a consumer accept two of three messages of a queue, and leave before it commits."""
    with closing(AmqpArtemisHarness(broker, name)) as harness:
        other = harness.make_link("other").take(f"{name}.token")
        harness.send(name, [Message(durable=True, body=str(number)) for number in range(3)])
        other.attach([IntakeQueue(queue(name))], 10)

        deliveries: list[Delivery] = []

        def received() -> int:
            deliveries.extend(other.receive(3))
            return len(deliveries)

        eventually(lambda: received() == 3, what="all have come")
        leave_before_commit(other, deliveries[:2])
        yield
        other.close()


def test_what_is_handed_out_to_nobody_is_named_until_a_consumer_can_have_it(
    artemis: ArtemisBroker, tmp_path: Path, unique: str
) -> None:
    """By doctor and metric; over each wire: `contract/links`."""
    name, place = f"stuck.{unique}", artemis.pair_url
    metric = f'amqsidecar_left_behind{{destination="queue://{name}",reason="stuck_in_broker"}}'
    sidecar = SidecarProcess(
        tmp_path,
        place,
        policy=write_policy(tmp_path, STUCK_POLICY),
        sets=["discovery.interval_s=1"],
    )

    def findings() -> list[str]:
        (tmp_path / "doctor").mkdir(exist_ok=True)
        found = run_doctor(place, tmp_path / "doctor", policy=tmp_path / "policy.yaml").findings
        return [one["what"] for one in found if one["subject"] == f"queue://{name}"]

    with sidecar.start():
        with handed_out_to_nobody(artemis, name):
            eventually(lambda: sidecar.metric(metric) == 2, what="the metric counts them")
            assert [one.partition(":")[0] for one in findings()] == [
                "2 messages stay there (stuck_in_broker)"
            ]
        eventually(lambda: not sidecar.metric(metric), what="the metric counts none")
        assert findings() == []

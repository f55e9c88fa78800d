"""TLS on real brokers: which certificates are accepted, and the errors about the others."""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import cproton
import pytest

from amqsidecar.broker import TakeSession
from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.errors import BrokerError, BrokerRefused
from amqsidecar.wiring.links import LinkMaker
from support.brokers.real import Broker
from support.brokers.tls import EXPIRED, MUTUAL, PLAIN, TLS, TlsArtemis, TlsClassic, Way
from support.jms.ledger import altered
from support.jms.peer import JmsPeer
from support.machine.certificates import PemFiles, Pki, encrypt_key
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_5, CLASSIC_6
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.broker

ADMIN = "admin:admin@"
POLICY = """\
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 1, initial_redelivery_delay_ms: 100}
"""
ARTEMIS_POLICY = """\
address_settings:
  - {match: "#", dead_letter_address: DLQ, max_delivery_attempts: 3, redelivery_delay_ms: 100}
"""


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def us(pki: Pki) -> PemFiles:
    return pki.client("sidecar")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def artemis_tls(pki: Pki, us: PemFiles) -> Iterator[TlsArtemis]:
    with TlsArtemis(pki, us) as broker:
        yield broker


@pytest.fixture(scope="module")
def classic_5_tls(pki: Pki, us: PemFiles) -> Iterator[TlsClassic]:
    """It takes our identity from the certificate."""
    with TlsClassic(CLASSIC_5, pki, us) as broker:
        yield broker


@pytest.fixture(scope="module")
def classic_6_tls(pki: Pki) -> Iterator[TlsClassic]:
    """It admits clients without a log-in."""
    with TlsClassic(CLASSIC_6, pki) as broker:
        yield broker


@pytest.fixture(scope="module")
def classic_6_certificates(pki: Pki, us: PemFiles) -> Iterator[TlsClassic]:
    """It takes our identity from the certificate, as that of version 5 does."""
    with TlsClassic(CLASSIC_6, pki, us) as broker:
        yield broker


# Over each wire of Classic one version in `make test`: one knows us by the certificate, one does
# not ask.
WAYS = (
    *("artemis_tls amqp", "artemis_tls core", "artemis_tls artemis", "classic_5_tls openwire"),
    pytest.param("classic_6_tls openwire", marks=pytest.mark.proof),
    pytest.param("classic_5_tls stomp", marks=pytest.mark.proof),
    *("classic_6_tls stomp", "artemis_tls stomp", "classic_6_tls amqp"),
)


def way_of(request: pytest.FixtureRequest) -> Way:
    broker, wire = request.param.split()
    return Way(request.getfixturevalue(broker), wire)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return way_of(request)


# Why in proof: what comes back over each alone comes back over both at `artemis_tls artemis`.
@pytest.fixture(
    params=[*(pytest.param(one, marks=pytest.mark.proof) for one in WAYS[:2]), *WAYS[2:-2]]
)
def whole_way(request: pytest.FixtureRequest) -> Way:
    """Each but those that need other queues (Classic, AMQP) or applications (Artemis, STOMP)."""
    return way_of(request)


@contextmanager
def opened(url: str, *sets: str) -> Iterator[TakeSession]:
    """Open a link as the service does."""
    # Why patient: the first handshake of a broker may take seconds.
    config = load_config(None, [f"broker.url={url}", "broker.connect_timeout_s=60", *sets], {})
    link = LinkMaker(config, SystemClock()).make("tls")
    with closing(link.take("amqsidecar.token.tls")) as session:
        yield session


def refusal(url: str, *sets: str, kind: type[BrokerError] = BrokerRefused) -> str:
    """Return what is said where a link must not open."""
    with pytest.raises(kind) as refused, opened(url, *sets):
        pass
    assert "admin:" not in str(refused.value)
    return str(refused.value)


def trust(pki: Pki, us: PemFiles | None = None) -> list[str]:
    sets = [f"broker.tls.ca_file={pki.ca_file}"]
    if us is not None:
        sets += [f"broker.tls.cert_file={us.certificate}", f"broker.tls.key_file={us.key}"]
    return sets


def login_of(way: Way) -> str:
    """Return a login where the port with TLS asks for one."""
    return ADMIN if isinstance(way.broker, TlsArtemis) else ""


def test_a_server_that_is_not_the_broker_is_refused(
    way: Way, pki: Pki, us: PemFiles, stranger: Pki
) -> None:
    """Another authority, and a name that the certificate does not have."""
    url = way.url(MUTUAL, tls=True)
    unknown = refusal(url, *trust(stranger, us))
    assert "is not trusted" in unknown
    assert "broker.tls.ca_file" in unknown
    by_address = way.url(MUTUAL, tls=True, host="127.0.0.1")
    other_name = refusal(by_address, *trust(pki, us))
    assert "is made for another host name" in other_name
    assert "broker.url" in other_name
    with opened(by_address, *trust(pki, us)[1:], "broker.tls.verify=false"):
        pass


def test_without_an_authority_of_its_own_only_those_of_the_system_count(way: Way) -> None:
    assert "broker.tls.ca_file" in refusal(way.url(TLS, tls=True))


def test_our_certificate_has_to_be_trusted(way: Way, pki: Pki, stranger: Pki) -> None:
    """No certificate, one of another authority, one that has expired."""
    url = way.url(MUTUAL, tls=True, login=login_of(way))
    ours = [None, stranger.client("sidecar"), pki.client("expired-sidecar", is_expired=True)]
    for certificate in ours:
        said = refusal(url, *trust(pki, certificate))
        assert "wants a client certificate that it trusts" in said
        assert "broker.tls.cert_file" in said


def test_the_other_kind_of_port_is_recognized_or_guessed(way: Way, pki: Pki) -> None:
    """A broker may stay silent, answer with TLS, or hang up."""
    soon = "broker.connect_timeout_s=2"
    without = refusal(way.url(TLS, tls=False, login=ADMIN), soon, kind=BrokerError)
    assert "TLS" in without
    against = refusal(way.url(PLAIN, tls=True), *trust(pki), soon, kind=BrokerError)
    assert "TLS" in against
    assert "port" in against


@pytest.mark.parametrize("wire", ["amqp", "core", "openwire", "stomp"])
def test_an_expired_broker_is_not_talked_to(artemis_tls: TlsArtemis, pki: Pki, wire: str) -> None:
    said = refusal(Way(artemis_tls, wire).url(EXPIRED, tls=True, login=ADMIN), *trust(pki))
    assert "is not trusted" in said
    assert "has expired: renew it at the broker" in said


def test_amqps_needs_nothing_of_protons_own_tls(
    artemis_tls: TlsArtemis, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Proton that was compiled without OpenSSL does as well."""
    names = [name for name in dir(cproton) if name.startswith("pn_ssl")]
    assert names
    for name in names:
        monkeypatch.delattr(cproton, name)
    with opened(Way(artemis_tls, "amqp").url(TLS, tls=True, login=ADMIN), *trust(pki)) as link:
        assert link.description.kind.value == "artemis"


def test_a_certificate_without_a_user_is_refused(artemis_tls: TlsArtemis, pki: Pki) -> None:
    url = Way(artemis_tls, "amqp").url(MUTUAL, tls=True)
    assert "CN=somebody" in refusal(url, *trust(pki, pki.client("somebody")))


@pytest.mark.parametrize("wire", ["amqp", "openwire", "stomp"])
@pytest.mark.parametrize(
    "broker",
    ["classic_5_tls", pytest.param("classic_6_certificates", marks=pytest.mark.proof)],
)
def test_classic_knows_us_by_the_certificate_alone(
    request: pytest.FixtureRequest, pki: Pki, us: PemFiles, broker: str, wire: str
) -> None:
    """Over AMQP with SASL ANONYMOUS, for Classic offers no EXTERNAL: it takes TLS's identity."""
    url = Way(request.getfixturevalue(broker), wire).url(MUTUAL, tls=True)
    with opened(url, *trust(pki, us)) as link:
        link.token.create(1)
        assert link.token.take(PATIENCE_S) == 1
    unnamed = refusal(url, *trust(pki, pki.client("somebody")))
    assert ("whose certificates" if wire == "amqp" else "CN=somebody") in unnamed


def peer_of(broker: Broker, wire: str = "") -> tuple[JmsPeer, str]:
    if wire == "core":
        return JmsPeer.of(broker, "core"), "rollback"
    if isinstance(broker, TlsArtemis):
        return JmsPeer.of(broker, "qpid"), "reject"
    return JmsPeer.of(broker, "openwire"), "rollback"


def sidecar_of(way: Way, folder: Path, *sets: str) -> SidecarProcess:
    policy = folder / "policy.yaml"
    text = ARTEMIS_POLICY if isinstance(way.broker, TlsArtemis) else POLICY
    policy.write_text(text, encoding="utf-8")
    url = way.url(MUTUAL, tls=True)
    return SidecarProcess(folder, url, policy=policy, sets=[*sets, "intake.backlog=process"])


def test_messages_come_back_by_a_link_that_only_a_certificate_opens(
    whole_way: Way, pki: Pki, us: PemFiles, tmp_path: Path, unique: str
) -> None:
    """No user, no password: Artemis and Classic 5 identify us by SASL EXTERNAL and JAAS."""
    peer, how = peer_of(whole_way.broker, whole_way.wire)
    # Why: STOMP does not take what it would lose.
    with (
        sidecar_of(whole_way, tmp_path, *trust(pki, us)).start(),
        peer.start_flaky_consumer(unique, failures=1, how=how, full=True) as consumer,
    ):
        if whole_way.wire == "stomp":
            sent = peer.produce(
                unique, "Text", count=3, text="täxt", sample_properties=False, group=None
            )
        else:
            sent = peer.produce(unique, count=3)
            sent += peer.produce(unique, "Bytes", body_size=3_000_000)
        ids = consumer.wait_for_successes(len(sent))
    assert sorted(ids) == sorted(str(one.test_id) for one in sent)
    if whole_way.wire != "stomp":
        # Why left out: clients of Core note the size of a large message.
        assert altered(sent, consumer.events(), [], ["_AMQ_LARGE_SIZE"]) == []


def test_files_that_change_count_at_the_next_connect(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, unique: str
) -> None:
    """The broker that takes over has another authority, a file is away meanwhile: no restart."""
    old, new = (Pki(tmp_path_factory.mktemp("pki")) for _ in range(2))
    files, fresh = old.client("sidecar"), new.client("sidecar")

    def said(words: str) -> None:
        eventually(lambda: words in sidecar.get("/readyz")[1], what=f"health says: {words}")
        assert sidecar.is_running()

    with TlsArtemis(old, files) as first, TlsArtemis(new, fresh) as second:
        sidecar = sidecar_of(Way(first, "amqp"), tmp_path, *trust(old, files))
        urls = ", ".join(Way(broker, "amqp").url(MUTUAL, tls=True) for broker in (first, second))
        sidecar.options.append(f"broker.url=[{urls}]")
        with sidecar.start():
            key = files.key.read_bytes()
            files.key.unlink()
            first.kill()
            said(f"broker.tls.key_file: {files.key} can't be read")
            files.key.write_bytes(key)
            said("is not trusted")
            shutil.copy(new.ca_file, old.ca_file)
            shutil.copy(fresh.key, files.key)
            shutil.copy(fresh.certificate, files.certificate)
            sidecar.wait_ready()
            peer = JmsPeer.of(second, "qpid")
            with peer.start_flaky_consumer(unique, failures=1, how="reject") as consumer:
                peer.produce(unique, "Text")
                consumer.wait_for_successes(1)


@pytest.mark.parametrize("wrong", ["missing", "other", "encrypted"])
def test_a_key_that_can_not_be_used_ends_the_start(pki: Pki, tmp_path: Path, wrong: str) -> None:
    """Exit code 78 with the option and the file; no broker is asked."""
    ours, key = pki.client("sidecar-start"), tmp_path / "other.key"
    if wrong == "other":
        shutil.copy(pki.client("other").key, key)
    if wrong == "encrypted":
        encrypt_key(ours.key, key)
    options = [*trust(pki, ours)[:2], f"broker.tls.key_file={key}"]
    refused = SidecarProcess(tmp_path, "amqps://127.0.0.1:1", sets=options).run_refused(expect=78)
    assert "broker.tls.key_file" in refused
    assert str(key) in refused
    expected = {"missing": "can't be read", "other": "is not that of", "encrypted": "is encrypted"}
    assert expected[wrong] in refused
    assert "Traceback" not in refused

"""Tokens in place of passwords, on a real Artemis that trusts a real OpenID provider."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest
from joserfc.jwk import RSAKey

from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.wiring.links import LinkMaker
from support.brokers.tokens import TokenArtemis
from support.jms.peer import JmsPeer
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.waiting import eventually
from support.web.openid_provider import (
    AUDIENCE,
    CLIENT_ID,
    CLIENT_SECRET,
    Provider,
    running_provider,
)

pytestmark = pytest.mark.broker

# Why so long: a token is renewed when a fifth of its life is left, also on a busy machine.
LIFETIME_S = 10
OUTLIVES_MS = 12_000
# A message waits for longer than a token lasts.
POLICY = f"""\
address_settings:
  - match: "#"
    dead_letter_address: DLQ
    max_delivery_attempts: 3
    redelivery_delay_ms: {OUTLIVES_MS}
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider() as made:
        yield made


@pytest.fixture(scope="module")
def broker(provider: Provider) -> Iterator[TokenArtemis]:
    with TokenArtemis(provider) as made:
        yield made


@pytest.fixture
def token_file(provider: Provider, tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(provider.access_token(), encoding="utf-8")
    return path


def log_in(broker: TokenArtemis, scheme: str, token: Path, *sets: str) -> None:
    url = f"{scheme}://sidecar@127.0.0.1:{broker.ports['PORT']}"
    options = [f"broker.url={url}", "broker.kind=artemis", f"broker.token_file={token}", *sets]
    link = LinkMaker(load_config(None, options, {}), SystemClock()).make("tokens")
    with closing(link.take("amqsidecar.token.tokens")):
        pass


@pytest.mark.parametrize(
    ("scheme", "mechanism"),
    [
        *(("amqp", one) for one in ("OAUTHBEARER", "XOAUTH2", "PLAIN")),
        *((one, "") for one in ("artemis", "core", "stomp")),
    ],
)
def test_each_wire_logs_in_with_a_token_out_of_a_file(
    broker: TokenArtemis, token_file: Path, scheme: str, mechanism: str
) -> None:
    log_in(broker, scheme, token_file, *([f"broker.sasl_mechanisms={mechanism}"] * bool(mechanism)))


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "XOAUTH2", "PLAIN"])
def test_a_token_that_has_expired_is_refused_by_name(
    broker: TokenArtemis, provider: Provider, tmp_path: Path, mechanism: str
) -> None:
    token = tmp_path / "token"
    token.write_text(provider.access_token(exp=1), encoding="utf-8")
    with pytest.raises(BrokerRefused, match=rf"token of user sidecar \(SASL {mechanism}\)"):
        log_in(broker, "amqp", token, f"broker.sasl_mechanisms={mechanism}")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{CLIENT_SECRET}\n", encoding="utf-8")
    return path


def sets_of(provider: Provider, secret: Path) -> list[str]:
    return [
        f"broker.oidc.issuer={provider.issuer}",
        f"broker.oidc.client_id={CLIENT_ID}",
        f"broker.oidc.client_secret_file={secret}",
    ]


def test_a_message_outlives_the_token_that_it_was_taken_with(
    broker: TokenArtemis, provider: Provider, secret: Path, tmp_path: Path, unique: str
) -> None:
    """The next token is obtained and used before the broker refuses the old one."""
    provider.lifetime_s = LIFETIME_S
    provider.access_tokens.clear()
    url = f"artemis://sidecar@127.0.0.1:{broker.ports['PORT']}"
    policy = write_policy(tmp_path, POLICY)
    sidecar = SidecarProcess(
        tmp_path,
        url,
        policy=policy,
        sets=["intake.backlog=process", *sets_of(provider, secret)],
    )
    with sidecar.start():
        peer = JmsPeer.of(broker, "core")
        with peer.start_flaky_consumer(unique, failures=1, how="rollback") as consumer:
            peer.produce(unique, "Text")
            consumer.wait_for_successes(1)
        eventually(lambda: len(provider.access_tokens) > 2, what="tokens were renewed")
        lines = sidecar.log_lines()
    provider.lifetime_s = 300
    events = [line["event"] for line in lines]
    assert "logging_in_anew" in events
    assert "link_down" not in events
    assert not any(token in sidecar.log() for token in provider.access_tokens)
    assert CLIENT_SECRET not in sidecar.log()


@contextmanager
def projected(provider: Provider, volume: Path) -> Iterator[Path]:
    """Replace a token each half of its life as the kubelet does: into a folder behind a link."""
    (volume / "token").symlink_to("..data/token")

    def project(number: int) -> None:
        made, link = volume / f"..{number}", volume / "..data_tmp"
        made.mkdir()
        (made / "token").write_text(provider.access_token(), encoding="utf-8")
        link.symlink_to(made.name)
        link.replace(volume / "..data")

    def go_on() -> None:
        for number in count(1):
            if is_over.wait(provider.lifetime_s / 2):
                return
            project(number)

    project(0)
    is_over, kubelet = Event(), Thread(target=go_on)
    kubelet.start()
    try:
        yield volume / "token"
    finally:
        is_over.set()
        kubelet.join()


@pytest.mark.proof
def test_a_projected_token_is_read_again_before_it_expires(
    broker: TokenArtemis, provider: Provider, tmp_path: Path, unique: str
) -> None:
    """The sidecar gets no notice of a new one."""
    provider.lifetime_s = LIFETIME_S * 3
    volume = tmp_path / "volume"
    volume.mkdir()
    with projected(provider, volume) as token:
        sidecar = SidecarProcess(
            tmp_path,
            f"artemis://sidecar@127.0.0.1:{broker.ports['PORT']}",
            policy=write_policy(tmp_path, POLICY),
            sets=["intake.backlog=process", f"broker.token_file={token}"],
        )
        with sidecar.start():
            peer = JmsPeer.of(broker, "core")
            with peer.start_flaky_consumer(unique, failures=1, how="rollback") as consumer:
                peer.produce(unique, "Text")
                consumer.wait_for_successes(1)
            eventually(lambda: events_of(sidecar).count("logging_in_anew") > 1, what="new log-ins")
            assert "link_down" not in events_of(sidecar)
    provider.lifetime_s = 300


def events_of(sidecar: SidecarProcess) -> list[str]:
    return [str(line["event"]) for line in sidecar.log_lines()]


def test_a_client_gets_a_token_for_an_audience_by_its_key(
    broker: TokenArtemis, provider: Provider, tmp_path: Path
) -> None:
    """In place of a secret; the broker takes only tokens that are for it."""
    key = RSAKey.generate_key(2048)
    provider.client_key = RSAKey.import_key(key.as_dict(private=False))
    path = tmp_path / "client.pem"
    path.write_bytes(key.as_pem(private=True))
    url = f"core://sidecar@127.0.0.1:{broker.ports['PORT']}"
    options = [
        f"broker.url={url}",
        f"broker.oidc.issuer={provider.issuer}",
        f"broker.oidc.client_id={CLIENT_ID}",
        f"broker.oidc.client_key_file={path}",
    ]

    def attach(audience: str) -> None:
        config = load_config(None, [*options, f"broker.oidc.audience={audience}"], {})
        link = LinkMaker(config, SystemClock()).make("tokens")
        with closing(link.take("amqsidecar.token.tokens")):
            pass

    attach(AUDIENCE)
    with pytest.raises(BrokerRefused, match="Unable to validate user"):
        attach("another broker")
    provider.client_key = RSAKey.generate_key(2048)
    with pytest.raises(BrokerRefused, match="invalid_client"):
        attach(AUDIENCE)
    provider.client_key = None
    path.write_bytes(key.as_pem(private=False))
    with pytest.raises(BrokerRefused, match=r"broker.oidc.client_key_file: .* no private RSA key"):
        attach(AUDIENCE)


def test_a_provider_that_is_away_or_does_not_know_us_is_named(
    broker: TokenArtemis, provider: Provider, secret: Path
) -> None:
    url = f"core://sidecar@127.0.0.1:{broker.ports['PORT']}"
    options = [f"broker.url={url}", *sets_of(provider, secret)]
    links = LinkMaker(load_config(None, options, {}), SystemClock())
    provider.is_down = True
    with pytest.raises(LinkLost, match=f"{provider.issuer} gives no token now"):
        links.make("tokens")
    provider.is_down = False
    secret.write_text("wrong", encoding="utf-8")
    with pytest.raises(BrokerRefused, match=f"gives {CLIENT_ID} no token .invalid_client"):
        links.make("tokens")

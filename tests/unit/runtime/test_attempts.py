"""Which broker is tried next, and after what pause."""

from pathlib import Path

import pytest

from amqsidecar.broker import BrokerDescription, BrokerKind
from amqsidecar.brokers.artemis_pair.link import ArtemisPairLink
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.config.load import load_config
from amqsidecar.errors import BrokerRefused, ConfigError, LinkLost
from amqsidecar.runtime.attempts import Attempts, describe_broker
from amqsidecar.wiring.links import LinkMaker, look_now
from support.brokers.one import OneBroker
from support.virtual_clock import VirtualClock


def brokers(*names: str) -> tuple[LinkMaker, Attempts]:
    urls = ", ".join(f"amqps://u:geheim@{name}" for name in names)
    links = LinkMaker(load_config(None, [f"broker.url=[{urls}]"], {}), VirtualClock())
    return links, Attempts(links, 1.0, 4.0, lambda: 0.5)


def host(links: LinkMaker) -> str:
    assert "geheim" not in links.current
    return links.current.partition("@")[2].partition(":")[0]


def test_all_brokers_are_tried_before_the_pauses_grow() -> None:
    links, attempts = brokers("a", "b", "c")
    tried = [(host(links), attempts.failed()) for _ in range(9)]
    assert tried == [
        *(("a", 0.0), ("b", 0.0), ("c", 1.0)),
        *(("a", 0.0), ("b", 0.0), ("c", 2.0)),
        *(("a", 0.0), ("b", 0.0), ("c", 4.0)),
    ]


def test_a_link_that_was_up_is_tried_at_the_same_broker_first() -> None:
    links, attempts = brokers("a", "b")
    attempts.failed()
    attempts.up()
    assert (host(links), attempts.ended()) == ("b", 1.0)
    assert (host(links), attempts.failed()) == ("b", 0.0)
    assert (host(links), attempts.failed()) == ("a", 2.0)
    attempts.up()
    assert attempts.ended() == 1.0, "a link that came up makes the pauses short again"


def test_a_refusal_is_final_only_when_no_other_broker_takes_us_at_the_start() -> None:
    links, attempts = brokers("a", "b")
    refused = BrokerRefused("no")
    assert attempts.failed(refused) == 0.0
    with pytest.raises(BrokerRefused):
        attempts.failed()
    links, attempts = brokers("a", "b")
    attempts.failed(refused)
    attempts.up()
    assert host(links) == "b"
    attempts.failed(refused)
    assert attempts.failed(refused) == 1.0, "who was up once is refused for the moment only"


def test_one_broker_is_refused_at_once() -> None:
    _, attempts = brokers("a")
    assert attempts.failed() == 1.0
    with pytest.raises(BrokerRefused):
        attempts.failed(BrokerRefused("no"))


@pytest.mark.parametrize("option", ["ca_file", "cert_file"])
def test_a_certificate_file_that_is_none_is_named_with_its_option(
    option: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("tls") / "file.pem"
    sets = ["broker.url=amqps://a", "broker.kind=artemis", f"broker.tls.{option}={path}"]
    links = LinkMaker(load_config(None, sets, {}), VirtualClock())
    for text in (None, "", "-----BEGIN CERTIFICATE-----\nno\n"):
        if text is not None:
            path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=rf"broker\.tls\.{option}: {path}"):
            links.make("i")


class Learns(OneBroker):
    """One broker whose links find out something this many times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def has_learned(self) -> bool:
        self.times -= 1
        return self.times >= 0


def test_a_link_that_the_next_one_is_wiser_than_costs_no_pause() -> None:
    attempts = Attempts(Learns(4), 1.0, 4.0, lambda: 0.5)
    pauses = [attempts.failed(), attempts.ended(), attempts.failed(), attempts.ended()]
    assert pauses == [0.0] * 4
    assert [attempts.failed(), attempts.failed()] == [1.0, 2.0]


def test_after_a_refusal_the_next_log_in_is_another_one() -> None:
    refused = list[str]()

    class Noting(OneBroker):
        def login_refused(self) -> None:
            refused.append(self.current)

    attempts = Attempts(Noting(), 1.0, 4.0, lambda: 0.5)
    attempts.fault(LinkLost("gone"), was_up=True, is_first=False)
    assert refused == []
    attempts.fault(BrokerRefused("the token has expired"), was_up=True, is_first=False)
    assert refused == ["the broker"]


def test_a_refusal_is_reported_whatever_was_learned() -> None:
    attempts = Attempts(Learns(1), 1.0, 4.0, lambda: 0.5)
    with pytest.raises(BrokerRefused):
        attempts.failed(BrokerRefused("no"))


@pytest.mark.parametrize(
    ("url", "kind", "version", "said"),
    [
        (
            "artemis://admin:********@mq-0.shop:61616",
            BrokerKind.ARTEMIS,
            "2.57.0",
            "Apache Artemis 2.57.0 at artemis://mq-0.shop:61616",
        ),
        ("stomp://mq:61613", BrokerKind.CLASSIC, "", "ActiveMQ Classic at stomp://mq:61613"),
    ],
)
def test_a_broker_is_named_without_its_user(
    url: str, kind: BrokerKind, version: str, said: str
) -> None:
    description = BrokerDescription(kind=kind, version=version, encodings=())
    assert describe_broker(url, description) == said


class GoesOnOnce(LinkMaker):
    """Another thread goes on to the next broker while this one reads a password."""

    has_gone_on = False

    def _endpoint(self) -> Endpoint:
        found = super()._endpoint()
        if not self.has_gone_on:
            self.has_gone_on = True
            self.go_on()
        return found


def test_a_broker_without_the_second_wire_is_not_taken_for_the_next_broker() -> None:
    links = GoesOnOnce(
        load_config(None, ["broker.url=[artemis://a, artemis://b]"], {}), VirtualClock()
    )
    of_a, of_b = links.make("it"), links.make("it")
    assert isinstance(of_a, ArtemisPairLink)
    assert isinstance(of_b, ArtemisPairLink)
    of_a._second_wire.failed(LinkLost("no AMQP here"))
    assert of_a._second_wire.is_known_absent()
    assert not of_b._second_wire.is_known_absent()


def test_a_page_that_asks_while_a_secret_is_replaced_finds_the_broker_away(tmp_path: Path) -> None:
    password = f"broker.password_file={tmp_path / 'none'}"
    links = LinkMaker(
        load_config(None, ["broker.url=core://ann@localhost", password], {}), VirtualClock()
    )
    with pytest.raises(LinkLost, match="password_file"):
        look_now(links, "page")


def test_who_asks_once_tries_each_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    links, _ = brokers("a", "b", "c")
    tried: list[str] = []
    there = {"b", "c"}

    class Link:
        def look(self) -> "Link":
            tried.append(host(links))
            if host(links) not in there:
                raise LinkLost(f"{host(links)} is away")
            return self

        def close(self) -> None:
            tried.append("closed")

    monkeypatch.setattr(links, "make", lambda _instance: Link())
    links.find_answering("one")
    assert (host(links), tried) == ("b", ["a", "b", "closed"])
    there.clear()
    links.find_answering("one")
    assert (host(links), tried[3:]) == ("a", ["b", "c"]), (
        "the last broker is left for the caller to try"
    )

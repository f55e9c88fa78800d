"""Wrong values: Helm renders nothing and says in a sentence what is wrong."""

import pytest

from amqsidecar.config.broker_url import DEFAULT_PORTS, parse_broker_url
from helm.cases import FILE, Values
from support.deployment.helm import Refused, render

pytestmark = pytest.mark.helm


BY_THE_SCHEMA: dict[str, tuple[Values, str]] = FILE["refused by the schema"]
BY_THE_CHART: dict[str, tuple[Values, str]] = FILE["refused by the chart"]
TAKEN: dict[str, Values] = FILE["taken"]


@pytest.mark.parametrize("name", BY_THE_SCHEMA)
def test_what_the_schema_knows(name: str) -> None:
    values, place = BY_THE_SCHEMA[name]
    with pytest.raises(Refused, match="schema") as refused:
        render(values)
    assert place in str(refused.value)


@pytest.mark.parametrize("name", BY_THE_CHART)
def test_what_only_the_chart_knows(name: str) -> None:
    values, sentence = BY_THE_CHART[name]
    with pytest.raises(Refused) as refused:
        render(values)
    assert sentence in str(refused.value)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("name", TAKEN)
def test_what_looks_wrong_and_is_right(name: str) -> None:
    assert render(TAKEN[name])


def test_all_problems_are_said_at_once() -> None:
    values = {"monitoring": {"podMonitor": True, "serviceMonitor": True}}
    with pytest.raises(Refused) as refused:
        render(values)
    assert "config.broker.url is not set" in str(refused.value)
    assert "ask twice" in str(refused.value)


URLS = {
    "tcp://broker:61616": "tcp:// is written openwire:// here; for Artemis write artemis://",
    "nio://broker": "nio:// is written openwire:// here",
    "ssl://broker:61617": "ssl:// is written openwire+ssl:// here; for Artemis write artemis+ssl://",
    "nio+ssl://broker": "nio+ssl:// is written openwire+ssl:// here",
    "amqp+ssl://broker": "amqp+ssl:// is written amqps:// here",
    "amqp+nio://broker": "amqp+nio:// is written amqp:// here",
    "stomps://broker": "stomps:// is written stomp+ssl:// here",
    "failover:(tcp://a:61616,tcp://b:61616)": "write a list of URLs instead",
    "failover://(tcp://a:61616)": "write a list of URLs instead",
    "broker:61616": "config.broker.url has no wire: write the wire before it",
    "broker": "config.broker.url has no wire",
    "http://broker": "unknown wire http://; known: amqp, amqps, artemis",
    "openwire://broker:61616?wireFormat.maxInactivityDuration=0": "and nothing behind it",
    "amqp://broker:5672/orders": "and nothing behind it",
    "amqp://broker:port": "expected amqp://user@host:port",
    "amqp://": "expected amqp://user@host:port",
}


@pytest.mark.parametrize("url", URLS)
def test_what_is_no_url_of_a_broker_is_refused_with_what_to_write_instead(url: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the program has words of its own
        parse_broker_url(url)
    for given in (url, ["amqps://one", url]):
        with pytest.raises(Refused) as refused:
            render({"config": {"broker": {"url": given}}})
        assert URLS[url] in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        *(f"{scheme}://a@broker.mq.svc.cluster.local" for scheme in DEFAULT_PORTS),
        "amqps://a%40b@broker:5671/",
        "AMQPS://broker",
        "amqps://[::1]:5671",
        "openwire+ssl://a@10.0.0.1:61617",
    ],
)
def test_every_url_that_the_sidecar_takes_is_taken(url: str) -> None:
    parse_broker_url(url)
    assert render({"config": {"broker": {"url": url}}})

"""A queue's counters over every wire, compared with what was done to the queue."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from amqsidecar.broker import LookSession
from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.model.destination import queue, topic
from amqsidecar.model.outcome import Counters
from amqsidecar.wiring.links import LinkMaker
from support.brokers.purge import purge
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.brokers.web_console import ConsoleBroker
from support.jms.peer import JmsPeer
from support.waiting import eventually
from support.wires.stomp_peer import StompPeer

pytestmark = pytest.mark.broker

Counts = tuple[int | None, int | None, int | None]


@pytest.fixture(scope="module")
def counting() -> Iterator[ClassicBroker]:
    """A Classic with its statistics plugin."""
    with ClassicBroker(plugins="<statisticsBrokerPlugin/>") as broker:
        yield broker


@pytest.fixture(scope="module")
def console() -> Iterator[ClassicBroker]:
    """A Classic without the plugin, but with its web console."""
    with ConsoleBroker() as broker:
        yield broker


def looking(
    stack: ExitStack, urls: Mapping[str, str], sets: Sequence[str] = ()
) -> dict[str, LookSession]:
    """Return an open link for each wire that only looks."""
    links: dict[str, LookSession] = {}
    for wire, url in urls.items():
        config = load_config(None, [f"broker.url={url}", *sets], {})
        link = LinkMaker(config, SystemClock()).make("counters").look()
        stack.callback(link.close)
        links[wire] = link
    return links


def counts(links: Mapping[str, LookSession], name: str) -> dict[str, Counts]:
    """Return depth, acknowledged and removed of a queue over each wire."""
    found = {wire: link.queue_counters([queue(name)])[queue(name)] for wire, link in links.items()}
    return {wire: _counts(one) for wire, one in found.items()}


def _counts(one: Counters) -> Counts:
    return one.depth, one.acknowledged, one.removed


def become(
    look: Callable[[], dict[str, Counts]], links: Mapping[str, LookSession], expected: Counts
) -> None:
    """Wait until all wires show the same expected counts."""
    everywhere = dict.fromkeys(links, expected)
    eventually(lambda: look() == everywhere, what=str(expected), last=lambda _: str(look()))


def classic_urls(broker: Broker) -> dict[str, str]:
    """Return the URL of each wire to a Classic."""
    assert isinstance(broker, ClassicBroker)
    urls = {"openwire": broker.openwire_url, "amqp-jms": broker.amqp_jms_url}
    return urls | {"amqp": broker.amqp_url, "stomp": broker.stomp_url}


def counting_urls(broker: Broker) -> dict[str, str]:
    """Return the URLs over which counters are shown: without a console those of OpenWire alone."""
    urls = classic_urls(broker)
    return urls if isinstance(broker, ConsoleBroker) else {"openwire": urls["openwire"]}


def counter_sets(broker: Broker, folder: Path) -> tuple[str, ...]:
    """Return the options that name the counters of a broker; none = it answers by itself."""
    if not isinstance(broker, ConsoleBroker):
        return ()
    (folder / "secret").write_text("admin\n")
    secret = f"broker.jolokia_password_file={folder / 'secret'}"
    return (f"broker.jolokia_url={broker.jolokia_url}", secret)


@pytest.mark.parametrize("product", ["artemis", "counting", "console"])
def test_acknowledged_is_distinguished_from_purged(
    product: str, request: pytest.FixtureRequest, unique: str, tmp_path: Path
) -> None:
    broker: Broker = request.getfixturevalue(product)
    if isinstance(broker, ArtemisBroker):
        wires = {"core", "amqp", "stomp"} & {*broker.release.wires}
        urls = {wire: str(getattr(broker, f"{wire}_url")) for wire in wires}
        port, address = broker.ports["PORT"], unique
    else:
        urls = counting_urls(broker)
        port, address = broker.ports["STOMP_PORT"], f"/queue/{unique}"
    peer = JmsPeer.of(broker, "openwire" if isinstance(broker, ClassicBroker) else "core")
    sets = counter_sets(broker, tmp_path)
    with ExitStack() as stack:
        links = looking(stack, urls, sets)

        def look() -> dict[str, Counts]:
            return counts(links, unique)

        peer.produce(unique, ["Bytes"])
        become(look, links, (1, 0, 0))
        # Why with a receipt: Classic counts what left and what is in flight one after the other;
        # a look in between takes the message for a removed message.
        with StompPeer(port) as consumer:
            consumer.subscribe(address, headers={"subscription-type": "ANYCAST"})
            consumer.ack(consumer.receive())
            become(look, links, (0, 1, 0))
        peer.produce(unique, ["Text"], count=2)
        become(look, links, (2, 1, 0))
        purge(broker, unique)
        become(look, links, (0, 1, 2))


@pytest.mark.parametrize("what", ["browsed and purged", "consumed"])
def test_classic_shows_no_acknowledgement_where_no_consumer_was_seen(
    counting: ClassicBroker, unique: str, what: str
) -> None:
    """It counts a browse as handing out, so it shows the same for both."""
    peer = JmsPeer.of(counting, "openwire")
    with ExitStack() as stack:
        links = looking(stack, {"openwire": counting.openwire_url})
        peer.produce(unique, ["Text"], count=3)
        become(lambda: counts(links, unique), links, (3, 0, 0))
        if what == "consumed":
            peer.consume(unique, count=3)
        else:
            peer.browse(unique, count=3)
            purge(counting, unique)
        become(lambda: counts(links, unique), links, (0, 0, 3))


@pytest.mark.parametrize("product", ["counting", "console", "classic_6"])
def test_a_durable_subscription_that_is_away_is_a_subscriber(
    product: str, request: pytest.FixtureRequest, unique: str, tmp_path: Path
) -> None:
    """The broker keeps messages for it; without its counters only connected consumers are known."""
    broker: Broker = request.getfixturevalue(product)
    peer, news = JmsPeer.of(broker, "openwire"), topic(unique)
    urls = classic_urls(broker) if product == "classic_6" else counting_urls(broker)
    sets = counter_sets(broker, tmp_path)

    def problems() -> dict[str, str | None]:
        # Why new links: each remembers a subscriber for some seconds.
        with ExitStack() as stack:
            links = looking(stack, urls, sets)
            return {wire: link.send_terms(news).problem for wire, link in links.items()}

    assert all("has no subscriber" in str(one) for one in problems().values())
    peer.durable_subscribe(unique, unique, "one")
    if product == "classic_6":
        assert all("only those connected are known" in str(one) for one in problems().values())
        return
    assert problems() == dict.fromkeys(urls)
    peer.durable_unsubscribe(unique, "one")
    assert all("has no subscriber, so" in str(one) for one in problems().values())


def test_what_is_no_single_queue_is_left_out(artemis: Broker, unique: str) -> None:
    with ExitStack() as stack:
        for link in looking(stack, {"amqp": artemis.amqp_url}).values():
            assert link.queue_counters([topic(unique), queue(unique)]) == {}


@pytest.mark.parametrize("product", ["classic_6", "counting"])
def test_without_counters_only_the_length_of_a_browse_is_shown(
    product: str, request: pytest.FixtureRequest, unique: str
) -> None:
    """Of a stock Classic over each wire; over AMQP and STOMP the plugin changes nothing."""
    classic_6: ClassicBroker = request.getfixturevalue(product)
    JmsPeer.of(classic_6, "openwire").produce(unique, ["Text"], count=2)
    with ExitStack() as stack:
        urls = {"openwire": classic_6.openwire_url, "amqp": classic_6.amqp_url}
        if product == "counting":
            del urls["openwire"]
        links = looking(stack, urls)
        become(lambda: counts(links, unique), links, (2, None, None))
        stomp = looking(stack, {"stomp": classic_6.stomp_url})
        assert counts(stomp, unique) == {"stomp": (None, None, None)}

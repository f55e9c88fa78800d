"""A network of two Classics, each with a sidecar: the taker of a dead letter, and its return."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.brokers.broker_xml import classic_xml
from support.brokers.real import ClassicBroker
from support.jms.peer import JmsPeer
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_6

pytestmark = [pytest.mark.broker, pytest.mark.proof]

POLICY = """\
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 3, initial_redelivery_delay_ms: 100}
"""
NETWORK = """\
    <networkConnectors>
      <networkConnector name="network" duplex="true" userName="admin" password="admin"
                        uri="static:(tcp://127.0.0.1:%d)"/>
    </networkConnectors>
    <persistenceAdapter>"""


@pytest.fixture
def network() -> Iterator[tuple[ClassicBroker, ClassicBroker]]:
    """Two brokers that forward to each other what consumers there ask for."""
    with ClassicBroker(CLASSIC_6, broker_name="one") as one:
        network = NETWORK % one.ports["OPENWIRE_PORT"]
        text = classic_xml(broker_name="two").replace("    <persistenceAdapter>", network)
        with ClassicBroker(CLASSIC_6, text) as two:
            yield one, two


def test_a_message_returns_at_the_broker_where_it_died_and_is_forwarded_from_there(
    network: tuple[ClassicBroker, ClassicBroker], tmp_path: Path, unique: str
) -> None:
    """It died at the other broker than its producer's; its next consumer is at the first one."""
    one, two = network
    at_one, at_two = (JmsPeer.of(broker, "openwire") for broker in network)
    with ExitStack() as stack:
        sidecars = []
        for name, broker in (("one", one), ("two", two)):
            folder = tmp_path / name
            folder.mkdir()
            policy = write_policy(folder, POLICY)
            made = SidecarProcess(folder, broker.openwire_url, policy=policy)
            sidecars.append(stack.enter_context(made).start())
        with at_two.start_flaky_consumer(unique, failures=1) as consumer:
            [sent] = at_one.produce(unique, "Text")
            consumer.wait_for_successes(1)
        assert [one.metric("amqsidecar_resent_total") for one in sidecars] == [0, 1]

        [sent] = at_one.produce(unique, "Text")
        at_two.fail(unique, messages=1)
        [found] = at_one.consume(unique, 1)
        assert (found.body, found.value("amqsidecarRedeliveryCount")) == (sent.body, 1)
        assert [one.metric("amqsidecar_resent_total") for one in sidecars] == [0, 2]

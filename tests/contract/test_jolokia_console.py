"""The web console as Classic ships it since its hardening, and the file that each refusal names."""

from collections.abc import Mapping

import pytest

from amqsidecar.brokers.classic.jolokia import JolokiaCounters
from amqsidecar.brokers.classic.statistics import StatisticsReply, about
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.destination import queue
from support.brokers.web_console import HARDENED, ConsoleBroker
from support.jms.peer import JmsPeer

pytestmark = pytest.mark.broker


def ask(broker: ConsoleBroker, user: str, password: str) -> list[StatisticsReply]:
    """Return the counters of the queue `orders`, asked as a user."""
    url = broker.jolokia_url.replace("admin@", f"{user}@")
    return JolokiaCounters(url, password=lambda: password, tls=None).ask([about(queue("orders"))])


RULE = r"HTTP 403; .*role `admin`.* conf/jetty\.xml, .* conf/jetty/jetty-security\.xml"
USERS = {
    "users.properties": ("admin=admin", "admin=admin\nuser=user"),
    "groups.properties": ("admins=admin", "admins=admin\nusers=user"),
}
EACH = [pytest.param(one, marks=[] if one == "5.19.10" else pytest.mark.proof) for one in HARDENED]


@pytest.mark.parametrize("release", EACH)
def test_the_stock_files_admit_the_administrator_alone(release: str) -> None:
    edits = {} if release == "5.19.10" else USERS
    with ConsoleBroker(HARDENED[release], edits=edits) as broker:
        JmsPeer.of(broker, "openwire").produce("orders", ["Text"])
        assert [one["size"] for one in ask(broker, "admin", "admin")] == [1]
        with pytest.raises(BrokerRefused, match=RULE):
            ask(broker, "user", "user")
        with pytest.raises(BrokerRefused, match="HTTP 401; correct the user"):
            ask(broker, "admin", "wrong")


ADDRESS = {
    "jetty.xml": ("<value>127.0.0.1</value>", "<value>10.0.0.1</value>"),
    "jetty/jetty-security.xml": ("<Item>127.0.0.1</Item>", "<Item>10.0.0.1</Item>"),
}


@pytest.mark.parametrize("release", EACH)
def test_an_address_that_jetty_does_not_admit_is_refused_by_its_file(release: str) -> None:
    console = HARDENED[release]
    with (
        ConsoleBroker(console, edits={console.security: ADDRESS[console.security]}) as broker,
        pytest.raises(BrokerRefused, match=RULE),
    ):
        ask(broker, "admin", "admin")


@pytest.mark.parametrize("release", EACH)
@pytest.mark.parametrize(
    ("edits", "words"),
    [
        pytest.param(
            {"jolokia-access.xml": ("<method>post</method>", "<method>get</method>")},
            r"method post is not allowed .*in conf/jolokia-access\.xml",
            id="method",
        ),
        pytest.param(
            {"jolokia-access.xml": ("<cors>", "<cors><allow-origin>http://a</allow-origin>")},
            r"Origin http://localhost is not allowed .*in conf/jolokia-access\.xml",
            id="origin",
            marks=pytest.mark.proof,
        ),
        pytest.param(
            {"jolokia-access.xml": ("<restrict>", "<restrict><remote><host>::2</host></remote>")},
            r"No access from client 127.0.0.1 .*in conf/jolokia-access\.xml",
            id="host",
            marks=pytest.mark.proof,
        ),
    ],
)
def test_a_refusal_names_the_file_that_it_comes_from(
    release: str, edits: Mapping[str, tuple[str, str]], words: str
) -> None:
    with (
        ConsoleBroker(HARDENED[release], edits=edits) as broker,
        pytest.raises(BrokerRefused, match=words),
    ):
        ask(broker, "admin", "admin")

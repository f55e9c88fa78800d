"""The blocks of deploy/guides/broker-side.md, in real brokers: doctor finds nothing to mend."""

import re
from pathlib import Path

import pytest

from support.brokers.broker_xml import STOCK_MANAGEMENT_ADDRESS_SETTING, artemis_xml, classic_xml
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.peer import JmsPeer
from support.sidecar.doctor import run_doctor

pytestmark = pytest.mark.broker

GUIDE = Path(__file__).parents[3] / "deploy" / "guides" / "broker-side.md"
USER = "amqsidecar"
LOG_IN = """
<simpleAuthenticationPlugin anonymousAccessAllowed="false"><users>
  <authenticationUser username="admin" password="admin" groups="admins"/>
  <authenticationUser username="amqsidecar" password="amqsidecar" groups="amqsidecar"/>
</users></simpleAuthenticationPlugin>
<authorizationPlugin><map><authorizationMap><authorizationEntries>
  <authorizationEntry queue=">" read="admins" write="admins" admin="admins"/>
  <authorizationEntry topic=">" read="admins" write="admins" admin="admins"/>
"""
END_OF_RIGHTS = "</authorizationMap></map></authorizationPlugin>"
KAHADB = re.compile(r"<kahaDB [^>]*/>")


def blocks(section: str) -> list[str]:
    """Return the blocks of a section, in order."""
    text = GUIDE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"```xml\n(.*?)```", text, re.DOTALL)


def check(broker: Broker, peer: JmsPeer, how: str, url: str, folder: Path, *sets: str) -> None:
    """With a dead letter there, doctor finds neither a problem nor a warning."""
    peer.produce("orders.new", "Text")
    peer.fail("orders.new", how, messages=1, deliveries=1, max_redeliveries=9 * (how == "reject"))
    verdict = run_doctor(url, folder, *sets)
    told = [one for one in verdict.findings if one["severity"] in ("problem", "warning")]
    assert (told, verdict.code) == ([], 0), verdict.errors
    assert "ok" in [one["severity"] for one in verdict.of("origins")], verdict.findings


class GuidedArtemis(ArtemisBroker):
    """Artemis with the blocks of the guide, and the sidecar's user."""

    def __init__(self, *, auto_created: bool) -> None:
        acceptor, settings, other, rights, core = blocks("Artemis")
        if auto_created:
            settings = other + settings.partition("</address-setting>")[2]
        [(name, uri)] = re.findall(r'<acceptor name="(\w+)">(.*)</acceptor>', acceptor)
        text = artemis_xml(
            address_settings=STOCK_MANAGEMENT_ADDRESS_SETTING + settings,
            acceptors={name: uri.replace("0.0.0.0:61616", "127.0.0.1:@PORT@")},
            core=core,
        )
        end = "</security-settings>"
        super().__init__(text.replace(end, rights + end))

    def _prepare(self) -> None:
        super()._prepare()
        for name in ("artemis-users", "artemis-roles"):
            with (self.config_path.parent / f"{name}.properties").open("a") as file:
                file.write(f"{USER} = {USER}\n")


@pytest.mark.parametrize("auto_created", [False, True])
def test_artemis(tmp_path: Path, auto_created: bool) -> None:
    with GuidedArtemis(auto_created=auto_created) as broker:
        url = broker.amqp_url.replace("admin:admin", f"{USER}:{USER}")
        check(broker, JmsPeer.of(broker, "qpid"), "reject", url, tmp_path)


def test_classic(tmp_path: Path) -> None:
    entry, plugin, kahadb, connector, rules, rights, temporary = blocks("Classic")
    [(name, uri)] = re.findall(r'<transportConnector name="(\w+)" uri="(.*)"/>', connector)
    security = f"{LOG_IN}{rights}</authorizationEntries>{temporary}{END_OF_RIGHTS}"
    text = classic_xml(
        destination_policy=entry,
        plugins=plugin + security,
        connectors={name: uri.replace("0.0.0.0:61616", "127.0.0.1:@OPENWIRE_PORT@")},
    )
    text = KAHADB.sub(kahadb.replace("${activemq.data}", "@DATA@").strip(), text)
    policy = tmp_path / "activemq.xml"
    policy.write_text(
        classic_xml(destination_policy=entry, plugins=rules, scheduler_support=True),
        encoding="utf-8",
    )
    with ClassicBroker(activemq_xml=text) as broker:
        url = broker.openwire_url.replace("admin:admin", f"{USER}:{USER}")
        source = f"policy.source={policy}"
        check(broker, JmsPeer.of(broker, "openwire"), "rollback", url, tmp_path, source)

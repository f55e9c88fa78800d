"""Twelve bugs in real applications: twelve groups by notes, and a field that divides without."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.peer import JmsPeer
from support.machine.applications import Application, camel_orders, spring_orders
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.tier import at_length
from support.versions import CLASSIC_5, CLASSIC_6
from support.waiting import eventually

WAIT_S = at_length(1_500, otherwise=90)

pytestmark = [pytest.mark.broker, pytest.mark.timeout(WAIT_S + 210)]

PRODUCTS = (
    *("apples", "bread", "cheese", "dates", "eggs", "figs"),
    *("grapes", "honey", "ice", "juice", "kale", "leeks"),
)
"""Each meets a bug of its own (`Bugs.java`)."""

# Why: six applications and 12 bugs, 100,800 deaths in all. A multiple of what is sent at once.
DEATHS_OF_EACH = at_length(1_400, otherwise=10)
SENT_AT_ONCE = 10
AT = ("stock", "warehouse")
NO_CAUSE = "(no reason given)"

CLASSIC_POLICY = """\
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 3, initial_redelivery_delay_ms: 3600000}
"""
ARTEMIS_POLICY = """\
address_settings:
  - {match: "#", dead_letter_address: DLQ, max_delivery_attempts: 4, redelivery_delay_ms: 3600000}
"""
AT_ONCE_ON_ARTEMIS = """\
<address-setting match="#">
  <dead-letter-address>DLQ</dead-letter-address>
  <max-delivery-attempts>1</max-delivery-attempts>
</address-setting>
"""
CLASSIC_OPTIONS = "?jms.redeliveryPolicy.maximumRedeliveries=0"
# Why: each roll-back over Core gives back all that the client has prefetched, by default 1 MiB.
ARTEMIS_OPTIONS = "?consumerWindowSize=0"


def broker_of(name: str) -> Broker:
    if name == "artemis":
        return ArtemisBroker(address_settings=AT_ONCE_ON_ARTEMIS)
    return ClassicBroker({"classic_5": CLASSIC_5, "classic_6": CLASSIC_6}[name])


@contextmanager
def dead_orders(folder: Path, name: str, framework: str, *, notes: str) -> Iterator[SidecarProcess]:
    """Have an application fail on orders of each product, and wait until all have died."""
    count = DEATHS_OF_EACH * len(PRODUCTS)
    with broker_of(name) as broker:
        provider = "core" if name == "artemis" else "openwire"
        options = ARTEMIS_OPTIONS if name == "artemis" else CLASSIC_OPTIONS
        url = broker.jms_url(provider) + options
        application = (spring_orders if framework == "spring" else camel_orders)(
            provider, url, "orders", notes
        )
        peer = JmsPeer.of(broker, provider)
        for _ in range(DEATHS_OF_EACH // SENT_AT_ONCE):
            for product in PRODUCTS:
                peer.fill("orders", SENT_AT_ONCE, size=20, properties={"product": product})
        sidecar = SidecarProcess(
            folder,
            str(broker.pair_url if isinstance(broker, ArtemisBroker) else broker.openwire_url),
            policy=write_policy(folder, ARTEMIS_POLICY if name == "artemis" else CLASSIC_POLICY),
            sets=["intake.backlog=process", *([f"intake.cause_notes={notes}"] if notes else [])],
        )
        with sidecar.start(), Application(application, folder):
            eventually(
                lambda: sidecar.metric("amqsidecar_waiting") >= count,
                within_s=WAIT_S,
                what=f"{count} orders have died",
            )
            yield sidecar
            assert sidecar.stop() == 0


COMBINATIONS = [
    pytest.param(
        name,
        framework,
        marks=[] if (name, framework) == ("classic_6", "spring") else pytest.mark.proof,
    )
    for name in ("classic_6", "classic_5", "artemis")
    for framework in ("spring", "camel")
]


@pytest.mark.parametrize(("name", "framework"), COMBINATIONS)
def test_twelve_bugs_are_twelve_groups(tmp_path: Path, name: str, framework: str) -> None:
    with dead_orders(tmp_path, name, framework, notes="amqsidecar.causes") as sidecar:

        def totals() -> dict[str, int]:
            return {one["cause_group"]: one["total"] for one in sidecar.json_command("groups")}

        groups = eventually(
            lambda: NO_CAUSE not in (found := totals()) and found,
            within_s=WAIT_S,
            what="each death has its note",
        )
        assert list(groups.values()) == [DEATHS_OF_EACH] * len(PRODUCTS), groups
        places = {one.partition(" [stack=")[0] for one in groups}
        assert {f"java.lang.IllegalStateException at Bugs.{at}" for at in AT} <= places
        assert "java.lang.StackOverflowError at Bugs.recurse" in places
        row = sidecar.rows("--cause-group", "Bugs.warehouse", "--limit", "1")[0]
        place = urlencode({"destination": row["destination"], "group": row["cause_group"]})
        _, page = sidecar.get(f"/groups/one?{place}")
        for text in (page, sidecar.run_command("show", str(row["id"]))):
            assert "no stock for the item of " in text
            assert "at Bugs.warehouse(Bugs.java:" in text
            assert "frames of Java and frameworks" in text
        if framework == "spring":
            # Why: with the handler of the library's README, Spring logs as it does without one.
            log = (tmp_path / "application.log").read_text(encoding="utf-8", errors="replace")
            warned = log.count("Execution of JMS message listener failed")
            assert warned == DEATHS_OF_EACH * len(PRODUCTS)
            assert log.count("at Bugs.warehouse(Bugs.java:") >= DEATHS_OF_EACH

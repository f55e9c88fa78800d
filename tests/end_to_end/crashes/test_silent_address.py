"""The first address of `broker.url` drops packets: the link is made to the next one."""

from pathlib import Path
from typing import Any

import pytest

from support.brokers.real import ArtemisBroker, ClassicBroker
from support.machine.ports import silent_port
from support.sidecar.process import SidecarProcess
from support.waiting import eventually


@pytest.mark.parametrize(
    ("broker", "wire"),
    [
        ("artemis", "pair_url"),
        ("classic_6", "openwire_url"),
        *(
            pytest.param(broker, f"{wire}_url", marks=pytest.mark.proof)
            for broker, wire in (
                *(("artemis", one) for one in ("core", "amqp", "stomp")),
                *(("classic_6", one) for one in ("amqp_jms", "stomp")),
            )
        ),
    ],
)
def test_an_address_that_drops_packets_is_left_for_one_that_accepts(
    broker: str, wire: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    found: ArtemisBroker | ClassicBroker = request.getfixturevalue(broker)
    url = getattr(found, wire)
    with silent_port() as silent:
        scheme, login, place = url.partition("admin:admin@")
        urls = f"[{scheme}{login}127.0.0.1:{silent}, {url}]"
        # Why: over AMQP a shared dead-letter queue does not show where messages died.
        sets = ["intake.origin={ActiveMQ.DLQ: anywhere}"] if broker == "classic_6" else []
        with SidecarProcess(tmp_path, urls, sets=sets) as sidecar:
            sidecar.start()

            def links() -> list[dict[str, Any]]:
                found = sidecar.log_lines()
                return [line for line in found if line["event"].startswith("link_")]

            # Why: it is ready once it reads the queues, and writes the line after that.
            eventually(lambda: links()[-1]["event"] == "link_up", what="the link is up")
            lines = links()
    down, *_, up = lines
    assert f"{silent} can't be reached: it does not answer, but {place} does" in down["reason"]
    assert [line for line in lines if line["event"] == "link_up"] == [up]
    assert up["url"].endswith(place)

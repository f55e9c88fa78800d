"""What the compose file starts, beside brokers of its releases and without an engine: it works."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from support.brokers.real import ArtemisBroker, ClassicBroker
from support.deployment.image import sidecar_image, why_not
from support.machine.container import SidecarContainer
from support.waiting import eventually

pytestmark = [
    pytest.mark.image,
    pytest.mark.broker,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"


def release_of(service: str) -> str:
    """Return the release of the broker in a service's image."""
    services = YAML(typ="safe").load(COMPOSE / "compose.yaml")["services"]
    return str(services[service]["image"].partition(":")[2])


def classic_of_compose() -> ClassicBroker:
    """Return the broker with the file that the compose file gives it, on ports of the machine."""
    text = (COMPOSE / "activemq.xml").read_text(encoding="utf-8")
    for port, mark in (("61616", "OPENWIRE_PORT"), ("5672", "AMQP_PORT")):
        assert f"0.0.0.0:{port}" in text
        text = text.replace(f"0.0.0.0:{port}", f"127.0.0.1:@{mark}@")
    return ClassicBroker(release_of("classic"), text)


@contextmanager
def failing_application(url: str, log: Path) -> Iterator[None]:
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, str(COMPOSE / "poison.py")],
            env={**os.environ, "BROKER_URL": url},
            stdout=written,
            stderr=written,
        )
        try:
            yield
        finally:
            process.kill()
            process.wait(10)


def test_an_order_that_fails_comes_back_and_is_done(tmp_path: Path) -> None:
    """On both brokers at once, for each has to wait for the delay of the rules.

    The brokers are new, as those of the compose file: a sidecar with a new store refuses to begin
    beside tokens of other schedules.
    """
    image = sidecar_image()
    with ExitStack() as stack:
        artemis = stack.enter_context(ArtemisBroker(version=release_of("artemis")))
        classic = stack.enter_context(classic_of_compose())
        wires = {
            "artemis": (artemis.pair_url, artemis.jms_url("qpid"), artemis),
            "classic": (classic.openwire_url, classic.jms_url("qpid"), classic),
        }
        for name, (url, amqp_url, broker) in wires.items():
            data = tmp_path / name
            data.mkdir()
            sidecar = SidecarContainer(
                image,
                config=COMPOSE,
                data=data,
                command=("run", "--config", f"/etc/amqsidecar/config/sidecar-{name}.yaml"),
                url=url,
            )
            stack.enter_context(sidecar).start()
            login = amqp_url.replace("//", f"//{broker.user}:{broker.password}@")
            stack.enter_context(failing_application(login, tmp_path / f"{name}.log"))
        for name in wires:
            log = tmp_path / f"{name}.log"
            eventually(
                lambda: "order 1: done, attempt 2" in log.read_text(),  # noqa: B023 - at once
                what=f"order 1 is done on {name}",
                last=lambda _: log.read_text(),  # noqa: B023 - at once
            )

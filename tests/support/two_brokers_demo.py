"""The demo on Classic and Artemis side by side, with JMS applications.

    PYTHONPATH=tests python -m support.two_brokers_demo [--quick] [--keep]

`amqsidecar demo` needs less: one broker, and applications in Python.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from importlib.resources import files
from pathlib import Path

from rich.console import Console

from amqsidecar.broker import BrokerKind
from amqsidecar.demo.play import PRODUCTS
from amqsidecar.demo.sidecar import Sidecar
from amqsidecar.demo.stage import Stage
from amqsidecar.demo.story import FULL, QUICK, Script, perform
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.peer import FlakyConsumer, JmsPeer
from support.jms.process import PeerProcess


class JmsApplications:
    """Applications of the demo that speak JMS."""

    def __init__(self, peer: JmsPeer, how: str) -> None:
        self._peer = peer
        self._how = how

    def consume(self, queue: str, failures: int) -> FlakyConsumer:
        """Start a consumer; see `amqsidecar.demo.applications.Applications`."""
        return self._peer.start_flaky_consumer(queue, failures=failures, how=self._how)

    def fill(self, queue: str, ids: Sequence[str], per_second: float | None) -> None:
        """Send a message for each id."""
        self._peer.fill(queue, len(ids), batch=1, test_id=f"{queue}-", per_second=per_second or 0)

    def is_empty(self, queue: str) -> bool:
        """Return whether a queue is empty."""
        return not self._peer.browse(queue)


def make_stages(folder: Path, script: Script, process: PeerProcess) -> Sequence[Stage]:
    """Return one stage for each broker; nothing is started yet."""
    classic, artemis = ClassicBroker(), ArtemisBroker()

    def stage(broker: Broker, url: str, provider: str, how: str) -> Stage:
        product = PRODUCTS[BrokerKind(broker.kind)]
        rules = Path(str(files("amqsidecar.demo").joinpath(product.rules)))
        own = folder / broker.kind
        own.mkdir()
        return Stage(
            title=f"{broker.kind.capitalize()} {broker.version}",
            broker=broker,
            applications=JmsApplications(JmsPeer.of(broker, provider, process=process), how),
            sidecar=Sidecar(own, "demo", {"url": url}, product.dead_letters, rules),
            rules=rules.name,
            dead_letter_queue=product.dead_letters,
            groups=script.groups(),
        )

    return (
        stage(classic, classic.openwire_url, "openwire", "rollback"),
        # Why "reject": a rollback of qpid-jms drains its link, and was seen to wait a minute.
        stage(artemis, artemis.amqp_url, "qpid", "reject"),
    )


def main(arguments: Sequence[str]) -> int:
    """Play the demo; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer messages, half the time")
    parser.add_argument("--keep", action="store_true", help="go on afterwards, until Ctrl-C")
    options = parser.parse_args(arguments)
    script = QUICK if options.quick else FULL
    with (
        tempfile.TemporaryDirectory(prefix="amqsidecar-demo-") as folder,
        closing(PeerProcess()) as process,
    ):
        stages = make_stages(Path(folder), script, process)
        return perform(Console(), stages, script, keeps=options.keep)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""One `amqsidecar run` with `broker.url` and a store, and nothing else: what happens."""

import contextlib
import json
import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from field.stock import anonymised
from support.brokers.real import Broker
from support.jms.peer import ALL_TYPES, JmsPeer
from support.machine.ports import is_open
from support.sidecar.process import SidecarProcess
from support.waiting import PATIENCE_S, eventually
from support.wires.stomp_peer import StompPeer

BACK_S = 8.0
STOMP_BODIES = 2


@dataclass
class Row:
    """What one run came to.

    Attributes:
        broker: and how it was made.
        url: with the ports of the stock configuration.
        outcome: `ready`, `exit N`, or `tries again`.
        says: what it logs or prints that a person has to read, each once.
        back: how many dead letters came back, by application: `8 of 8`.
        left: how many stay in the dead-letter queue.
    """

    broker: str
    url: str
    outcome: str
    says: list[str] = field(default_factory=list)
    back: dict[str, str] = field(default_factory=dict)
    left: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the row for the record."""
        return asdict(self)


class Newcomer(SidecarProcess):
    """The service with a URL and a store; on a free port for HTTP, and it looks every second."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        self.options = [
            f"broker.url={url}",
            f"store.url=sqlite:///{folder / 'schedule.db'}",
            # Why: the cases of a broker share it, and each leaves the token of its own store.
            "store.accept_orphans=true",
            "http.listen=127.0.0.1:0",
            "discovery.interval_s=1",
        ]


def try_url(
    broker: Broker, name: str, url: str, shown: str, folder: Path, known: Row | None = None
) -> Row:
    """Run the service until it is ready, ends, or has logged why it tries again.

    Args:
        known: the row that is expected: what it says is waited for; None = for some seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sidecar = Newcomer(folder, url)
    with sidecar:
        outcome = _started(sidecar)
        row = Row(name, shown, outcome)
        if outcome == "ready":
            _use(broker, sidecar, row, known)
        row.says = _sentences(broker, folder, sidecar)
        if sidecar.is_running():
            assert sidecar.stop(within_s=30) == 0, sidecar.log()
    return row


def _started(sidecar: Newcomer) -> str:
    sidecar.start(ready=False)
    assert sidecar.process is not None
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if sidecar.process.poll() is not None:
            return f"exit {sidecar.process.returncode}"
        if sidecar.get("/readyz")[0] == 200:
            return "ready"
        if any(line.get("event") in TROUBLE for line in sidecar.log_lines()):
            return "tries again"
        time.sleep(0.05)
    return "neither ready nor ended"


TROUBLE = frozenset(("link_down",))
# Why orphaned_token: each case has a new store, so a broker keeps the tokens of the cases before.
_QUIET = frozenset(("policy_warning", "orphaned_token"))


def _sentences(broker: Broker, folder: Path, sidecar: Newcomer) -> list[str]:
    found: list[str] = []
    for line in sidecar.log().splitlines():
        if not line.startswith("{"):
            # Why: the last line of a traceback names its cause.
            found += [line] if line.startswith("amqsidecar:") else []
            continue
        entry = json.loads(line)
        if entry["level"] in ("warning", "error") and entry["event"] not in _QUIET:
            told = entry.get("meaning") or entry.get("reason") or entry.get("error") or ""
            found.append(f"{entry['event']}: {told}" if told else entry["event"])
    # Why without ports: a client's own is another each time.
    found = [re.sub(r"(user from [\d.]+):\d+", r"\1", one) for one in found]
    plain = [re.sub(r"\s+", " ", anonymised(broker, folder, one)).strip() for one in found]
    # Why sorted: which of two queues' faults is logged first is up to the broker.
    return sorted({one for one in plain if one})


_PORTS = {"qpid": "AMQP_PORT", "stomp": "STOMP_PORT"}


def _use(broker: Broker, sidecar: Newcomer, row: Row, known: Row | None) -> None:
    """Make each application fail its messages once, and record which return and succeed."""
    dlq = "ActiveMQ.DLQ" if broker.kind == "classic" else "DLQ"
    # Why qpid: the broker can't show a Core consumer every stream of an AMQP producer.
    reader = JmsPeer.of(broker, "openwire" if broker.kind == "classic" else "qpid")
    left = 0
    native = "openwire" if broker.kind == "classic" else "core"
    # Why: a stock Classic 6 speaks OpenWire only.
    others = [one for one, mark in _PORTS.items() if is_open(broker.ports[mark])]
    for application in (native, *others):
        queue = f"field.{application}.{row.url.partition(':')[0]}"
        client = native if application == "stomp" else application
        # Artemis gives up after ten deliveries, unless the client says that it does.
        failures = 10 if client == "core" else 1
        how = "reject" if client == "qpid" else "rollback"
        limit = 100 if client == "qpid" else 0
        peer = JmsPeer.of(broker, client)
        with peer.start_flaky_consumer(
            queue, failures=failures, how=how, max_redeliveries=limit
        ) as consumer:
            count = _send(broker, application, queue)
            if known is not None:
                wanted = _came_back(known, application)
                consumer.wait_for_successes(wanted)
                left += count - wanted
                reader.browse(dlq, count=left)
            else:
                # Why no error: the table shows what does not come back.
                with contextlib.suppress(TimeoutError):
                    consumer.wait_for_successes(count, within_s=BACK_S)
            back = len(set(consumer.succeeded()))
        row.back[application] = f"{back} of {count}"
    row.left = len(reader.browse(dlq, count=known.left if known else None))
    if row.left:
        eventually(lambda: sidecar.left_behind() == row.left, what="it is reported")
        reader.consume(dlq, row.left)


def _came_back(row: Row, application: str) -> int:
    return int(row.back[application].partition(" of ")[0])


def _send(broker: Broker, application: str, queue: str) -> int:
    """Send messages, and return how many."""
    if application == "stomp":
        _send_over_stomp(broker, queue)
        return STOMP_BODIES
    # Why not all: what a Core stream with bytes does is in the matrix.
    types = [name for name in ALL_TYPES if application != "core" or name != "Stream"]
    return len(JmsPeer.of(broker, application).produce(queue, types))


def _send_over_stomp(broker: Broker, queue: str) -> None:
    is_classic = broker.kind == "classic"
    destination = f"/queue/{queue}" if is_classic else queue
    kind = {} if is_classic else {"destination-type": "ANYCAST"}
    with StompPeer(broker.ports["STOMP_PORT"], broker.user, broker.password) as stomp:
        stomp.send(destination, {"testId": "stomp-text", **kind}, b"text")
        headers = {"testId": "stomp-bytes", "content-length": "3", **kind}
        stomp.send(destination, headers, b"\0\1\2")


def wait_for_http(broker: Broker) -> None:
    """Wait until the broker's web server listens, which starts after it."""
    port = broker.ports["HTTP_PORT"]
    eventually(lambda: is_open(port), what="the web server listens")

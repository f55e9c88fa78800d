"""The sidecar beside the in-broker redeliveryPlugin: from the first reject to the last redelivery.

Both get the same consumers that reject each message once, and the same consumer that takes what
comes back. The plugin writes a job per message into the broker's scheduler, the sidecar takes the
message out of the dead-letter queue and keeps it in its store.
"""

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from bench.dead_letters import BODY_BYTES, application_peer
from bench.sidecar_watch import measured_sidecar
from support.brokers.real import FULL_SPEED, Broker, ClassicBroker
from support.jms.peer import JmsPeer

DELAY_MS = 1000  # The least that the plugin takes.
REJECTING_CONSUMERS = 4
FIRST_DEATH = "redeliveryDelay IS NULL"
COME_BACK = "redeliveryDelay IS NOT NULL"
_numbers = itertools.count(1)


class WholeCycle(NamedTuple):
    """Messages per second.

    Attributes:
        whole: from the first reject to the last redelivery, the delay subtracted.
        sends: from the last reject, or the end of the delay if that is later, to the last
            redelivery, counting what came back in that time.
    """

    whole: float
    sends: float


def plugin_broker(version: str, delay_ms: int = DELAY_MS) -> ClassicBroker:
    return ClassicBroker(
        version,
        jvm_flags=FULL_SPEED,
        scheduler_support=True,
        plugins=f"""
      <redeliveryPlugin fallbackToDeadLetter="true" sendToDlqIfMaxRetriesExceeded="true">
        <redeliveryPolicyMap><redeliveryPolicyMap>
          <defaultEntry>
            <redeliveryPolicy maximumRedeliveries="5" initialRedeliveryDelay="{delay_ms}"
                              redeliveryDelay="{delay_ms}"/>
          </defaultEntry>
        </redeliveryPolicyMap></redeliveryPolicyMap>
      </redeliveryPlugin>""",
    )


def bench_plugin(broker: Broker, count: int) -> WholeCycle:
    return _reject_and_take_back(application_peer(broker), count)


def bench_sidecar(broker: Broker, folder: Path, count: int) -> WholeCycle:
    run = folder / f"whole-{next(_numbers)}"
    with measured_sidecar(run, broker, delay_ms=DELAY_MS) as sidecar:
        sidecar.start()
        result = _reject_and_take_back(application_peer(broker), count)
        sidecar.stop()
    return result


def _reject_and_take_back(peer: JmsPeer, count: int) -> WholeCycle:
    queue = f"bench.whole.{next(_numbers)}"
    peer.fill(queue, count, size=BODY_BYTES)
    back = _TakeBack(peer, queue, count)
    began_s = time.monotonic()
    back.start()
    share, rest = divmod(count, REJECTING_CONSUMERS)
    shares = [share + rest] + [share] * (REJECTING_CONSUMERS - 1)
    # What one consumer has fetched ahead comes free when it ends.
    with ThreadPoolExecutor(REJECTING_CONSUMERS) as pool:
        for rejecting in [pool.submit(_reject, peer, queue, one) for one in shares]:
            rejecting.result()
    rejected_s = time.monotonic()
    back.join()
    delay_s = DELAY_MS / 1000
    whole_s = back.ended_s - began_s - delay_s
    phase_s = max(rejected_s, began_s + delay_s)
    before = back.count_until(phase_s)
    return WholeCycle(count / whole_s, (count - before) / max(back.ended_s - phase_s, 1e-3))


def _reject(peer: JmsPeer, queue: str, count: int) -> None:
    peer.fail(queue, messages=count, selector=FIRST_DEATH)


class _TakeBack(threading.Thread):
    """Consumes what comes back, and knows how many were back at which time."""

    def __init__(self, peer: JmsPeer, queue: str, count: int) -> None:
        super().__init__(daemon=True)
        self._peer = peer
        self._queue = queue
        self._count = count
        self._seen: list[tuple[float, int]] = [(time.monotonic(), 0)]

    def run(self) -> None:
        total = 0
        while total < self._count:
            drained = self._peer._rate(
                "drain",
                destination=self._queue,
                count=min(max(100, self._count // 20), self._count - total),
                batch=100,
                waitMs=60_000,
                selector=COME_BACK,
            )
            if not drained.count:
                return
            total += drained.count
            self._seen.append((time.monotonic(), total))

    @property
    def ended_s(self) -> float:
        at_s, total = self._seen[-1]
        assert total == self._count, f"{total} of {self._count} messages came back"
        return at_s

    def count_until(self, at_s: float) -> int:
        return max((total for seen_s, total in self._seen if seen_s <= at_s), default=0)

"""Watches the memory of a sidecar over a backlog of a million dead letters (`make soak`).

The backlog stands in the dead-letter queue of a real broker before the sidecar comes. All of it is
taken into the schedule, waits there, comes due and is sent again. With `--failing` consumers fail
whatever comes back, so that each message dies again and again until its redeliveries are used up.
Ends with 1 when the memory is not flat.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from soak.backlog import backlog, origin_names
from soak.watch import Objects, Sample, WatchedSidecar, table
from support.brokers.real import FULL_SPEED, ArtemisBroker, Broker, ClassicBroker
from support.jms.peer import FlakyConsumer, JmsPeer
from support.jms.process import LONG_RUN, shared_process
from support.machine.processes import machine_words
from support.versions import CLASSIC_5, CLASSIC_6

BROKERS: dict[str, Callable[[], Broker]] = {
    "artemis": lambda: ArtemisBroker(jvm_flags=FULL_SPEED),
    "classic_5": lambda: ClassicBroker(CLASSIC_5, jvm_flags=FULL_SPEED),
    "classic_6": lambda: ClassicBroker(CLASSIC_6, jvm_flags=FULL_SPEED),
}

WARM_UP = 0.1
"""After so much of the backlog every cache and buffer has been filled once."""

GROWTH_MAX_MIB = 48.0
"""What may come after that, once: history is full only after half a million messages; from then on
recurring work removes the oldest, with a SQLite cache of 16 MiB and memory of its own."""

GROWTH_MAX_BLOCKS = 100_000
"""A tenth of an object per message of a million: none of them is kept."""


REDELIVERIES = 5
"""Redeliveries of each message by the policy of the benchmarks."""


class Soak(NamedTuple):
    """What was seen.

    Attributes:
        warm: the sample from which on memory has to be flat; `objects` at the same time.
    """

    samples: list[Sample]
    warm: Sample
    objects: Objects
    objects_at_end: Objects

    @property
    def growth_mib(self) -> float:
        """How much more memory was in use at any time after the warm-up."""
        return max(one.rss for one in self.samples if one.at_s >= self.warm.at_s) - self.warm.rss

    @property
    def growth_blocks(self) -> int:
        """How many more blocks were in use in the end than after the warm-up."""
        return self.objects_at_end.blocks - self.objects.blocks


def soak(
    broker: Broker,
    folder: Path,
    *,
    messages: int,
    origins: int = 1,
    is_failing: bool = False,
    delay_s: float,
    every_s: float,
    within_s: float,
    tell: Callable[[str], None] = lambda _words: None,
) -> Soak:
    """Run a sidecar until it has taken and sent a backlog; return the measurements."""
    names = origin_names(origins)
    began_s = time.monotonic()
    with backlog(broker) as dead:
        dead.put(messages, names)
    tell(f"{messages:,} dead letters, {origins:,} origins: {time.monotonic() - began_s:.0f} s")
    sends = messages * (REDELIVERIES if is_failing else 1)
    with (
        ExitStack() as consumers,
        WatchedSidecar(folder / "soak", broker, delay_ms=int(delay_s * 1000)) as sidecar,
    ):
        for consumer in _failing_consumers(broker, names) if is_failing else ():
            consumers.enter_context(consumer)
        sidecar.start()
        samples = sidecar.watch(
            lambda one: one.taken >= WARM_UP * messages, within_s=within_s, every_s=every_s
        )
        warm, objects = samples[-1], sidecar.objects()
        samples += sidecar.watch(lambda one: one.sent >= sends, within_s=within_s, every_s=every_s)
        samples.append(sidecar.sample())
        found = Soak(samples, warm, objects, sidecar.objects())
        assert sidecar.stop() == 0, sidecar.log()[-3000:]
    return found


def _failing_consumers(broker: Broker, names: Sequence[str]) -> Iterator[FlakyConsumer]:
    """Start consumers that make dead letters of all that comes to these queues."""
    if isinstance(broker, ClassicBroker):
        for _ in range(4):
            yield JmsPeer.of(broker, "openwire").start_flaky_consumer("soak.>", failures=-1)
        return
    # Why not the broker's own client: it would let each message fail ten times before.
    peer = JmsPeer.of(broker, "qpid")
    for name in names:
        yield peer.start_flaky_consumer(name, failures=-1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--broker", choices=tuple(BROKERS), default="artemis")
    parser.add_argument("--origins", type=int, default=1)
    parser.add_argument("--failing", action="store_true", help="on Artemis with 50 origins at most")
    parser.add_argument("--delay-s", type=float, help="default: until all are taken, roughly")
    options = parser.parse_args(arguments)
    shared_process(LONG_RUN)
    delay_s = options.delay_s or max(20.0, options.messages / 1000)
    print(f"{options.messages:,} messages, {options.broker}, {machine_words()}", flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as name, BROKERS[options.broker]() as broker:
        found = soak(
            broker,
            Path(name),
            messages=options.messages,
            origins=options.origins,
            is_failing=options.failing,
            delay_s=delay_s,
            every_s=max(0.5, options.messages / 200_000),
            within_s=max(300.0, options.messages / 100) * (REDELIVERIES if options.failing else 1),
            tell=lambda words: print(words, flush=True),
        )
    print(table(found.samples))
    print(f"objects by type that grew most: {_grown(found)}")
    is_flat = found.growth_mib <= GROWTH_MAX_MIB and found.growth_blocks <= GROWTH_MAX_BLOCKS
    print(
        f"{'flat' if is_flat else 'NOT FLAT'}: after {WARM_UP:.0%} of the messages the process had "
        f"{found.warm.rss:.0f} MiB, later at most {found.growth_mib:+.1f} MiB (allowed "
        f"{GROWTH_MAX_MIB:.0f}), in the end {found.growth_blocks:+,} blocks (allowed "
        f"{GROWTH_MAX_BLOCKS:,})"
    )
    return 0 if is_flat else 1


def _grown(found: Soak) -> str:
    grown = found.objects_at_end.types - found.objects.types
    return ", ".join(f"{name} +{count}" for name, count in grown.most_common(5)) or "none"


if __name__ == "__main__":
    sys.exit(main())

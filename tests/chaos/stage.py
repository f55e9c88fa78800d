"""One pair at work: broker, proxy, sidecars, applications, and what was done to them."""

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Self

from chaos.applications import Applications
from chaos.disk import SmallDisk
from chaos.pairs import Pair
from support.machine.proxy import Proxy
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.stores.postgres_server import PostgresServer
from support.waiting import eventually

# Why: small cycles, so that there are many; small time-outs: a silent link is soon given up.
OPTIONS = (
    "cycle.max_messages=20",
    "intake.backlog=process",
    "broker.idle_timeout_s=2",
    "broker.connect_timeout_s=3",
)
LEASE_S = 3
RECOVERS_WITHIN_S = 90.0


class Stage:
    """A context manager that ends all it started.

    Attributes:
        database: where several sidecars have their schedule.
        sidecar: the one that something is done to.
        counts: how many faults of each kind there were.
        recoveries: by fault the longest time until messages were sent again.
        stuck: dead letters that only a restart of the broker has freed.
    """

    def __init__(self, pair: Pair, folder: Path, chance: random.Random) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.pair = pair
        self.chance = chance
        self.counts: Counter[str] = Counter()
        self.recoveries: dict[str, float] = {}
        self.stuck = 0
        self.broker = pair.make_broker()
        self.disk = SmallDisk(folder / "store")
        self.proxy = Proxy(self.broker.ports[pair.port])
        self.applications = Applications(pair, self.broker, chance)
        policy = write_policy(folder, pair.policy)
        self.database = PostgresServer(fsync=True) if pair.is_shared else None
        url = "broker:" if pair.is_held else f"sqlite:///{self.disk.folder / 'schedule.db'}"
        lease: tuple[str, ...] = ()
        if self.database is not None:
            url, lease = self.database.url(), (f"store.lease_s={LEASE_S}",)
        self.sidecars = [
            self._sidecar(folder / str(number), policy, (f"store.url={url}", *lease))
            for number in range(pair.sidecars)
        ]
        self.sidecar = self.sidecars[0]
        self._exits = ExitStack()

    @property
    def journal(self) -> tuple[str, ...]:
        """Options of the journal; small segments, so that there are many."""
        if self.pair.is_held:
            return ()
        return (
            f"journal.path={self.folder / 'journal'}",
            "journal.segment_events=200",
            "journal.segment_s=1",
        )

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            if self.database is not None:
                exits.enter_context(self.database)
            parts: list[AbstractContextManager[object]] = [self.disk, self.broker, self.proxy]
            for part in (*parts, *self.sidecars, self.applications):
                exits.enter_context(part)
            self.applications.start()
            for sidecar in self.sidecars:
                sidecar.start()
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _sidecar(self, folder: Path, policy: Path, store: tuple[str, ...]) -> SidecarProcess:
        folder.mkdir()
        pair, broker = self.pair, self.broker
        return SidecarProcess(
            folder,
            f"{pair.wire}://{broker.user}:{broker.password}@127.0.0.1:{self.proxy.port}",
            policy=policy,
            sets=(*OPTIONS, *pair.intake, *pair.options, *self.journal, *store),
        )

    def stop_sidecars(self) -> None:
        """End all in order."""
        for sidecar in self.sidecars:
            assert sidecar.stop() == 0

    def is_ready(self) -> bool:
        """Say whether all sidecars are."""
        return all(sidecar.get("/readyz")[0] == 200 for sidecar in self.sidecars)

    def kill_sidecar(self) -> None:
        """Kill -9 the sidecar, wherever it is."""
        self.sidecar.kill()
        self.counts["sidecar_kills"] += 1

    def kill_broker(self) -> None:
        """Kill -9 the broker.

        Consumers without a transaction say that they succeeded before the broker knows it, and
        rightly get the message again. Classic writes a dead letter's copy, and then that the
        original is gone, not in one piece: killed in between it has both. Neither is what is asked
        here, so that such consumers rest meanwhile.
        """
        self.applications.stop_consumers(only_unconfirmed=self.pair.is_artemis)
        self.broker.kill()
        self.counts["broker_kills"] += 1

    def start_broker(self) -> None:
        """Start the broker again, and the consumers that were stopped."""
        self.broker.start()
        self.applications.start_consumers()

    def wait_recovered(self, fault: str) -> float:
        """Wait until all sidecars are ready and they send again; return how long that took."""
        began_s = time.monotonic()
        before = self._resent()
        self.wait(
            lambda: self.is_ready() and self._resent() != before,
            within_s=RECOVERS_WITHIN_S,
            what=f"it sends again after {fault}",
        )
        took_s = time.monotonic() - began_s
        self.recoveries[fault] = max(took_s, self.recoveries.get(fault, 0.0))
        return took_s

    def wait(self, condition: Callable[[], bool], *, within_s: float, what: str) -> None:
        """Wait until the condition holds; else show what the sidecar has said meanwhile."""
        try:
            eventually(condition, within_s=within_s, every_s=0.1, what=what)
        except TimeoutError as late:
            raise TimeoutError(f"{late}; the sidecar's log:\n{self.log_tail()}") from None

    def log_tail(self) -> str:
        """Return the end of each sidecar's log."""
        return "\n".join(sidecar.log()[-6000:] for sidecar in self.sidecars)

    def _resent(self) -> float:
        # Why: where the broker keeps what waits, it sends it again by itself.
        name = "amqsidecar_scheduled_total" if self.pair.is_held else "amqsidecar_resent_total"
        return sum(one.metric(name) for one in self.sidecars)

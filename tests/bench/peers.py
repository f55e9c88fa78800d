"""Ratios against a Java mover and the in-broker plugin, as a table (`make bench`).

Everything that is compared runs in one run on one machine, and nothing is asserted but that all
messages arrived. `--only` and `--brokers` choose, `--scale` changes how many messages there are.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import decisions, lateness, moving, proxying, whole_cycle
from bench.incident import bench_incident, incident_broker
from support.brokers.real import FULL_SPEED, ArtemisBroker, Broker, ClassicBroker
from support.jms.process import LONG_RUN, shared_process
from support.machine.processes import machine_words
from support.versions import ARTEMIS, CLASSIC_5, CLASSIC_6

BROKERS: dict[str, Callable[[], Broker]] = {
    "artemis": lambda: ArtemisBroker(jvm_flags=FULL_SPEED),
    "artemis_core": lambda: ArtemisBroker(jvm_flags=FULL_SPEED),
    "artemis_amqp": lambda: ArtemisBroker(jvm_flags=FULL_SPEED),
    "classic_6": lambda: ClassicBroker(CLASSIC_6, jvm_flags=FULL_SPEED),
    "classic_5": lambda: ClassicBroker(CLASSIC_5, jvm_flags=FULL_SPEED),
}
NAMES = {
    "artemis": f"Artemis {ARTEMIS}, Core and AMQP",
    "artemis_core": f"Artemis {ARTEMIS}, Core",
    "artemis_amqp": f"Artemis {ARTEMIS}, AMQP",
    "classic_6": f"Classic {CLASSIC_6}, OpenWire",
    "classic_5": f"Classic {CLASSIC_5}, OpenWire",
}
OTHER_WIRES = {"artemis_core": "core", "artemis_amqp": "amqp"}
LATENESS_PER_SECOND = 1_000
INCIDENT_DELAY_MS = 3_000


class Row(NamedTuple):
    """One line of the table."""

    what: str
    where: str
    sidecar: str
    other: str = ""
    ratio: str = ""
    aim: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=(*MEASURED, *WITHOUT_BROKER))
    parser.add_argument("--brokers", nargs="*", choices=tuple(BROKERS), default=tuple(BROKERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    shared_process(LONG_RUN)
    chosen = options.only or (*MEASURED, *WITHOUT_BROKER)
    print(machine_words(), flush=True)
    rows: list[Row] = []
    remarks: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        for broker_name in options.brokers:
            run = _Run(broker_name, Path(name), options.scale, options.rounds, remarks)
            for one in chosen:
                if one in MEASURED:
                    rows += _told(one, broker_name, MEASURED[one](run))
        if "decisions" in chosen:
            rows += _told("decisions", "both", _decisions(Path(name), int(100_000 * options.scale)))
        if "listener" in chosen:
            rows += _told("listener", "loopback", _listener(Path(name), options))
    print(_table(rows))
    for remark in sorted(set(remarks)):
        print(f"- {remark} ({remarks.count(remark)} times)")
    print(f"load at the end: {os.getloadavg()[0]:.1f}")


class _Run:
    """One broker to measure; started on first use, again for each question."""

    def __init__(
        self, name: str, folder: Path, scale: float, rounds: int, remarks: list[str]
    ) -> None:
        self.name = name
        self.where = NAMES[name]
        self.folder = folder / name
        self.folder.mkdir()
        self.scale = scale
        self.rounds = rounds
        self.remarks = remarks
        self.moved_per_second: float | None = None
        self.stored_per_second: float | None = None

    @property
    def is_classic(self) -> bool:
        return self.name.startswith("classic")

    @property
    def wire(self) -> str | None:
        """The sidecar's wire; None = the recommended one."""
        return OTHER_WIRES.get(self.name)

    def count(self, full: int) -> int:
        return max(500, int(full * self.scale))


def _moving(run: _Run) -> Iterator[Row]:
    count = run.count(10_000 if run.is_classic else 20_000)
    with BROKERS[run.name]() as broker:
        found, remarks = moving.bench_moving(
            broker,
            run.folder,
            count=count,
            rounds=run.rounds,
            warm_up=min(count, 5_000),
            wire=run.wire,
        )
    bare, aim, java_aim = (
        ("OpenWire", "<= 3", ">= 1.0") if run.is_classic else ("Core", "<= 5", ">= 0.7")
    )
    run.remarks += remarks
    run.moved_per_second, run.stored_per_second = found.sidecar, found.stored
    yield Row(
        f"moves {count} dead letters; Java JMS client",
        run.where,
        f"{found.sidecar:,.0f}/s",
        f"{found.java:,.0f}/s",
        f"{found.ratio:.2f}",
        java_aim,
    )
    yield Row(
        "same, with a delay of 1 ms, through the store; Java JMS client",
        run.where,
        f"{found.stored:,.0f}/s, {found.stored_cpu_us:.0f} µs",
        f"{found.java:,.0f}/s",
        f"{found.stored / found.java:.2f}",
    )
    yield Row(
        f"processor time per message; a bare mover in Python over {bare}",
        run.where,
        f"{found.cpu_us:.0f} µs",
        f"{found.bare_cpu_us:.0f} µs",
        f"{found.cpu_us / found.bare_cpu_us:.1f}",
        aim,
    )
    if found.by_broker is not None:
        ratio = found.sidecar / found.by_broker
        yield Row("same; the broker's retryMessages", run.where, "", f"{found.by_broker:,.0f}/s",
                  f"{ratio:.2f}")  # fmt: skip


def _whole_cycle(run: _Run) -> Iterator[Row]:
    if not run.is_classic:
        return
    count = run.count(5_000)
    ours, theirs = [], []
    for _ in range(run.rounds):
        with BROKERS[run.name]() as broker:
            whole_cycle.bench_sidecar(broker, run.folder, 500)
            ours.append(whole_cycle.bench_sidecar(broker, run.folder, count))
        with whole_cycle.plugin_broker(broker.version) as plugin:
            whole_cycle.bench_plugin(plugin, 500)
            theirs.append(whole_cycle.bench_plugin(plugin, count))
    for what, values in (
        (
            "first reject to last redelivery",
            [(a.whole, b.whole) for a, b in zip(ours, theirs, strict=True)],
        ),
        ("after the last reject", [(a.sends, b.sends) for a, b in zip(ours, theirs, strict=True)]),
    ):
        yield Row(
            f"redelivers {count}, {what}; redeliveryPlugin",
            run.where,
            f"{median(a for a, _ in values):,.0f}/s",
            f"{median(b for _, b in values):,.0f}/s",
            f"{median(a / b for a, b in values):.2f}",
        )
    if run.moved_per_second is not None:
        whole = median(one.whole for one in theirs)
        yield Row(
            "moves dead letters, as above; redeliveryPlugin, its whole cycle",
            run.where,
            f"{run.moved_per_second:,.0f}/s",
            f"{whole:,.0f}/s",
            f"{run.moved_per_second / whole:.2f}",
            ">= 3",
        )


def _incident(run: _Run) -> Iterator[Row]:
    """Very many deaths as fast as consumers reject, while they take back what returns."""
    if run.wire is not None:
        return
    count, delay_ms = run.count(50_000), INCIDENT_DELAY_MS
    version = BROKERS[run.name]().version
    spreads = []
    for by_broker_ms, folder in ((0, run.folder), (delay_ms, None)):
        with incident_broker(version, by_broker_ms, is_classic=run.is_classic) as broker:
            bench_incident(broker, 500, delay_ms, folder)
            spreads.append(bench_incident(broker, count, delay_ms, folder))
    ours, theirs = spreads
    yield Row(
        f"{count} deaths at once, delay {delay_ms} ms: late p50, p99, last; "
        f"{'redeliveryPlugin' if run.is_classic else 'redelivery-delay'}",
        run.where,
        f"{ours.p50}, {ours.p99}, {ours.max} ms",
        f"{theirs.p50}, {theirs.p99}, {theirs.max} ms",
        f"{ours.p50 / max(1, theirs.p50):.2f}",
        "<= 1 (p50)",
    )


def _lateness(run: _Run) -> Iterator[Row]:
    """At a steady rate, and at half the rate through the store where this run measured it."""
    yield from _lateness_at(run, LATENESS_PER_SECOND, "p99 < 50 ms")
    if run.stored_per_second is not None:
        yield from _lateness_at(run, int(run.stored_per_second / 2), "p99 < 100 ms")


def _lateness_at(run: _Run, per_second: int, aim: str) -> Iterator[Row]:
    with BROKERS[run.name]() as broker:
        found = lateness.bench_lateness(
            broker,
            run.folder,
            per_second=per_second,
            seconds=25 * run.scale,
            warm_up_s=25 * run.scale,
            wire=run.wire,
        )
    for what, spread in (("at a consumer", found.at_consumer), ("by metric", found.by_metric)):
        machine = found.of_machine
        yield Row(
            f"lateness {what}, {found.per_second:.0f}/s: p50, p99, max; a process that sleeps",
            run.where,
            f"{spread.p50}, {spread.p99}, {spread.max} ms",
            f"{machine.p50}, {machine.p99}, {machine.max} ms",
            aim=aim if what == "at a consumer" else "",
        )


def _decisions(folder: Path, cases: int) -> Iterator[Row]:
    for kind in decisions.KINDS:
        one = decisions.bench_decisions(folder, kind, rules=1, cases=cases)
        many = decisions.bench_decisions(folder, kind, rules=1000, cases=cases)
        where = f"{kind}: 1000 rules; 1 rule"
        for what, a, b in (
            ("decisions, destinations known", many.known_us, one.known_us),
            ("decisions, destinations new", many.new_us, one.new_us),
        ):
            yield Row(what, where, f"{1e6 / a:,.0f}/s", f"{1e6 / b:,.0f}/s", f"{b / a:.2f}", "~ 1")
        yield Row(f"explain --batch, {cases} cases", where, f"{many.batch_s:.1f} s",
                  f"{one.batch_s:.1f} s", f"{one.batch_s / many.batch_s:.2f}", "~ 1")  # fmt: skip


def _listener(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    found = proxying.bench_proxying(
        folder,
        requests=max(100, int(5_000 * options.scale)),
        messages=max(500, int(50_000 * options.scale)),
        large=max(5, int(400 * options.scale)),
        rounds=options.rounds,
    )
    ours = found.pop("listener")
    direct = found["direct"]
    for name, other in found.items():
        for what, mine, theirs, unit, aim in (
            ("p50 of a request and its answer", ours.p50_ms, other.p50_ms, "ms", 1),
            ("p99 of a request and its answer", ours.p99_ms, other.p99_ms, "ms", 5),
        ):
            yield Row(
                what,
                f"listener; {name}",
                f"{mine:.2f} {unit}",
                f"{theirs:.2f} {unit}",
                f"{mine / theirs:.2f}",
                f"< {aim} ms more" if other is direct else "",
            )
        for what, mine, theirs, unit, aim in (
            ("messages of 1 KiB with ACK", ours.per_second, other.per_second, "/s", 20_000),
            ("messages of 1 MiB", ours.mb_per_second, other.mb_per_second, " MB/s", 50),
        ):
            yield Row(
                what,
                f"listener; {name}",
                f"{mine:,.0f}{unit}",
                f"{theirs:,.0f}{unit}",
                f"{mine / theirs:.2f}",
                f">= {aim:,}{unit}" if other is direct else "",
            )


WITHOUT_BROKER = ("decisions", "listener")

MEASURED: dict[str, Callable[[_Run], Iterator[Row]]] = {
    "moving": _moving,
    "whole_cycle": _whole_cycle,
    "lateness": _lateness,
    "incident": _incident,
}


def _told(what: str, where: str, rows: Iterator[Row]) -> list[Row]:
    began = time.monotonic()
    found = list(rows)
    load = os.getloadavg()[0]
    print(f"{what} {where}: {time.monotonic() - began:.0f} s, load {load:.1f}", file=sys.stderr)
    return found


def _table(rows: list[Row]) -> str:
    lines = [
        "| what is measured; peer | where | sidecar | peer | ratio | aim |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


if __name__ == "__main__":
    main()

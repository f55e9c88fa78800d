"""The report of a run: one page, in numbers."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.accounting import Accounts
from chaos.disk import SIZE
from chaos.stage import Stage

COLUMNS = {
    "sidecar_kills": "kill -9 sidecar",
    "broker_kills": "kill -9 broker",
    "cuts": "cut",
    "half_closes": "half-closed",
    "stalls": "stalled",
    "delays": "slowed",
    "stops": "SIGSTOP",
    "full_disks": "full disk",
    "databases": "PostgreSQL killed or stopped",
}
PREFACE = """\
# Chaos

Written by `make chaos` (`tests/chaos`); run it again, don't edit.

Real brokers, JMS producers and failing JMS consumers at a steady load, the real command between
them over a TCP proxy. Each fault begins at a random moment, and the next one when messages are sent
again. At the end each message is followed by its id from what its consumers saw: every message is
either processed once, or once in its final dead-letter queue after all redeliveries that the policy
allows; every body, header and property of every delivery is compared with what was sent; no
redelivery comes before its delay. The journal, in segments of 200 events, is compared with the
store's history, event by event.

"""
AFTERWORD = """\

How faults are made: `kill -9` at a random moment and at every name in
`amqsidecar/engine/crash_points.py`; the broker's processes are real, with their stock journals on
disk. The proxy resets links (also within a frame), closes one direction, holds everything back for
longer than both sides' heart-beats and then resets or resumes, or delivers what it held back on the
old link when a new one is up. SIGSTOP lasts until the other side has given up; a second sidecar
that is started meanwhile is refused. The store lies on a tmpfs of {disk} that is filled to the last
byte. In the pairs that are called `shared` there are three sidecars with one schedule in
PostgreSQL, which is killed, restarted and stopped as well, with `fsync` on; of the sidecars one is
left dead or frozen for longer than its lease.

    make chaos MINUTES=30 SEED={seed}

The seed decides which faults come in which order, at which crash point, and where a frame is cut.
When exactly they hit is decided by the machine: the same seed makes the same plan, not the same
run.

What it doesn't prove:

- a machine that loses power: processes die here, the operating system and what it has in its caches
  lives on;
- a file of a store on two machines, broken disks, clocks that jump;
- on Classic, a broker that is killed *while it makes a dead letter*: it can keep both copies by
  itself. Consumers rest while a Classic broker is killed, on Artemis those without transactions,
  whose acknowledgements nobody confirms; sidecar and producers don't rest;
- a producer or consumer that loses its broker while it commits can't know how that ended. Such a
  receipt counts unless the message comes again; such a send may be missing, but not be there twice.

`stuck` are dead letters that Artemis counted as handed out to nobody after a STOMP connection had
died; they came when the broker was restarted ([stomp.md](stomp.md)).
"""


@dataclass(frozen=True)
class Outcome:
    """A pair that is done."""

    stage: Stage
    accounts: Accounts

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return self.stage.counts["sidecar_kills"] + self.stage.counts["broker_kills"]


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the numbers of each pair, and their sums."""
    heads = (
        *("pair", "messages", "deliveries", "redelivered", "consumed", "final"),
        *COLUMNS.values(),
        *(
            "unknown sends",
            "stuck",
            "lost",
            "doubled",
            "altered",
            "early",
            "too often",
            "events in the journal",
            "faults of the journal",
        ),
        "longest recovery",
    )
    rows = [_numbers(outcome) for outcome in outcomes]
    sums = [sum(column) for column in zip(*rows, strict=True)]
    lines = [
        [one.stage.pair.name, *map(str, row), _longest(one.stage.recoveries)]
        for one, row in zip(outcomes, rows, strict=True)
    ]
    slowest = max((one.stage.recoveries for one in outcomes), key=lambda one: max(one.values()))
    lines.append(["**all**", *(f"**{one}**" for one in sums), _longest(slowest)])
    # Why turned: so many columns don't fit on a page.
    turned = list(zip(heads, *lines, strict=True))
    first, *rest = ("| " + " | ".join(row) + " |" for row in turned)
    return "\n".join([first, "|---|" + "---:|" * len(lines), *rest])


def page(outcomes: Sequence[Outcome], broken: Sequence[str], seed: int, minutes: float) -> str:
    """Return the whole page; `broken` says which pairs have no numbers, and why."""
    kills = sum(one.kills for one in outcomes)
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    run = (
        f"Commit {commit or 'unknown'}, seed {seed}, {minutes:.0f} minutes, {os.cpu_count()} "
        f"cores, {memory_gib:.0f} GiB of memory. {kills} times a process was killed.\n\n"
    )
    ends = "".join(f"{one}\n\n" for one in broken)
    return PREFACE + run + ends + table(outcomes) + "\n" + AFTERWORD.format(seed=seed, disk=SIZE)


def _numbers(outcome: Outcome) -> list[int]:
    accounts, counts = outcome.accounts, outcome.stage.counts
    return [
        accounts.messages,
        accounts.deliveries,
        accounts.redeliveries,
        accounts.consumed,
        accounts.final,
        *(counts[name] for name in COLUMNS),
        accounts.unknown_sends,
        accounts.stuck,
        len(accounts.lost),
        len(accounts.doubled),
        len(accounts.altered),
        len(accounts.early),
        len(accounts.excessive),
        accounts.journaled,
        len(accounts.journal),
    ]


def _longest(recoveries: dict[str, float]) -> str:
    fault = max(recoveries, key=lambda one: recoveries[one])
    return f"{recoveries[fault]:.1f} s ({fault})"

"""The page of numbers that a run writes."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.accounting import Accounts
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
# Chaos: the numbers

Written by `make chaos`. Claim, method, the meaning of the rows, and limits: [chaos.md](chaos.md).

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
    # Why transposed: one column for each figure is too wide for a page.
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
        f"cores, {memory_gib:.0f} GiB of memory; {kills} processes killed.\n\n"
    )
    ends = "".join(f"{one}\n\n" for one in broken)
    return PREFACE + run + ends + table(outcomes) + "\n"


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

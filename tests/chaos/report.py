"""The numbers that a run prints and records."""

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.accounting import Accounts
from chaos.stage import Stage
from support.machine.processes import run_program

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
HEADS = (
    *("pair", "messages", "deliveries", "redelivered", "consumed", "final"),
    *COLUMNS.values(),
    *("unknown sends", "stuck", "lost", "doubled", "altered", "early", "too often"),
    *("events in the journal", "faults of the journal", "longest recovery"),
)


@dataclass(frozen=True)
class Outcome:
    """A pair that is done."""

    stage: Stage
    accounts: Accounts


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the numbers of each pair, and their sums."""
    rows = [_numbers(outcome) for outcome in outcomes]
    sums = [sum(column) for column in zip(*rows, strict=True)]
    lines = [
        [one.stage.pair.name, *map(str, row), _longest(one.stage.recoveries)]
        for one, row in zip(outcomes, rows, strict=True)
    ]
    slowest = max((one.stage.recoveries for one in outcomes), key=lambda one: max(one.values()))
    lines.append(["**all**", *(f"**{one}**" for one in sums), _longest(slowest)])
    # Why transposed: one column for each figure is too wide for a page.
    turned = list(zip(HEADS, *lines, strict=True))
    first, *rest = ("| " + " | ".join(row) + " |" for row in turned)
    return "\n".join([first, "|---|" + "---:|" * len(lines), *rest])


def record(outcomes: Sequence[Outcome], seed: int, minutes: float) -> str:
    """Return the run as CSV: a column for each pair, with the conditions in its first rows."""
    commit = run_program(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=Path(__file__).parent
    ).stdout.strip()
    load = f"{os.getloadavg()[2]:.0f} at the end"
    conditions = (commit or "unknown", str(seed), f"{minutes:.0f}", load)
    columns = [
        (
            *(one.stage.pair.name, *conditions, *map(str, _numbers(one))),
            _longest(one.stage.recoveries),
        )
        for one in outcomes
    ]
    head, *rest = HEADS
    names = (head, "commit", "seed", "minutes of the run", "load", *rest)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(zip(names, *columns, strict=True))
    return text.getvalue()


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

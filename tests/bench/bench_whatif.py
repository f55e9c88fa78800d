"""Do `whatif`'s intervals hold? Hidden processes, five candidates, many seeds; a table.

`hidden_processes.py` makes histories and truths without any code of the job. By default the models
and forecasts are asked directly; with `--job` the real command reads the histories as a table of
events, one destination for each process and seed, and its tables are held against the truth.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

if __name__ == "__main__":
    # Why: as a script its own folder comes first, where `bench` is a file and not the folder.
    sys.path.pop(0)

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql.pandas.types import to_arrow_schema

from amqsidecar.cli.main import run_command_line
from amqsidecar.pipeline.session import open_session
from amqsidecar.pipeline.tables import EVENTS
from bench.hidden_processes import (
    CANDIDATES,
    FOREIGN,
    HELD_BACK,
    KNOWN,
    PROCESSES,
    UNTIL_MS,
    Lives,
    Policy,
    policy_of_history,
    run,
)
from bench.whatif_cases import Case, case_of, proposal_of, summary

_KINDS = {"known": KNOWN, "foreign": FOREIGN, "held_back": HELD_BACK}
START_MS = 1_790_000_000_000
UNTIL = START_MS + int(UNTIL_MS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--messages", type=int, default=4_000, help="of each history")
    parser.add_argument("--only", nargs="+", choices=[*PROCESSES, *_KINDS], default=["known"])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--job", action="store_true", help="run the command, by Spark")
    parser.add_argument("--misses", action="store_true", help="print the cases not covered")
    asked = parser.parse_args()
    seeds = range(asked.seed, asked.seed + asked.seeds)
    names = [one for name in asked.only for one in _KINDS.get(name, [name])]
    worlds = [(process, seed) for process in names for seed in seeds]
    proposals: list[Case] = []
    if asked.job:
        cases = list(by_the_job(worlds, asked.messages))
    else:
        with ProcessPoolExecutor(asked.workers) as pool:
            found = [pool.submit(cases_of, *world, asked.messages) for world in worlds]
            cases = [case for one in found for case in one.result()[0]]
            proposals = [case for one in found if (case := one.result()[1]) is not None]
    if asked.misses:
        for case in (*cases, *proposals):
            if not case.covers:
                sys.stderr.write(f"{case}\n")
    sys.stdout.write(f"{summary(cases, proposals)}\n")


def cases_of(process: str, seed: int, count: int) -> tuple[list[Case], Case | None]:
    cases = [case_of(process, seed, count, policy) for policy in CANDIDATES]
    return cases, proposal_of(process, seed, count)


def by_the_job(worlds: list[tuple[str, int]], count: int) -> Iterator[Case]:
    """Run the command over one history of all worlds, and hold it against the truth."""
    spark = open_session("bench whatif", "local[2]", ["spark.sql.shuffle.partitions=4"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_history(folder / "events", worlds, count)
        run_job(folder)
        rows = spark.read.parquet(str(folder / "out" / "whatif_by_destination")).collect()
    found = {(row["destination"], row["policy"]): row for row in rows}
    for process, seed in worlds:
        for number, (name, policy) in enumerate(CANDIDATES.items(), 1):
            row = found[destination(process, seed), name]
            yield Case(
                process=process,
                seed=seed,
                policy=name,
                truth=run(process, seed, count, policy, number).share,
                lower=row["share_lower"],
                likely=np.nan if row["share"] is None else row["share"],
                upper=row["share_upper"],
                beyond=row["beyond_reach_messages"] / count,
                is_supported=row["is_supported"],
                history=found[destination(process, seed), "history"]["share_lower"],
                models=(row["share_lower"], row["share_upper"]),
            )


def run_job(folder: Path) -> None:
    """Run the command over `events` in a folder, with all candidates, into `out`."""
    arguments = ["--events", str(folder / "events"), "--output-folder", str(folder / "out")]
    arguments += ["--until", f"{np.datetime64(UNTIL, 'ms')}Z", "--horizon", "10m", "--no-search"]
    for name, policy in CANDIDATES.items():
        (folder / f"{name}.yaml").write_text(as_rules(policy))
        arguments += ["--policy", f"{name}={folder / name}.yaml"]
    code = run_command_line(["pipeline", "whatif", *arguments])
    if code:
        sys.exit(code)


def as_rules(policy: Policy) -> str:
    entry = {
        "maximum_redeliveries": policy.resends,
        "initial_redelivery_delay_ms": int(policy.first_ms),
        "redelivery_delay_ms": int(policy.first_ms),
        "use_exponential_back_off": policy.multiplier > 1,
        "back_off_multiplier": policy.multiplier,
        "maximum_redelivery_delay_ms": int(policy.longest_ms),
    }
    return json.dumps({"plugins": [{"redelivery": {"default_entry": entry}}]})


def destination(process: str, seed: int) -> str:
    return f"queue://{process}.{seed}"


def write_history(folder: Path, worlds: list[tuple[str, int]], count: int) -> None:
    """Write what the logged policy did in each world as a table of events, a file for each."""
    folder.mkdir()
    schema = to_arrow_schema(EVENTS, timezone="UTC")
    for number, (process, seed) in enumerate(worlds):
        policy = policy_of_history(process, seed)
        lives = run(process, seed, count, policy, 0)
        columns = events_of(lives, policy, destination(process, seed), f"w{number}")
        rows = len(columns["at"])
        arrays = [
            pa.array(columns[field.name], field.type)
            if field.name in columns
            else pa.nulls(rows, field.type)
            for field in schema
        ]
        table = pa.Table.from_arrays(arrays, schema=schema)
        parquet.write_table(table, folder / f"part-{number:04}.parquet")
    (folder / "_SUCCESS").touch()


def events_of(lives: Lives, policy: Policy, name: str, stream: str) -> dict[str, list[object]]:
    """Return the columns of a history's events that jobs read."""
    columns: dict[str, list[object]] = {
        key: []
        for key in (
            *("type", "at", "redelivery_id", "origin", "destination", "cause_group"),
            *("redelivery_count", "delay_ms", "expired", "persistent"),
        )
    }

    def add(kind: str, message: int, at_ms: float, count: int, **values: object) -> None:
        at_us = 1_000 * (START_MS + int(at_ms))
        known = {"type": kind, "at": at_us, "redelivery_id": f"{stream}.{message}"}
        for key, column in columns.items():
            column.append({**known, "redelivery_count": count, **values}.get(key))

    dead = {"origin": name, "cause_group": "died", "expired": False, "persistent": True}
    delays = policy.delays()
    for message, first in enumerate(lives.died_ms.tolist()):
        add("received", message, first, 0, **dead)
        died = first
        for number, (sent, back) in enumerate(
            zip(lives.sent_ms[message].tolist(), lives.back_ms[message].tolist(), strict=True)
        ):
            if not np.isfinite(sent):
                break
            count = number + 1
            add("scheduled", message, died, count, destination=name, delay_ms=int(delays[number]))
            add("resent", message, sent, count, destination=name)
            if not np.isfinite(back):
                break
            died = back
            add("returned", message, back, count, **dead)
        else:
            add("exhausted", message, died, 0)
    rows = len(columns["at"])
    return {
        **columns,
        "stream": [stream] * rows,
        "sidecar": [stream] * rows,
        "segment": [1] * rows,
        "position": list(range(rows)),
        "row_id": list(range(rows)),
    }


if __name__ == "__main__":
    main()

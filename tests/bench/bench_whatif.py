"""Do `whatif`'s intervals hold? Hidden processes, five candidates, many seeds; a table.

`hidden_processes.py` makes histories and truths without any code of the job. The models and
forecasts are asked directly; what the command makes of them is tested in `pipeline/whatif/`.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor

from bench.hidden_processes import CANDIDATES, FOREIGN, HELD_BACK, KNOWN, PROCESSES
from bench.whatif_cases import Case, case_of, proposal_of, summary

_KINDS = {"known": KNOWN, "foreign": FOREIGN, "held_back": HELD_BACK}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--messages", type=int, default=4_000, help="of each history")
    parser.add_argument("--only", nargs="+", choices=[*PROCESSES, *_KINDS], default=["known"])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--misses", action="store_true", help="print the cases not covered")
    asked = parser.parse_args()
    seeds = range(asked.seed, asked.seed + asked.seeds)
    names = [one for name in asked.only for one in _KINDS.get(name, [name])]
    worlds = [(process, seed) for process in names for seed in seeds]
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


if __name__ == "__main__":
    main()

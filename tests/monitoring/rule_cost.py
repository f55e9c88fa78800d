"""Measures the processor time that one evaluation of the weekly median takes in a real Prometheus.

`PYTHONPATH=tests python -m monitoring.rule_cost --sidecars 4 --destinations 200` writes a week of
the recorded series into blocks, and evaluates each rule of the group `amqsidecar-medians` over it.
"""

import argparse
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from support.deployment.prometheus import Prometheus, program

RULES = Path(__file__).parents[2] / "deploy" / "monitoring" / "rules.yaml"
GROUP = "amqsidecar-medians"
HOUR_S = 3_600
DAY_S = 24 * HOUR_S
MEDIAN_EVERY_S = 15 * 60
RECORDED_EVERY_S = 15
INCREASE = "destination:amqsidecar_dead_letters_received:increase5m"


def expressions() -> list[str]:
    """Return what the rules of the group evaluate."""
    groups = YAML(typ="safe").load(RULES.read_text(encoding="utf-8"))["groups"]
    [rules] = [group["rules"] for group in groups if group["name"] == GROUP]
    return [rule["expr"] for rule in rules]


def week(sidecars: int, destinations: int, end_s: int) -> Iterator[str]:
    """Yield the lines of an OpenMetrics file with what the rules read."""
    jobs: list[dict[str, Any]] = [
        {"namespace": "mq", "job": f"sidecar-{number}"} for number in range(sidecars)
    ]
    places = [{**job, "destination": f"orders.{n}"} for job in jobs for n in range(destinations)]
    days = [{"day": str(day)} for day in range(7)]
    hours = (2 * HOUR_S, RECORDED_EVERY_S)
    medians = (7 * DAY_S, MEDIAN_EVERY_S)
    for name, series, (since_s, every_s) in (
        ("job:amqsidecar_build_info:group", jobs, hours),
        ("job:amqsidecar_build_info:sampled", [job | day for job in jobs for day in days], medians),
        (INCREASE, places, hours),
        (f"{INCREASE}_median1h", places, medians),
        (f"{INCREASE}_median1d", [place | days[0] for place in places], medians),
        (
            f"{INCREASE}_median1d",
            [place | day for place in places for day in days[1:]],
            (HOUR_S, MEDIAN_EVERY_S),
        ),
    ):
        for labels in series:
            text = _labels(labels)
            for at_s in range(end_s - since_s, end_s + 1, every_s):
                yield f"{name}{{{text}}} {at_s % 97} {at_s}\n"
    yield "# EOF\n"


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def cost_s(sidecars: int, destinations: int, times: int) -> tuple[float, int]:
    """Return the processor seconds of one evaluation of the group, and its results."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "none.yaml").write_text("groups: []\n", encoding="utf-8")
        with (folder / "week.txt").open("w", encoding="utf-8") as file:
            file.writelines(week(sidecars, destinations, int(time.time())))
        blocks = ["tsdb", "create-blocks-from", "openmetrics", "--quiet"]
        subprocess.run(
            [str(program("promtool")), *blocks, str(folder / "week.txt"), str(folder / "data")],
            check=True,
        )
        with Prometheus(folder, {}, folder / "none.yaml") as prometheus:
            results = sum(len(prometheus.query(one)) for one in expressions())
            before_s = prometheus.processor_s()
            for _ in range(times):
                for one in expressions():
                    prometheus.query(one)
            return (prometheus.processor_s() - before_s) / times, results


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sidecars", type=int, default=4)
    parser.add_argument("--destinations", type=int, default=200, help="of each sidecar")
    parser.add_argument("--times", type=int, default=10)
    chosen = parser.parse_args()
    each_s, results = cost_s(chosen.sidecars, chosen.destinations, chosen.times)
    print(
        f"{each_s:.3f} processor seconds for one evaluation of {GROUP}: {chosen.sidecars} sidecars"
        f" of {chosen.destinations} destinations, {results} results, mean of {chosen.times}"
    )


if __name__ == "__main__":
    main()

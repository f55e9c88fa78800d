"""A whole broker with its plugins beside a broker with the sidecar: what applications see.

`make differential` runs it at length; deploy/evidence/README.md says what it found.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oracle.whole_compare import Report, compare
from oracle.whole_configuration import Configuration, Consumer, generate
from oracle.whole_run import play
from support.jms.message import typed
from support.sidecar.logs import show_sidecar_logs  # noqa: F401 - autouse

FIRST = int(os.environ.get("SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("CONFIGURATIONS", "1")))
TITLES = (
    *("seed", "Classic", "messages", "deliveries", "same", "documented, by row"),
    *("undocumented", "latest ms, plugins", "latest ms, sidecar"),
)


@pytest.fixture(scope="module")
def reports() -> Iterator[dict[int, Report]]:
    """Collects the reports by seed, and prints them as one table in the end."""
    found: dict[int, Report] = {}
    yield found
    print("\n\n" + _line(*TITLES) + _line(*["---"] * len(TITLES)), end="")
    for seed, report in found.items():
        print(_cells(str(seed), generate(seed).version, report), end="")
    if found:
        print(_cells("all", "", sum_of(found)), end="")


def sum_of(reports: dict[int, Report]) -> Report:
    """Return one report on all configurations."""
    total = Report()
    for one in reports.values():
        total.messages += one.messages
        total.deliveries += one.deliveries
        total.same += one.same
        total.documented += one.documented
        total.faults += one.faults
        for at, late_ms in enumerate(one.late_ms):
            total.late_ms[at].extend(late_ms)
    return total


def _cells(seed: str, version: str, report: Report) -> str:
    rows = ", ".join(f"{row}: {count}" for row, count in sorted(report.documented.items()))
    latest = [max(late_ms, default=0) for late_ms in report.late_ms]
    counts = (report.messages, report.deliveries, report.same, rows, len(report.faults))
    return _line(seed, version, *counts, *latest)


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


@pytest.mark.broker
@pytest.mark.oracle
@pytest.mark.parametrize("seed", SEEDS)
def test_the_sidecar_does_what_the_plugins_do(
    seed: int, tmp_path: Path, reports: dict[int, Report]
) -> None:
    """Per message: deliveries, delays, body, headers, properties, end; nothing comes early."""
    configuration = generate(seed)
    reports[seed] = compare(configuration, *play(configuration, tmp_path))
    assert not reports[seed].faults, _told(configuration, reports[seed])


def _told(configuration: Configuration, report: Report) -> str:
    faults = "\n".join(report.faults)
    messages = "\n".join(
        str(one)
        for one in configuration.messages
        if any(fault.startswith(f"{one['testIds'][0]} ") for fault in report.faults)
    )
    xml = configuration.xml(has_plugins=True)
    return f"SEED={configuration.seed}\n{faults}\n\n{messages}\n\n{xml}"


# Does the comparison bite?

PLUGIN = """
    <redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><redeliveryPolicyEntries>
      <redeliveryPolicy queue="orders" maximumRedeliveries="2" useExponentialBackOff="true"
          backOffMultiplier="1.1"/>
    </redeliveryPolicyEntries></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>
"""


def _small(plugins: str) -> Configuration:
    message = {
        "destination": "orders",
        "type": "Text",
        "testIds": ["m0"],
        "properties": typed({"failures": -1}),
    }
    return replace(
        generate(1),
        plugins=plugins,
        destination_policy="",
        consumers=(Consumer("orders", "rollback", 0),),
        messages=(message,),
    )


@pytest.mark.broker
@pytest.mark.oracle
def test_a_sidecar_with_another_multiplier_is_found(tmp_path: Path) -> None:
    """The plugins wait 1000 and 1100 ms; the sidecar is configured with 1000 and 1200."""
    configuration = _small(PLUGIN)
    other = _small(PLUGIN.replace('"1.1"', '"1.2"'))
    report = compare(configuration, *play(configuration, tmp_path, other.xml(has_plugins=True)))
    assert report.faults == [
        "m0 in orders: delivery 2: property redeliveryDelay: ['Long', 1100] with the plugins, "
        "['Long', 1200] with the sidecar"
    ]

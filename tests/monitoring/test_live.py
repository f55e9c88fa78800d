"""A real Prometheus scrapes the real command: rules and dashboard work on what it serves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amqsidecar.telemetry.metrics_table import METRICS, MetricKind
from support.brokers.broker_xml import DEAD_AT_ONCE, attempts_without_limit
from support.brokers.real import ArtemisBroker
from support.deployment.dashboard import queries
from support.deployment.prometheus import Prometheus
from support.jms.peer import JmsPeer
from support.machine.ports import free_port
from support.sidecar.logs import show_sidecar_logs  # noqa: F401 - autouse
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.prometheus

ROOT = Path(__file__).parents[2]
FILES = ROOT / "helm" / "amqsidecar" / "files"
POLICY = ROOT / "tests" / "end_to_end" / "policies" / "artemis.yaml"
SETTINGS = DEAD_AT_ONCE + attempts_without_limit("DLQ")
OF_TARGETS = {"__name__", "job", "instance"}
DATA_AFTER_A_RUN = (
    "Dead letters in five minutes, by destination",
    "Verdicts in five minutes",
    "Verdicts by the kind of rule, last hour",
    "Most overdue",
    "In the schedule",
    "Given up and dropped, last hour",
    "Waiting, by destination",
    "Scheduled and re-sent in five minutes",
    "Lateness of re-sends",
    "Re-sent in five minutes, by destination",
    "Operations",
    "Link",
    "Store",
    "Cycles: duration",
    "Cycles: messages",
    "Versions",
)


def scraping(sidecar: SidecarProcess, folder: Path) -> Prometheus:
    """Return what will scrape a sidecar that runs, or tries to."""
    eventually(lambda: sidecar.get("/metrics")[0] == 200, what="metrics are served")
    started = [line for line in sidecar.log_lines() if line.get("event") == "started"]
    return Prometheus(folder, started[-1]["http"], ROOT / "deploy" / "monitoring" / "rules.yaml")


def alerts(prometheus: Prometheus, state: str) -> set[str]:
    return {
        one["metric"]["alertname"] for one in prometheus.query(f'ALERTS{{alertstate="{state}"}}')
    }


@pytest.fixture(scope="module")
def without_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Scrapes a sidecar whose broker is away."""
    folder = tmp_path_factory.mktemp("away")
    with SidecarProcess(folder, f"amqp://127.0.0.1:{free_port()}") as sidecar:
        sidecar.start(ready=False)
        with scraping(sidecar, folder) as prometheus:
            eventually(lambda: prometheus.query("amqsidecar_link_up"), what="a scrape")
            yield prometheus


def test_every_query_of_the_dashboard_is_taken(without_broker: Prometheus) -> None:
    for expressions in queries().values():
        for expression in expressions:
            without_broker.query(expression)


def test_what_is_scraped_is_what_the_table_says(without_broker: Prometheus) -> None:
    scraped: dict[str, Any] = without_broker.metadata()
    table = {
        spec.name.removesuffix("_total") if spec.kind is MetricKind.COUNTER else spec.name: spec
        for spec in METRICS
    }
    found = {name: told[0]["type"] for name, told in scraped.items() if name in table}
    assert found == {name: spec.kind.value for name, spec in table.items()}
    labels = {
        (one["metric"]["__name__"], frozenset(one["metric"]) - OF_TARGETS)
        for one in without_broker.query('{__name__=~"amqsidecar_.*"}')
    }
    assert ("amqsidecar_build_info", frozenset({"version", "python"})) in labels
    assert ("amqsidecar_lateness_seconds_bucket", frozenset({"le"})) in labels
    assert ("amqsidecar_store_available_bytes", frozenset()) in labels


def test_the_rules_are_evaluated_and_a_broker_that_is_away_is_reported(
    without_broker: Prometheus,
) -> None:
    eventually(
        lambda: "AmqsidecarLinkDown" in alerts(without_broker, "pending"),
        what="the alert waits for its two minutes",
    )
    rules = without_broker.rules()
    assert [rule.get("lastError") for rule in rules if rule.get("lastError")] == []
    assert {rule["name"] for rule in rules if rule["health"] == "err"} == set()
    assert "AmqsidecarTokenAwaited" not in alerts(without_broker, "pending")


@pytest.mark.broker
def test_a_real_run_fills_the_dashboard_and_fires_what_it_should(tmp_path: Path) -> None:
    sets = ["intake.backlog=process"]
    with (
        ArtemisBroker(address_settings=SETTINGS) as broker,
        SidecarProcess(tmp_path, broker.amqp_url, policy=POLICY, sets=sets) as sidecar,
        scraping(sidecar.start(), tmp_path) as prometheus,
    ):
        eventually(lambda: prometheus.query("amqsidecar_link_up == 1"), what="a scrape")
        peer = JmsPeer.of(broker, "core")
        peer.produce("e2e.gone.live", ["Text"], count=20)
        peer.fail("e2e.gone.live", messages=20, deliveries=2)
        peer.produce("e2e.late.live", ["Text"], count=5)
        peer.fail("e2e.late.live", messages=5, deliveries=1)

        def received() -> dict[str, float]:
            found = prometheus.query("destination:amqsidecar_dead_letters_received:increase5m")
            return {one["metric"]["destination"]: float(one["value"][1]) for one in found}

        whole = {"queue://e2e.gone.live": 40.0, "queue://e2e.late.live": 5.0}
        eventually(
            lambda: received() == whole, what="all deaths are counted", last=lambda _: received()
        )
        eventually(
            lambda: alerts(prometheus, "firing") == {"AmqsidecarExhausted"},
            what="what was given up is reported, and nothing else",
            last=lambda _: alerts(prometheus, "firing"),
        )
        shown = queries()

        def empty() -> list[str]:
            return [
                title
                for title in DATA_AFTER_A_RUN
                for expression in shown[title]
                if not prometheus.query(expression)
            ]

        eventually(lambda: not empty(), what="every picture has data", last=lambda _: empty())

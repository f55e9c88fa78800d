"""What the dashboard shows by default of two brokers, one of them with three replicas.

A real Prometheus scrapes the real metrics; what they say is what sidecars of two schedules would.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from amqsidecar.model.operation import Action, OutcomeKind
from amqsidecar.model.schedule import RowState, Tally
from amqsidecar.telemetry.health import Health
from amqsidecar.telemetry.metrics import Metrics
from support.deployment.dashboard import queries
from support.deployment.prometheus import Prometheus
from support.waiting import eventually
from support.web.answering import answering

pytestmark = pytest.mark.prometheus

RULES = Path(__file__).parents[2] / "deploy" / "monitoring" / "rules.yaml"
QUEUE = "queue://orders"
JOBS = {"alone": 1, "shared": 3}


def served(metrics: Metrics) -> AbstractContextManager[str]:
    """Serve metrics; yields host and port."""

    def respond(_: str, headers: Mapping[str, str]) -> tuple[int, str, bytes]:
        body, content_type = metrics.render(headers.get("Accept", ""))
        return 200, content_type, body

    return answering(respond)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    full = Health()
    full.taking("the disk is full")
    replicas = {
        job: [Metrics(read_state=full.state) for _ in range(count)] for job, count in JOBS.items()
    }
    for found in replicas.values():
        for metrics in found:
            metrics.set_waiting([Tally(destination=QUEUE, state=RowState.WAITING, count=2001)])
            metrics.set_value("amqsidecar_operations_running", 1)
            metrics.outcomes({(QUEUE, OutcomeKind.CAME_BACK): 1})
            metrics.operations_changed(Action.RETRY, 1, 0)
    with ExitStack() as stack:
        targets = {
            job: [stack.enter_context(served(one)) for one in found]
            for job, found in replicas.items()
        }
        made = stack.enter_context(Prometheus(tmp_path_factory.mktemp("dashboard"), targets, RULES))
        eventually(
            lambda: len(made.query("amqsidecar_link_up")) == sum(JOBS.values()),
            what="all are scraped",
        )
        for found in replicas.values():
            for metrics in found:
                metrics.outcomes({(QUEUE, OutcomeKind.CAME_BACK): 60})
                metrics.operations_changed(Action.RETRY, 60, 0)
        eventually(
            lambda: (
                len(made.query("amqsidecar_outcomes_total == 61"))
                == len(made.query("amqsidecar_operation_messages_total == 61"))
                == sum(JOBS.values())
            ),
            what="all are scraped again",
        )
        yield made


def shown(prometheus: Prometheus, title: str) -> list[dict[str, str]]:
    """Return labels and value of all that a panel shows."""
    return [
        {**one["metric"], "value": one["value"][1]}
        for expression in queries()[title]
        for one in prometheus.query(expression)
    ]


def test_the_schedule_is_the_sum_over_jobs_of_what_their_replicas_say(
    prometheus: Prometheus,
) -> None:
    assert shown(prometheus, "In the schedule") == [{"state": "waiting", "value": "4002"}]
    assert shown(prometheus, "Operations")[0]["value"] == "2"
    jobs = [one["job"] for one in shown(prometheus, "Waiting, by destination")]
    assert sorted(jobs) == ["alone", "shared"]


def test_outcomes_are_counted_once_for_a_schedule(prometheus: Prometheus) -> None:
    """As Prometheus extrapolates: two schedules, 60 each, seen by four sidecars."""
    # Why in one question: what is extrapolated changes with each scrape.
    twice = "scalar(2 * max(increase(amqsidecar_outcomes_total[5m])))"
    for title in ("Outcomes in five minutes", "Messages changed by operations, in five minutes"):
        shown_first = queries()[title][0]
        (found,) = prometheus.query(f"({shown_first}) <= {twice}")
        assert float(found["value"][1]) >= 60


def test_alerts_of_two_jobs_are_rows_that_name_them(prometheus: Prometheus) -> None:
    rows = eventually(
        lambda: pending(prometheus) if len(pending(prometheus)) == sum(JOBS.values()) else None,
        what="the alert is pending for each sidecar, in a row of its own",
    )
    told = [one["metric"] for one in prometheus.query("amqsidecar_taking_stopped")]
    places = {(one["job"], one["instance"]) for one in told}
    assert {(one["job"], one["instance"]) for one in rows} == places


def test_the_process_reports_its_memory_and_its_processor(prometheus: Prometheus) -> None:
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"):
        assert len(prometheus.query(f"{name} > 0")) == sum(JOBS.values()), name


def pending(prometheus: Prometheus) -> list[dict[str, str]]:
    """Return the rows of alerts that are not firing yet, as the panel would show them."""
    (expression,) = queries()["Alerts"]
    found = prometheus.query(expression.replace("firing", "pending"))
    rows = [one["metric"] for one in found]
    return [one for one in rows if one["alertname"] == "AmqsidecarTakingStopped"]

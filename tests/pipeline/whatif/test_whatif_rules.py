"""Policies with rules beyond the broker's, played on a history by hand."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from amqsidecar.cli.main import run_command_line
from amqsidecar.pipeline.tables import EVENTS, EVERYWHERE
from support.histories.outage_world import write_events

HISTORY_MS = 10_000_000
CAUSES = {
    "never": "com.shop.SchemaException: schema version 7 is not supported",
    "down": "java.net.ConnectException: Connection refused",
    "other": None,
}
MESSAGES = 40
"""Of each cause; half of them have the property `code`."""

TODAY = """
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 3, redelivery_delay_ms: 1000}
"""
RULES = """
  - rules:
      rules:
        - cause_matches: 'schema version \\d+ is not'
          action: exhaust
        - cause_class: ConnectException
          properties: {code: E1}
          redeliver: {maximum_redeliveries: -1, redelivery_delay_ms: 1000, within_ms: 3000}
        - properties: {tenant: legacy}
          action: discard
"""


def events() -> list[tuple[object, ...]]:
    """Each message dies, and again 500 ms after each of three re-sends, and is given up."""
    found: list[tuple[object, ...]] = []
    for kind, cause in CAUSES.items():
        for number in range(MESSAGES):
            name = f"{kind}-{number}"
            at_ms = number * 100_000
            common: dict[str, object] = {
                "origin": "queue://orders",
                "persistent": True,
                "expired": False,
                "cause": cause,
                "cause_group": None if cause is None else cause.replace("7", "*"),
                "properties": {"code": "E1"} if number % 2 else None,
            }
            kinds: list[tuple[str, int, int, dict[str, object]]] = [("received", 0, 0, common)]
            for count in (1, 2, 3):
                died_ms = (count - 1) * 1500
                kinds += [
                    ("scheduled", count, died_ms, {"delay_ms": 1000}),
                    ("resent", count, died_ms + 1000, {}),
                    ("returned", count, died_ms + 1500, common),
                ]
            for type_, count, after_ms, values in kinds:
                one = {
                    "stream": "s", "segment": 1, "position": len(found), "sidecar": "s",
                    "row_id": 1, "redelivery_id": name, "type": type_, "redelivery_count": count,
                    "at": datetime.fromtimestamp((at_ms + after_ms) / 1000, UTC),
                } | values  # fmt: skip
                found.append(tuple(one.get(column) for column in EVENTS.names))
    return found


@pytest.fixture(scope="module")
def played(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Row], str, Path]:
    folder = tmp_path_factory.mktemp("whatif")
    write_events(events(), folder / "events")
    (folder / "today.yaml").write_text(TODAY)
    (folder / "rules.yaml").write_text(TODAY + RULES)
    until = datetime.fromtimestamp(HISTORY_MS / 1000, UTC).isoformat()
    arguments = ["pipeline", "whatif", "--events", f"{folder}/events", "--until", until]
    arguments += ["--output-folder", f"{folder}/out", "--horizon", "1m", "--no-search"]
    arguments += ["--policy", f"{folder}/rules.yaml", "--policy", f"{folder}/today.yaml"]
    assert run_command_line(arguments) == 0
    table = spark.read.parquet(f"{folder}/out/whatif_by_destination")
    rows = table.where(f"destination = '{EVERYWHERE}'").collect()
    report = (folder / "out" / "report.html").read_text()
    return {Path(row["policy"]).name: row for row in rows}, report, folder


def test_each_message_takes_the_course_of_its_rule(
    played: tuple[dict[str, Row], str, Path],
) -> None:
    """Deaths are 1.5 s apart: a budget of 3 s has room for two re-sends, at 1 and 2.5 s.

    What matches no rule has the three of the broker's own rules. Nothing ever succeeds.
    """
    rows = played[0]
    assert rows["today.yaml"]["resends"] == pytest.approx(3 * 3 * MESSAGES)
    by_budget, by_broker = MESSAGES // 2, MESSAGES + MESSAGES // 2
    assert rows["rules.yaml"]["messages"] == 3 * MESSAGES
    assert rows["rules.yaml"]["resends"] == pytest.approx(2 * by_budget + 3 * by_broker)


def test_facts_that_rules_ask_and_history_lacks_are_reported(
    played: tuple[dict[str, Row], str, Path],
) -> None:
    assert "property:tenant" in played[1]
    assert "property:code" not in played[1]

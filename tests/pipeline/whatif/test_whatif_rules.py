"""Policies with rules beyond the broker's, played on a history by hand."""

from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from amqsidecar.pipeline.tables import EVERYWHERE
from pipeline.journals import event, write_journal
from pipeline.running import rows_of, run_job

HISTORY_MS = 10_000_000
Played = tuple[dict[str, dict[str, Any]], str]
"""Rows by policy, and the report."""
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


def events() -> list[dict[str, Any]]:
    """Each message dies, and again 500 ms after each of three re-sends, and is given up."""
    found: list[dict[str, Any]] = []
    for (kind, cause), number in product(CAUSES.items(), range(MESSAGES)):
        died = {
            "origin": "queue://orders",
            "persistent": True,
            "expired": False,
            "cause": cause,
            "cause_group": None if cause is None else cause.replace("7", "*"),
            "properties": {"code": "E1"} if number % 2 else None,
        }
        acts: list[tuple[str, int, int, dict[str, Any]]] = [("received", 0, 0, died)]
        for count in (1, 2, 3):
            died_ms = (count - 1) * 1500
            acts.append(("scheduled", count, died_ms, {"delay_ms": 1000}))
            acts.append(("resent", count, died_ms + 1000, {}))
            acts.append(("returned", count, died_ms + 1500, died))
        for type_, count, after_ms, values in acts:
            when = {"at": number * 100_000 + after_ms, "redelivery_count": count}
            me = {"redelivery_id": f"{kind}-{number}", "type": type_}
            found.append(event(1, len(found), **me, **when, **values))
    return found


@pytest.fixture(scope="module")
def played(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Played:
    assert spark
    folder = tmp_path_factory.mktemp("whatif")
    write_journal(folder / "events", events())
    (folder / "today.yaml").write_text(TODAY)
    (folder / "rules.yaml").write_text(TODAY + RULES)
    until = datetime.fromtimestamp(HISTORY_MS / 1000, UTC).isoformat()
    asked = ["--until", until, "--horizon", "1m", "--no-search"]
    asked += ["--policy", f"{folder}/rules.yaml", "--policy", f"{folder}/today.yaml"]
    assert run_job("whatif", folder / "events", folder / "out", *asked) == 0
    table = rows_of(folder / "out" / "whatif_by_destination")
    rows = {Path(row["policy"]).name: row for row in table if row["destination"] == EVERYWHERE}
    return rows, (folder / "out" / "report.html").read_text()


def test_each_message_takes_the_course_of_its_rule(played: Played) -> None:
    """Deaths are 1.5 s apart: a budget of 3 s has room for two re-sends, at 1 and 2.5 s.

    What matches no rule has the three of the broker's own rules. Nothing ever succeeds.
    """
    rows = played[0]
    assert rows["today.yaml"]["resends"] == pytest.approx(3 * 3 * MESSAGES)
    by_budget, by_broker = MESSAGES // 2, MESSAGES + MESSAGES // 2
    assert rows["rules.yaml"]["messages"] == 3 * MESSAGES
    assert rows["rules.yaml"]["resends"] == pytest.approx(2 * by_budget + 3 * by_broker)


def test_facts_that_rules_ask_and_history_lacks_are_reported(played: Played) -> None:
    assert "property:tenant" in played[1]
    assert "property:code" not in played[1]

"""A stock broker gives a newcomer the results that the record has."""

from pathlib import Path

import pytest

from field.cases import CASES
from field.field import TABLE, recorded, rows, table
from field.stock import stock_brokers


@pytest.mark.broker
@pytest.mark.parametrize("broker", ["Classic 5.18.3", "Artemis 2.44.0"])
def test_a_stock_broker_does_what_the_record_says(broker: str, tmp_path: Path) -> None:
    """Ready or refused, messages that came back and that are left, and the text of the message."""
    cases = [case for case in CASES if case.broker == broker and case.is_short]
    known = {row.url: row for row in recorded() if row.broker == broker}
    for row in rows(broker, cases, tmp_path):
        assert row == known[row.url]


def test_every_case_is_recorded_and_printed() -> None:
    """`make field` has run all of them, and the table is fresh."""
    known = recorded()
    assert [(row.broker, row.url) for row in known] == [(case.broker, case.url) for case in CASES]
    assert {row.broker for row in known} == set(stock_brokers())
    assert TABLE.read_text(encoding="utf-8") == table(known), "print it again: make field"


def test_every_refusal_has_its_sentence() -> None:
    """No case ends with an exit code alone, or with a stack trace."""
    for row in recorded():
        assert row.outcome in {"ready", "exit 69", "tries again"}, row
        assert row.outcome == "ready" or len(row.says) == 1, row
        assert not row.left or row.says, row

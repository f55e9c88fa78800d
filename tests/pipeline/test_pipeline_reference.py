"""`deploy/reference/pipeline.md` has each column of a dead-letter queue."""

from pathlib import Path

from amqsidecar.pipeline.tables import DEAD_LETTERS

PAGE = Path(__file__).parents[2] / "deploy/reference/pipeline.md"


def test_the_page_has_the_columns_of_dead_letters() -> None:
    columns = PAGE.read_text().partition("\nColumns: `source`")[2].partition("\n\n")[0]
    documented = {"source", *columns.split("`")[1::2]}
    assert documented == set(DEAD_LETTERS.names)

"""`deploy/reference/pipeline.md` says of the columns what their schema says."""

from pathlib import Path

from amqsidecar.pipeline.tables import DEAD_LETTERS

PAGE = Path(__file__).parents[2] / "deploy/reference/pipeline.md"


def test_the_page_has_the_columns_of_dead_letters() -> None:
    rows = [f"| `{one.name}` | {one.metadata['comment']} |" for one in DEAD_LETTERS]
    assert "| column | |\n|---|---|\n" + "\n".join(rows) + "\n\n" in PAGE.read_text()

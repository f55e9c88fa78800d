"""`deploy/reference/pipeline.md` has each column of whatif's tables."""

from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from amqsidecar.pipeline.tables import (
    WHATIF_BY_DESTINATION,
    WHATIF_BY_POLICY,
    WHATIF_EVIDENCE,
    WHATIF_LOAD,
    WHATIF_PROPOSALS,
    WHATIF_TRIALS,
)

PAGE = (Path(__file__).parents[3] / "deploy/reference/pipeline.md").read_text()
SECTION = PAGE.partition("\n## whatif\n")[2].partition("\n## ")[0]
ROWS = "\n".join(line for line in SECTION.splitlines() if line.startswith("| `"))


@pytest.mark.parametrize(
    "schema",
    [
        *(WHATIF_BY_POLICY, WHATIF_BY_DESTINATION, WHATIF_LOAD),
        *(WHATIF_EVIDENCE, WHATIF_TRIALS, WHATIF_PROPOSALS),
    ],
)
def test_every_column_is_documented(schema: StructType) -> None:
    """A lower and an upper bound stand in the row of the likely number."""
    names = {name.removesuffix("_lower").removesuffix("_upper") for name in schema.names}
    assert {name for name in names if f"`{name}`" not in ROWS} == set()

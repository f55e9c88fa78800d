"""`deploy/reference/pipeline.md` says of whatif's columns what their schema says."""

from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from amqsidecar.pipeline.tables import (
    WHATIF_BY_DESTINATION,
    WHATIF_BY_POLICY,
    WHATIF_LOAD,
    WHATIF_PROPOSALS,
)

PAGE = (Path(__file__).parents[2] / "deploy/reference/pipeline.md").read_text()
SECTION = PAGE.partition("\n## whatif\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    "schema", [WHATIF_BY_POLICY, WHATIF_BY_DESTINATION, WHATIF_LOAD, WHATIF_PROPOSALS]
)
def test_every_column_is_documented_in_the_words_of_its_schema(schema: StructType) -> None:
    for field in schema:
        assert f"| `{field.name}` | {field.metadata['comment']} |" in SECTION

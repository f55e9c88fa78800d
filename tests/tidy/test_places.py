"""The configurations of the page about places are valid, as they stand there."""

import re
from pathlib import Path

import pytest

from amqsidecar.config.load import load_config

PAGE = Path(__file__).parents[2] / "deploy" / "guides" / "places.md"
BLOCKS = re.findall(
    r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_configuration_of_the_page_loads(block: str, tmp_path: Path) -> None:
    path = tmp_path / "amqsidecar.yaml"
    path.write_text(block, encoding="utf-8")
    assert load_config(path, [], {}).broker.url


def test_there_are_configurations() -> None:
    assert len(BLOCKS) >= 4

"""The configurations for managed brokers and clusters are valid, as the guide has them."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from amqsidecar.config.load import load_config

DEPLOY = Path(__file__).parents[2] / "deploy"
TEXT = (DEPLOY / "guides" / "install.md").read_text(encoding="utf-8")
TEXT = TEXT.partition("\n## Managed brokers, clusters\n")[2]
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_configuration_of_the_page_loads(block: str, tmp_path: Path) -> None:
    path = tmp_path / "amqsidecar.yaml"
    path.write_text(block, encoding="utf-8")
    assert load_config(path, [], {}).broker.url


def test_there_are_configurations() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("name", ["activemqartemis.yaml", "broker.yaml"])
def test_a_custom_resource_has_the_broker_of_the_page(name: str) -> None:
    """The operator names a pod's address after the resource; its port is that of the acceptor."""
    made = YAML(typ="safe").load(DEPLOY / "arkmq" / name)
    broker, space = made["metadata"]["name"], made["metadata"]["namespace"]
    [acceptor] = made["spec"]["acceptors"]
    assert f"{broker}-ss-0.{broker}-hdls-svc.{space}.svc:{acceptor['port']}" in TEXT
    settings = made["spec"]["brokerProperties"]
    for wanted in ("maxDeliveryAttempts=-1", "redeliveryDelay=0", "redistributionDelay=-1"):
        assert f"addressSettings.DLQ.{wanted}" in settings

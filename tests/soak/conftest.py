"""The memory that chart and unit give the process."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.machine.cgroup import MemoryGroup, memory_group

ROOT = Path(__file__).parents[2]


@pytest.fixture
def group() -> Iterator[MemoryGroup]:
    """A control group with the limit that both the chart and the unit give."""
    values = (ROOT / "helm/amqsidecar/values.yaml").read_text(encoding="utf-8")
    unit = (ROOT / "deploy/systemd/amqsidecar.service").read_text(encoding="utf-8")
    limits = re.findall(r"^  limits:\n    memory: (\d+)Mi$", values, re.MULTILINE)
    limits += re.findall(r"^MemoryMax=(\d+)M$", unit, re.MULTILINE)
    assert len(limits) == 2
    assert len(set(limits)) == 1
    with memory_group(int(limits[0]) * 2**20) as made:
        yield made

"""A disk is named before and after the broker blocks producers for it."""

import pytest

from amqsidecar.diagnosis.finding import Severity
from amqsidecar.diagnosis.judging import disk_findings
from amqsidecar.trials import BrokerDisk


@pytest.mark.parametrize(
    ("used", "found"),
    [
        (0.1, []),
        (0.849, []),
        (0.86, [Severity.WARNING]),
        (0.9, [Severity.WARNING]),
        (0.91, [Severity.PROBLEM]),
        (1.0, [Severity.PROBLEM]),
    ],
)
def test_a_disk_is_named_by_how_near_its_limit_is(used: float, found: list[Severity]) -> None:
    assert [one.severity for one in disk_findings(BrokerDisk(used, 0.9))] == found


def test_the_line_raises_the_limit_above_what_is_in_use() -> None:
    [found] = disk_findings(BrokerDisk(0.92, 0.9))
    assert found.mend == "<max-disk-usage>98</max-disk-usage>"
    assert list(disk_findings(BrokerDisk(0.92, 0.98))) == []
    assert (
        "92% of the broker's disk is in use: it blocks all producers until less than 90% is"
        in found.what
    )


def test_without_a_known_limit_it_is_full() -> None:
    [found] = disk_findings(BrokerDisk(0.5, None))
    assert (found.severity, "until there is more room" in found.what) == (Severity.PROBLEM, True)

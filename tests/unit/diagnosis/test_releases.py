"""A release that is untested or has a known fault is named in the log, with the reason."""

import pytest
from structlog.testing import capture_logs

from amqsidecar.broker import BrokerDescription, BrokerKind
from amqsidecar.diagnosis.releases import FAULTS, TESTED, release_faults
from amqsidecar.runtime.attempts import log_link_up


def of(kind: BrokerKind, version: str) -> BrokerDescription:
    return BrokerDescription(kind, version, ())


@pytest.mark.parametrize(
    ("kind", "version", "events", "words"),
    [
        (BrokerKind.ARTEMIS, "2.44.0", [], ""),
        (BrokerKind.ARTEMIS, "2.99.0", ["broker_version_untested"], "2.55.0 and 2.57.0"),
        (BrokerKind.ARTEMIS, "", ["broker_version_untested"], "of an unknown version"),
        (
            BrokerKind.ARTEMIS,
            "2.40.0",
            ["broker_version_untested", "broker_version_faulty"],
            "ARTEMIS-5717, fixed in 2.44.0",
        ),
        (BrokerKind.ARTEMIS, "2.33.0.redhat-00014", ["broker_version_untested"], "redhat-00014"),
        (
            BrokerKind.CLASSIC,
            "5.18.2",
            ["broker_version_untested", "broker_version_faulty"],
            "CVE-2023-46604, fixed in 5.18.3",
        ),
    ],
)
def test_a_start_names_what_is_known_of_the_release(
    kind: BrokerKind, version: str, events: list[str], words: str
) -> None:
    with capture_logs() as lines:
        log_link_up("artemis://broker:61616", of(kind, version))
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert [line["event"] for line in warnings] == events
    assert words in " ".join(line["reason"] for line in warnings)


def test_no_tested_release_has_a_known_fault() -> None:
    for kind, versions in TESTED.items():
        for version in versions:
            assert release_faults(of(kind, version)) == []


def test_an_old_release_has_all_faults_of_its_product() -> None:
    for kind in BrokerKind:
        known = [one.source for one in FAULTS if one.kind is kind]
        told = release_faults(of(kind, "1.0.0"))
        assert all(source in line for source, line in zip(known, told, strict=True))

"""What a doctor says of a schedule that the broker keeps."""

from __future__ import annotations

from amqsidecar.diagnosis.broker_held import keeping_clock_findings, settings_findings
from amqsidecar.engine.broker_held_queues import WAITING_QUEUE

ENDLESS = {"maxDeliveryAttempts": -1}


def test_what_waits_must_not_die_of_crashes() -> None:
    (finding,) = settings_findings({WAITING_QUEUE.name: {}})
    assert "a limit of 10 deliveries" in finding.what
    assert finding.mend == (
        '<address-setting match="amqsidecar.waiting"><max-delivery-attempts>-1'
        "</max-delivery-attempts></address-setting>"
    )


def test_what_waits_counts_for_the_size_of_its_address() -> None:
    full = {"addressFullMessagePolicy": "BLOCK", "maxSizeBytes": 1_000}
    found = settings_findings(
        {
            WAITING_QUEUE.name: ENDLESS,
            "a": full,
            "b": {**full, "addressFullMessagePolicy": "PAGE"},
            "c": {**full, "maxSizeBytes": -1},
        }
    )
    assert [finding.subject for finding in found] == ["a"]


def test_a_clock_that_differs_by_a_second_is_reported() -> None:
    assert [len(list(keeping_clock_findings(ms))) for ms in (0, 999, 1_000, -5_000)] == [0, 0, 1, 1]

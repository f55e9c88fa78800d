"""The selectors of messages by the ids under which the schedule knows them."""

import pytest

from amqsidecar.brokers.selectors import of_redelivery_ids
from amqsidecar.model.provenance import LONGEST_REDELIVERY_ID, Provenance, lying_id


def test_a_message_that_never_left_its_queue_is_found_by_the_broker_s_number_or_its_id() -> None:
    numbered = lying_id(Provenance(number="35-1795", message_id="ID:a"))
    called = lying_id(Provenance(message_id="ID:it's"))
    known = lying_id(Provenance(redelivery_id="u-1", number="35-1795", message_id="ID:a"))
    assert of_redelivery_ids([known, numbered, called]).split(" OR ") == [
        f"amqsidecarRedeliveryId IN ('u-1', '{numbered}', 'in-place:ID:it''s')",
        "JMSMessageID IN ('ID:it''s')",
        "AMQUserID IN ('ID:it''s')",
        "(_AMQ_ORIG_MESSAGE_ID = 35 AND AMQTimestamp = 1795)",
    ]


def test_other_ids_need_one_condition() -> None:
    assert of_redelivery_ids([]) == ""
    assert of_redelivery_ids(["u-1"]) == "amqsidecarRedeliveryId IN ('u-1')"


@pytest.mark.parametrize(
    "provenance",
    [
        Provenance(),
        Provenance(message_id="x" * LONGEST_REDELIVERY_ID),
        Provenance(message_id="a\nb"),
        Provenance(message_id="\ud800"),
    ],
)
def test_an_id_that_no_store_or_selector_could_keep_names_nothing(provenance: Provenance) -> None:
    assert lying_id(provenance) == ""

"""What Artemis does with a redelivery, by the settings of its address."""

from collections.abc import Mapping

import pytest

from amqsidecar.brokers.artemis.management import QueueRow
from amqsidecar.brokers.artemis.resend_effects import resend_effects
from amqsidecar.model.send_terms import ResendEffect

ORDERS = QueueRow("orders", "orders", is_anycast=True, filter="", message_count=0)


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({}, []),
        ({"addressFullMessagePolicy": "PAGE", "maxSizeBytes": 1}, []),
        ({"addressFullMessagePolicy": "DROP", "maxSizeBytes": 1}, [ResendEffect.DROP]),
        # Why also without a limit: that of the whole broker counts, which it has by default.
        ({"addressFullMessagePolicy": "DROP"}, [ResendEffect.DROP]),
        ({"pageFullMessagePolicy": "DROP"}, [ResendEffect.DROP]),
        ({"defaultNonDestructive": True}, [ResendEffect.NON_DESTRUCTIVE]),
        ({"defaultLastValueQueue": True, "defaultRingSize": 1}, []),
    ],
)
def test_settings_that_act_on_redeliveries_to_a_queue(
    settings: Mapping[str, object], kinds: list[ResendEffect]
) -> None:
    """Defaults for new queues say nothing of one that there is."""
    assert [one.kind for one in resend_effects("orders", [ORDERS], [], settings)] == kinds


def test_the_mending_line_names_the_address() -> None:
    [effect] = resend_effects('a"b', [ORDERS], [], {"addressFullMessagePolicy": "DROP"})
    assert effect.mend == (
        "<address-setting match='a\"b'><address-full-policy>PAGE</address-full-policy>"
        "</address-setting>"
    )

"""What Artemis does with a redelivery, by settings; which selectors of a divert keep it out."""

from collections.abc import Mapping

import pytest

from amqsidecar.brokers.artemis_management import QueueRow
from amqsidecar.brokers.artemis_resend_effects import (
    EXCLUDING,
    excludes_redeliveries,
    resend_effects,
)
from amqsidecar.model.resend_effect import ResendEffect

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


@pytest.mark.parametrize(
    "selector",
    [
        EXCLUDING,
        f"({EXCLUDING})",
        EXCLUDING.lower().replace("amqsidecarredeliverycount", "amqsidecarRedeliveryCount"),
        f"colour = 'red' AND {EXCLUDING}",
        f"(a = 1 OR b = 2) AND ({EXCLUDING} AND c = 3)",
        f"note = 'it''s OR not' AND {EXCLUDING}",
    ],
)
def test_a_selector_that_requires_a_first_delivery_excludes_redeliveries(selector: str) -> None:
    assert excludes_redeliveries(selector)


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "colour = 'red'",
        "amqsidecarRedeliveryCount IS NOT NULL",
        f"NOT {EXCLUDING}",
        f"NOT ({EXCLUDING})",
        f"colour = 'red' OR {EXCLUDING}",
        f"a = 1 AND (b = 2 OR {EXCLUDING})",
        f"note = '{EXCLUDING}'",
        f"note = ' AND {EXCLUDING} AND '",
        f"({EXCLUDING}) OR (a = 1)",
        "(a = 1",
    ],
)
def test_any_other_selector_may_match_a_redelivery(selector: str) -> None:
    assert not excludes_redeliveries(selector)

"""Which selectors of a divert keep redeliveries out."""

import pytest

from amqsidecar.brokers.artemis_resend_effects import EXCLUDING, excludes_redeliveries


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

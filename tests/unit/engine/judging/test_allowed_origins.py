"""Redeliveries go nowhere but where `redelivery.allowed_origins` allows it."""

import pytest

from amqsidecar.config.load import load_config
from amqsidecar.engine.judging.allowed_origins import within
from amqsidecar.engine.judging.resend_copies import no_resend_problem
from amqsidecar.errors import ConfigError
from amqsidecar.model.destination import parse_destination, parse_pattern


@pytest.mark.parametrize(
    ("patterns", "origin", "is_allowed"),
    [
        ([], "queue://anything", True),
        (["orders"], "queue://orders", True),
        (["orders"], "queue://orders.eu", False),
        (["orders"], "topic://orders", False),
        (["orders.*"], "queue://orders.eu", True),
        (["orders.*"], "queue://orders.eu.de", False),
        (["orders.>"], "queue://orders.eu.de", True),
        (["orders.#"], "queue://orders.eu.de", True),
        (["orders.#"], "queue://bills", False),
        (["orders.#"], "queue://orders.eu::special", True),
        (["bills", "topic://news.>"], "topic://news.a", True),
        ([">"], "queue://any.thing", True),
    ],
)
def test_an_origin_outside_is_named(patterns: list[str], origin: str, is_allowed: bool) -> None:
    problem = within(patterns, no_resend_problem)(parse_destination(origin))
    assert (problem is None) is is_allowed
    if problem is not None:
        assert problem == f"redelivery.allowed_origins does not allow its origin {origin}"


def test_what_is_allowed_may_have_another_problem() -> None:
    problem = within(["orders"], lambda _destination: "it would be copied")
    assert problem(parse_destination("queue://orders")) == "it would be copied"


@pytest.mark.parametrize("pattern", ["a.#.b", "a>", "", ".a", "a..b"])
def test_what_is_no_pattern_is_a_wrong_configuration(pattern: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_pattern(pattern)
    with pytest.raises(ConfigError, match=r"redelivery\.allowed_origins"):
        load_config(None, [f"redelivery.allowed_origins=['{pattern}']"], {})

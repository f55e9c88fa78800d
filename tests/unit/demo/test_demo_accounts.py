"""The demo's count: what is lost or doubled makes it unclean."""

import pytest

from amqsidecar.demo.accounts import count
from amqsidecar.demo.applications import ConsumedMessage


def seen(*pairs: tuple[str, str]) -> list[ConsumedMessage]:
    return [ConsumedMessage(outcome, id=one) for one, outcome in pairs]


ACCEPTED_A = (("a", "succeeding"), ("a", "succeeded"))


def test_each_message_that_comes_to_one_end_is_clean() -> None:
    deliveries = seen(("a", "failing"), ("a", "failed"), *ACCEPTED_A)
    found = count(["a", "b", "c"], deliveries, exhausted=["b"], discarded=["c"])
    assert found.is_clean
    assert (found.recovered, found.exhausted, found.discarded) == (["a"], ["b"], ["c"])


@pytest.mark.parametrize(
    ("sent", "deliveries", "exhausted", "lost", "doubled"),
    [
        (["a", "b"], seen(*ACCEPTED_A), [], ["b"], []),
        (["a"], seen(("a", "failing"), ("a", "failed")), [], ["a"], []),
        (["a"], seen(*ACCEPTED_A, *ACCEPTED_A), [], [], ["a"]),
        (["a"], seen(*ACCEPTED_A), ["a"], [], ["a"]),
        (["a"], seen(*ACCEPTED_A), ["never sent"], [], ["never sent"]),
    ],
)
def test_what_ends_nowhere_or_twice_is_reported(
    sent: list[str],
    deliveries: list[ConsumedMessage],
    exhausted: list[str],
    lost: list[str],
    doubled: list[str],
) -> None:
    found = count(sent, deliveries, exhausted)
    assert not found.is_clean
    assert (found.lost, found.doubled) == (lost, doubled)

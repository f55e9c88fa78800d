"""What tells a re-sent message from a copy that an application made of it."""

import pytest

from amqsidecar.brokers.redelivery_mark import Marks, check_of, life_of
from amqsidecar.model.destination import Destination, queue, topic

ORDERS = queue("orders")
DEAD = queue("DLQ")
CHECK = check_of("r-1", 2, ORDERS, b"ID:1")
OWN = Marks("r-1", 2, CHECK)


def life(
    marks: Marks = OWN,
    origin: Destination | None = ORDERS,
    source: Destination | None = DEAD,
    identity: bytes = b"ID:1",
    *,
    is_given_up: bool = False,
) -> tuple[str | None, int]:
    return life_of(marks, (origin, source), identity, is_given_up=is_given_up)


def test_the_check_is_sixteen_hexadecimal_digits() -> None:
    assert len(CHECK) == 16
    assert int(CHECK, 16) >= 0


def test_what_a_sidecar_sent_goes_on_with_its_life_where_it_died_or_lies() -> None:
    """A subscription's queue belongs to its address, whose other queues share the check."""
    assert life() == ("r-1", 2)
    assert life(origin=None, source=ORDERS) == ("r-1", 2)
    assert life(origin=topic("orders::client.sub")) == ("r-1", 2)


@pytest.mark.parametrize(
    "marks",
    [
        Marks(None, 2, CHECK),
        Marks("r-1", 2, None),
        Marks("r-1", 3, CHECK),
        Marks("r-2", 2, CHECK),
        Marks("r-1", 2, "nonsense"),
        Marks("r-1", 2, CHECK[:8] + "00000000"),
    ],
)
def test_marks_that_do_not_fit_each_other_are_a_strangers(marks: Marks) -> None:
    assert life(marks) == (None, 0)


def test_a_copy_begins_a_life_of_its_own() -> None:
    """It was sent elsewhere, or it is another message at the same place."""
    assert life(origin=queue("invoices")) == (None, 0)
    assert life(origin=None, source=None) == (None, 0)
    assert life(identity=b"ID:2") == (None, 0)


def test_a_copy_by_which_its_consumer_gave_a_message_up_stands_for_it() -> None:
    """Only from the place where the sidecar sent the message."""
    assert life(identity=b"ID:2", is_given_up=True) == ("r-1", 2)
    assert life(origin=queue("invoices"), is_given_up=True) == (None, 0)

"""What distinguishes a re-sent message from an application's copy of it."""

import pytest

from amqsidecar.formats.redelivery_mark import Marks, check_of, life_of, marks_of, original_id
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


@pytest.mark.parametrize("count", [2, "2", "0000000002"])
def test_a_count_may_be_a_number_or_text(count: object) -> None:
    assert marks_of("r-1", count, CHECK) == OWN


@pytest.mark.parametrize(
    "count", [None, True, 2.0, -1, 2**31, "-2", "2.0", "\u0662", "", "00000000002", b"2", ()]
)
def test_a_count_that_no_sidecar_writes_is_zero(count: object) -> None:
    assert marks_of("r-1", count, CHECK) == Marks("r-1", 0, CHECK)


@pytest.mark.parametrize("other", [None, "", 7, b"r-1"])
def test_an_id_that_is_no_text_counts_as_absent(other: object) -> None:
    assert marks_of(other, 2, 7) == Marks(None, 2, None)


def test_a_copy_loses_the_original_id_of_the_message_it_was_copied_from() -> None:
    assert original_id("ID:first", "ID:own", is_return=True) == "ID:first"
    assert original_id("ID:first", "ID:own", is_return=False) == "ID:own"
    assert original_id("ID:first", None, is_return=False) is None
    assert original_id(None, "ID:own", is_return=True) == "ID:own"


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

"""Rows that go back keep the order in which they came, whatever their numbers are."""

from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.model.row_changes import OrderKeeper


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 3)), unique_by=lambda one: one[0]))
def test_due_times_sort_rows_as_they_came(rows: list[tuple[int, int]]) -> None:
    order, now_ms, given_times = OrderKeeper(), 100, []
    for row_id, later_ms in rows:
        now_ms += later_ms
        given_times.append((order.due_at_ms(row_id, now_ms), row_id))
    assert sorted(given_times) == given_times


def test_rows_in_the_order_of_their_numbers_are_due_at_once() -> None:
    order = OrderKeeper()
    assert {order.due_at_ms(row_id, 100) for row_id in range(1, 1_000)} == {100}
    assert order.due_at_ms(5, 100) == 101

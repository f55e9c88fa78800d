"""The place of the code that a note's stack trace names."""

import pytest

from amqsidecar.model.cause_note import CauseNote

OVERFLOWN = "java.lang.StackOverflowError" + "\n\tat shop.Tree.visit(Tree.java:7)" * 400

WRAPPED = """\
shop.OrderRejected: order 7
\t... 2 frames of Java and frameworks
\tat shop.Orders.store(Orders.java:31)
\t... 14 frames of Java and frameworks
Caused by: java.net.ConnectException: Connection refused
\t... 9 frames of Java and frameworks"""


@pytest.mark.parametrize(
    ("exception", "root", "trace", "place"),
    [
        (
            "java.lang.StackOverflowError",
            "",
            OVERFLOWN,
            "java.lang.StackOverflowError at shop.Tree.visit",
        ),
        (
            "shop.OrderRejected",
            "java.net.ConnectException",
            WRAPPED,
            "shop.OrderRejected Caused by: java.net.ConnectException at shop.Orders.store",
        ),
        (
            "shop.OrderRejected",
            "java.net.ConnectException",
            f"{WRAPPED}\n\tat shop.Pool.lambda$connect$3(Pool.java:5)",
            "shop.OrderRejected Caused by: java.net.ConnectException at shop.Pool.lambda$connect",
        ),
        ("shop.OrderRejected", "", "", "shop.OrderRejected"),
        ("", "", "rolled back at shop.Orders.take\n\tat shop.Orders.take(Orders.java:3)", ""),
    ],
)
def test_a_place_is_the_innermost_method_that_a_trace_names(
    exception: str, root: str, trace: str, place: str
) -> None:
    note = CauseNote(message_id="1", exception=exception, root_exception=root, trace=trace)
    assert note.place == place

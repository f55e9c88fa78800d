"""Rows of a group show what differs between its messages, as far as one may see it."""

from pathlib import Path
from typing import Any

import pytest
from proton import Message

from amqsidecar.http.access import Role
from amqsidecar.http.authentication.settings import Bodies
from amqsidecar.http.console.differing import BYTES_MAX, Differing, read_differing
from amqsidecar.http.masking import Masking
from amqsidecar.ledger import RowOrder
from amqsidecar.model.schedule import RowFilter
from support.web.console_store import dead, keep, open_store
from support.web.in_process import caller_as, make_queries


def differing(folder: Path, *messages: Message, wanted: str = "", **given: Any) -> Differing:
    store = open_store(folder / "schedule.db")
    rows = [
        dead(number, "x", 1_000, message=bytes(message.encode()))
        for number, message in enumerate(messages, 1)
    ]
    keep(store, rows)
    views = store.page_rows(RowFilter(), RowOrder.NEWEST, 10).rows
    role = given.pop("role", Role.OPERATOR)
    queries = make_queries(open_schedule=None, **given)
    found = read_differing(queries, store, views, caller_as(role), wanted)
    store.close()
    return found


def order(number: int, shop: str = "north", **properties: Any) -> Message:
    body = f'{{"shop": "{shop}", "order": {number}, "lines": []}}'
    return Message(body=body, properties={"shop": shop, **properties})


def test_a_property_that_differs_comes_before_a_key_of_the_body(tmp_path: Path) -> None:
    found = differing(tmp_path, order(1, customer="ann"), order(2, customer="bob"))
    assert (found.name, found.values) == ("customer", {1: "ann", 2: "bob"})
    assert found.names == ["shop", "customer", "body.shop", "body.order"]


def test_a_key_of_the_body_is_shown_where_no_property_differs(tmp_path: Path) -> None:
    found = differing(tmp_path, order(1), order(2), order(3), Message(body="[1, 2"))
    assert (found.name, found.values) == ("body.order", {1: "1", 2: "2", 3: "3"})


def test_a_person_chooses_and_a_name_that_is_not_there_is_not_shown(tmp_path: Path) -> None:
    assert differing(tmp_path, order(1), order(2), wanted="shop").values == {1: "north", 2: "north"}
    other = tmp_path / "other"
    other.mkdir()
    assert differing(other, order(1), order(2), wanted="nothing").name == "body.order"


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"role": Role.VIEWER}, []),
        ({"masking": Masking(Bodies.NOBODY)}, []),
        (
            {"masking": Masking(Bodies.VIEWERS), "role": Role.VIEWER},
            ["shop", "body.shop", "body.order"],
        ),
    ],
)
def test_without_the_right_to_content_none_is_shown(
    tmp_path: Path, given: dict[str, Any], names: list[str]
) -> None:
    assert differing(tmp_path, order(1), order(2), **given).names == names


def test_what_is_masked_elsewhere_is_masked_in_rows(tmp_path: Path) -> None:
    masking = Masking(patterns=["[a-z]+@example"])
    first, second = order(1, mail="ann@example"), order(2, mail="bob@example")
    found = differing(tmp_path, first, second, wanted="mail", masking=masking)
    assert found.values == {1: "***", 2: "***"}


def test_large_messages_are_not_looked_into(tmp_path: Path) -> None:
    large = Message(body="x" * BYTES_MAX, properties={"order": 1})
    assert differing(tmp_path, large, order(2)).values == {}

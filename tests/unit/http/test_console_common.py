"""The page of a group names what its messages share and the others of the destination have not."""

from pathlib import Path
from typing import Any

import pytest
from lxml import html
from proton import Message

from amqsidecar.http.access import Role
from amqsidecar.http.authentication.settings import Bodies
from amqsidecar.http.console.differing import SHOWN_MAX, common_values, read_common
from amqsidecar.http.masking import Masking
from amqsidecar.model.event import OutcomeProved, Received
from amqsidecar.stores.sqlite.store import SqliteStore
from support.web.console import console_client
from support.web.console_store import dead, keep, open_store
from support.web.in_process import caller_as, make_queries
from support.web.page import text_of

PLACE = ("queue://orders", "a.Bug: *")


def filled(folder: Path) -> SqliteStore:
    """Return a store with 12 messages of a bug that hits one customer, and 12 of another."""
    store = open_store(folder / "schedule.db")
    keep(
        store,
        [
            dead(
                number,
                "a.Bug: 1" if number % 2 else "a.Other: 2",
                store._clock.now_ms(),
                destination="queue://orders",
                message=bytes(
                    Message(
                        body=f'{{"kind": "{"gift" if number % 2 else "plain"}", "n": {number}}}',
                        properties={
                            "shop": "<north>",
                            "customer": f"c{number % 2}",
                            "amqsidecarX": "gift" if number % 2 else "",
                        },
                    ).encode()
                ),
            )
            for number in range(1, 25)
        ],
    )
    return store


def common(folder: Path, role: Role = Role.OPERATOR, **given: Any) -> dict[str, str]:
    store = filled(folder)
    found = read_common(make_queries(open_schedule=None, **given), store, PLACE, caller_as(role))
    store.close()
    return {one.name: one.value for one in found}


def test_what_all_of_a_group_have_and_few_others_is_common(tmp_path: Path) -> None:
    assert common(tmp_path) == {"customer": "c1", "body.kind": "gift"}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"role": Role.VIEWER}, {}),
        ({"role": Role.VIEWER, "masking": Masking(Bodies.VIEWERS)}, {"customer", "body.kind"}),
        ({"masking": Masking(Bodies.NOBODY)}, {}),
        ({"masking": Masking(patterns=("c[01]",))}, {"body.kind"}),
    ],
)
def test_nothing_is_common_that_one_may_not_see(
    tmp_path: Path, given: dict[str, Any], found: object
) -> None:
    assert set(common(tmp_path, **given)) == set(found)  # type: ignore[call-overload]


def test_without_others_or_with_one_message_nothing_is_shown() -> None:
    assert common_values([{"a": "1"}] * 9, []) == []
    assert common_values([{"a": "1"}], [{"a": "2"}] * 9) == []
    wide = {f"name{number}": "x" for number in range(50)}
    assert len(common_values([wide] * 9, [{}])) == SHOWN_MAX


def test_a_value_that_a_tenth_lacks_is_common_and_one_that_more_lack_is_not() -> None:
    for lacking, names in ((1, ["a"]), (2, [])):
        here = [{"a": "1"}] * (10 - lacking) + [{}] * lacking
        assert [one.name for one in common_values(here, [{"a": "2"}])] == names
    for having, names in ((1, ["a"]), (2, [])):
        others = [{"a": "1"}] * having + [{}] * (4 - having)
        assert [one.name for one in common_values([{"a": "1"}] * 2, others)] == names


def test_the_page_shows_it(tmp_path: Path) -> None:
    filled(tmp_path).close()
    with console_client(tmp_path / "schedule.db") as client:
        asked = {"destination": PLACE[0], "group": PLACE[1]}
        text = " ".join(
            text_of(html.fromstring(client.get("/groups/one", params=asked).text)).split()
        )
    _, _, below = text.partition("What these have in common")
    assert "customerc1100 %0 %" in below, text
    assert "body.kindgift100 %0 %" in below


def test_what_the_group_of_a_death_shows_of_a_message_is_masked_in_its_life() -> None:
    death = Received(at_ms=1, source="queue://DLQ", cause_group="(no reason given) [mail=a@b]")
    shown = Masking(patterns=("[a-z]@[a-z]",)).event(death, sees=True)
    assert isinstance(shown, Received)
    assert shown.cause_group == "(no reason given) [mail=***]"


def test_the_name_of_a_consumer_is_masked_where_its_message_is_shown() -> None:
    proved = OutcomeProved(
        at_ms=1,
        destination="queue://orders",
        outcome="consumed",
        redelivery_count=1,
        lateness_ms=0,
        consumer="shop for a@b",
    )
    shown = Masking(patterns=("[a-z]@[a-z]",)).event(proved, sees=True)
    assert isinstance(shown, OutcomeProved)
    assert shown.consumer == "shop for ***"

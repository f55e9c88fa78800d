"""Which group a person means: by its number, its cause, or a part of it."""

from typing import cast

import pytest

from amqsidecar.errors import NothingFound
from amqsidecar.model.cause import NO_REASON, group_number
from amqsidecar.model.failure import FailureGroup, GroupNote, GroupTally
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.operations.failures.find_group import the_group, with_group
from amqsidecar.schedule import ScheduleView

TIMEOUT, REFUSED = "java.net.SocketTimeoutException: *", "java.net.ConnectException: refused"


class Groups:
    """A ledger that knows some groups, of which one has rows only."""

    group_key = b"key"

    def failure_groups(self, _since_ms: int, _limit: int) -> list[FailureGroup]:
        return [
            FailureGroup(
                destination=destination,
                cause_group=cause,
                first_at_ms=0,
                last_at_ms=0,
                total=1,
                example_id="a",
            )
            for destination, cause in [("queue://A", TIMEOUT), ("queue://B", TIMEOUT)]
        ]

    def latest_notes(self, _limit: int) -> list[GroupNote]:
        return []

    def group_tallies(self) -> list[GroupTally]:
        return [
            GroupTally(destination="queue://A", state=RowState.HELD, cause_group=cause, count=1)
            for cause in (REFUSED, NO_REASON)
        ]


def found(**wanted: object) -> tuple[str | None, str | None]:
    rows = RowFilter(destination=cast("str | None", wanted.pop("destination", None)))
    narrowed = with_group(cast("ScheduleView", Groups()), rows, **wanted)  # type: ignore[arg-type]
    return narrowed.destination, narrowed.cause_group


def test_a_number_names_one_group_of_one_destination() -> None:
    number = group_number(Groups.group_key, "queue://B", TIMEOUT)
    assert number != group_number(b"other", "queue://B", TIMEOUT)
    assert found(number=number) == ("queue://B", TIMEOUT)
    assert found(number=255_975) == ("queue://B", TIMEOUT), "as before schedules had keys"
    with pytest.raises(NothingFound):
        found(part="#255975")
    assert found(part=f"#{number}") == found(part=str(number)) == ("queue://B", TIMEOUT)


def test_a_part_that_one_cause_has_is_enough() -> None:
    assert found(part="refused") == (None, REFUSED)
    assert found(part=TIMEOUT) == (None, TIMEOUT)
    assert found(part="sockettimeout", destination="queue://A") == ("queue://A", TIMEOUT)
    assert found(part="no reason") == (None, NO_REASON)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"part": "java.net"}, "no group 'java.net'; 2 groups contain it: 'java.net.SocketTime"),
        ({"part": "java.net.ConectException: refused"}, "near it: 'java.net.ConnectException"),
        ({"part": "zzz"}, "no group 'zzz'; `amqsidecar groups` lists 4 others"),
        ({"number": 7}, "no group #7; `amqsidecar groups` lists 4 others"),
        ({"part": "x", "destination": "queue://C"}, "no group 'x'; there is none"),
    ],
)
def test_none_or_several_are_refused_with_what_is_near(
    wanted: dict[str, object], said: str
) -> None:
    with pytest.raises(NothingFound) as refused:
        found(**wanted)
    assert said in str(refused.value)


def test_one_group_is_meant_only_with_its_destination_where_several_have_its_cause() -> None:
    schedule = cast("ScheduleView", Groups())
    with pytest.raises(NothingFound, match="2 groups have this cause: add --destination, one of"):
        the_group(schedule, RowFilter(), part=TIMEOUT, number=None)
    of_b = RowFilter(destination="queue://B")
    assert the_group(schedule, of_b, part="socket", number=None) == ("queue://B", TIMEOUT)
    assert the_group(schedule, RowFilter(), part="refused", number=None) == ("queue://A", REFUSED)

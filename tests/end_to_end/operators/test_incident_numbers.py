"""Through a whole incident every screen shows the numbers of the broker and of the consumers."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from end_to_end.operators.test_exhausted import Site, make_broker
from support.brokers.real import Broker
from support.waiting import eventually

pytestmark = pytest.mark.broker

FOREIGN = 3
# Why seldom: each look asks all screens.
EVERY_S = 5
PROVED_WITHIN_S = 120
"""A group is judged a minute after its last re-send; looks are 30 seconds apart."""


@pytest.fixture(
    scope="module",
    params=["artemis", pytest.param("classic_console", marks=pytest.mark.proof)],
)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with make_broker(request.param) as running:
        yield running


@pytest.fixture
def site(broker: Broker, tmp_path: Path, unique: str) -> Iterator[Site]:
    site = Site(broker, tmp_path, unique)
    site.sidecar.options.append("outcomes.interval_s=1")
    with site.sidecar:
        yield site


def overview(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(site.sidecar.get("/api/v1/overview")[1])
    return found


def exhausted_by_screen(site: Site, queue: str) -> dict[str, float]:
    """Return how many exhausted messages of a queue each screen shows."""
    place = f"queue://{queue}"
    screen = overview(site)
    groups = site.sidecar.json_command("groups", "--destination", queue)
    policies = json.loads(site.sidecar.get("/api/v1/policies")[1])["destinations"]
    label = f'amqsidecar_waiting{{destination="{place}",state="exhausted"}}'

    def counted(lines: list[dict[str, Any]], name: str = "exhausted") -> int:
        return sum(one[name] for one in lines if one.get("destination") == place)

    return {
        "status": counted(
            [one for one in site.status()["waiting"] if one["state"] == "exhausted"], "count"
        ),
        "status, by queue": counted(site.status()["exhausted"], "count"),
        "groups": counted(groups),
        "first screen, exhausted": counted(screen["exhausted"], "count"),
        "policies": counted(policies),
        "metrics": site.sidecar.metric(label),
    }


def agree(site: Site, expected: dict[str, int]) -> None:
    """Wait until all screens and the broker show these exhausted messages of each queue."""

    def seen() -> dict[str, object]:
        lies = Counter(one.test_id.split("-")[0] for one in site.peer.browse(site.final))
        return {
            queue: {"broker": lies[queue], **exhausted_by_screen(site, queue)} for queue in expected
        }

    def all_agree() -> bool:
        return all(
            set(screens.values()) == {expected[queue]}  # type: ignore[attr-defined]
            for queue, screens in seen().items()
        )

    eventually(
        all_agree,
        within_s=PROVED_WITHIN_S,
        every_s=EVERY_S,
        what=f"all screens show {expected}",
        last=lambda _: str(seen()),
    )


def deaths_by_screen(site: Site, queue: str) -> dict[str, float]:
    """Return how often messages of a queue died, as each screen shows it."""
    place = f"queue://{queue}"
    listed = json.loads(site.sidecar.get("/api/v1/groups")[1])
    groups = site.sidecar.json_command("groups", "--destination", queue)
    label = f'amqsidecar_dead_letters_received_total{{destination="{place}"}}'
    return {
        "groups": sum(one["total"] for one in groups),
        "groups of the API": sum(one["total"] for one in listed if one["destination"] == place),
        "metrics": site.sidecar.metric(label),
    }


def totals_by_screen(site: Site) -> dict[str, float]:
    """Return how many messages each screen says the schedule knows, in any state."""
    status = site.status()
    answer = json.loads(site.sidecar.get("/api/v1/status")[1])
    listed = site.sidecar.rows("--limit", "1000")
    return {
        "status": status["total"],
        "status, by state": sum(one["count"] for one in status["waiting"]),
        "status of the API": answer["total"],
        "list": len(listed),
        "metrics": site.sidecar.metric("amqsidecar_waiting"),
    }


def all_show(read: Callable[[], Mapping[str, float]], number: int, what: str) -> None:
    """Wait until all screens show this number."""
    eventually(
        lambda: set(read().values()) == {number},
        within_s=PROVED_WITHIN_S,
        every_s=EVERY_S,
        what=f"{what}: all screens show {number}",
        last=lambda _: str(read()),
    )


def acts_agree(site: Site, expected: Mapping[str, int]) -> None:
    """Wait until each screen of operations shows how many messages each action has changed."""

    def shown() -> dict[str, dict[str, float]]:
        found = {
            "API": json.loads(site.sidecar.get("/api/v1/operations")[1]),
            "command": site.sidecar.json_command("operations")["operations"],
        }
        name = "amqsidecar_operation_messages_total"
        return {
            "metrics": {one: site.sidecar.metric(f'{name}{{action="{one}"}}') for one in expected},
            **{
                screen: {
                    action: sum(one["changed"] for one in listed if one["action"] == action)
                    for action in expected
                }
                for screen, listed in found.items()
            },
        }

    eventually(
        lambda: all(one == expected for one in shown().values()),
        within_s=PROVED_WITHIN_S,
        every_s=EVERY_S,
        what=f"all screens show {expected}",
        last=lambda _: str(shown()),
    )


class Claims:
    """What the first screen has said so far."""

    def __init__(self) -> None:
        self.missing: list[dict[str, Any]] = []
        self.solved: set[str] = set()
        self.endings: dict[str, tuple[str, str]] = {}

    def are_solved(self, queue: str) -> bool:
        """Whether the messages of a queue were called solved."""
        return f"queue://{queue}" in self.solved

    def says(self, queue: str, ending: str, evidence: str) -> bool:
        """Whether this is the end of a queue's group and a part of its evidence, as said last."""
        said = self.endings.get(f"queue://{queue}", ("", ""))
        return said[0].startswith(ending) and evidence in said[1]


@contextmanager
def listening(site: Site) -> Iterator[Claims]:
    """Read the first screen all the time while the block runs."""
    claims, stop = Claims(), Event()

    def listen() -> None:
        while not stop.wait(2):
            seen = overview(site)
            claims.missing += seen["missing"]
            claims.solved |= {one["group"]["destination"] for one in seen["solved"]}
            claims.endings = {
                one["group"]["destination"]: (
                    one["solution"]["ending"],
                    one["solution"]["evidence"],
                )
                for one in [*seen["unproved"], *seen["solved"]]
            }

    thread = Thread(target=listen)
    thread.start()
    try:
        yield claims
    finally:
        stop.set()
        thread.join()


def test_all_numbers_are_those_of_the_broker_through_an_incident(site: Site, unique: str) -> None:
    ours, others = site.ours, site.others
    stolen, elsewhere = f"{unique}.stolen", f"{unique}.elsewhere"
    moved = f"{unique}.moved"
    site.peer.fill(site.final, FOREIGN, size=10, test_id="foreign-")
    site.sidecar.start()
    with listening(site) as claims:
        # It takes longer than a look at the final queue stays the last.
        for expected in (8, 16, 24):
            site.exhaust(ours, 8)
            agree(site, {ours: expected})
        site.exhaust(others, 4)
        site.exhaust(stolen, 3)
        site.exhaust(moved, 2)
        agree(site, {ours: 24, others: 4, stolen: 3, moved: 2})
        assert overview(site)["waiting"]["by_destination"] == []
        # Each of them died at its consumer, was re-sent once, and died again.
        for queue, count in ((ours, 24), (others, 4), (stolen, 3), (moved, 2)):
            all_show(partial(deaths_by_screen, site, queue), 2 * count, f"deaths of {queue}")
        all_show(partial(totals_by_screen, site), 33, "messages")

        def act(action: str, *options: str) -> None:
            site.sidecar.run_command(action, *options, "--yes")

        def some(queue: str, count: int) -> list[str]:
            chosen = ("--destination", queue, "--state", "exhausted", "--limit", str(count))
            return [str(row["id"]) for row in site.sidecar.rows(*chosen)]

        act("retry", "--destination", others, "--window", "5s")
        act("redirect", "--destination", moved, "--to", others, "--window", "5s")
        [first, *_] = redirected = some(ours, 5)
        act("redirect", *redirected, "--to", elsewhere)
        assert "is unknown" not in site.sidecar.run_command("show", first)
        act("discard", *some(ours, 5))
        agree(site, {ours: 14, others: 0, moved: 0})
        acts_agree(site, {"retry": 4, "redirect": 7, "discard": 5})
        known = FOREIGN if not site.final.startswith("DLQ") else 0
        all_show(partial(totals_by_screen, site), 14 + 3 + known, "messages after three acts")
        site.sidecar.json_command("operation undo", "4")
        agree(site, {ours: 19, others: 0, stolen: 3})
        assert len(site.peer.consume(elsewhere, count=5)) == 5
        assert claims.missing == []

        if site.final.startswith("DLQ"):  # On Classic they came out and went back with the others.
            eventually(
                lambda: [one["count"] for one in overview(site)["unknown"]] == [FOREIGN],
                within_s=PROVED_WITHIN_S,
                what="the messages of others are counted",
            )
        # A stranger takes what lies there; messages of others do not hide it.
        site.peer.consume(site.final, selector=f"testId LIKE '{stolen}-%'", count=3)
        agree(site, {ours: 19, stolen: 0})
        endings = {others: "was re-sent", moved: "was sent elsewhere"}
        for queue, ending in endings.items():
            eventually(
                partial(claims.says, queue, ending, f"6 messages lie in queue://{others}"),
                within_s=PROVED_WITHIN_S,
                what="what lies without a consumer is not called solved",
                last=lambda _: str(claims.endings),
            )
        assert claims.solved == set()
        with site.peer.start_flaky_consumer(others) as consumer:
            assert len(consumer.wait_for_successes(6)) == 6
            for queue in endings:
                eventually(
                    partial(claims.are_solved, queue),
                    within_s=PROVED_WITHIN_S,
                    what="it is solved once it is consumed",
                    last=lambda _: str(claims.endings),
                )
        eventually(
            partial(claims.says, stolen, "was lost to another program", ""),
            within_s=PROVED_WITHIN_S,
            what="what the stranger took is called lost",
            last=lambda _: str(claims.endings),
        )
        assert claims.solved == {f"queue://{others}", f"queue://{moved}"}
        assert {one["queue"] for one in claims.missing} <= {f"queue://{site.final}"}

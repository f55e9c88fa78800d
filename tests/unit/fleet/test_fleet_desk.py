"""What is counted once, and what one person's or sidecar's answers are to others."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from amqsidecar.clock import SystemClock
from amqsidecar.fleet.answers import SaidGroup, SaidOverview, SaidStatus
from amqsidecar.fleet.desk import Desk, find_twins
from amqsidecar.fleet.gather import PER_SIDECAR, Gatherer, Person, Said
from amqsidecar.fleet.sources import FleetMember, FleetSources
from amqsidecar.fleet.watch import MemberState, Watch
from amqsidecar.model.operation import Action
from amqsidecar.web_client import Client, RawAnswer, Unreachable

ANNA: Final = Person("anna", {"X-User": "anna"})
BERT: Final = Person("bert", {"X-User": "bert"})


def status(name: str, *uids: str, problem: str = "") -> Said[SaidStatus]:
    instances: list[dict[str, Any]] = [{"uid": uid} for uid in uids]
    return Said(sidecar=FleetMember(name, "", ""), value=SaidStatus(instances), problem=problem)


def test_sidecars_on_one_schedule_are_counted_by_one_that_answers() -> None:
    said = [
        status("a", "1", "2", problem="no newer answer yet"),
        status("b", "2", "1"),
        status("c", "3"),
        status("alone"),
        status("alone too"),
    ]
    assert find_twins(said) == {"a": "b"}


class Answers(Client):
    """Answers by name and path; what is not there hangs until `released`."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = dict(answers)
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.at_once: dict[str, int] = {}
        self.released = asyncio.Event()

    async def ask(
        self, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> RawAnswer:
        name = url.partition("/")[0]
        self.asked.append((url, headers))
        self.at_once[name] = self.at_once.get(name, 0) + 1
        key = next((key for key in self.answers if url.startswith(key)), None)
        if key is None:
            await self.released.wait()
            raise Unreachable("no answer within 10 s")
        found = self.answers[key]
        return RawAnswer(403 if found is None else 200, msgspec.json.encode(found))


class Raw(Client):
    """Answers these bytes to everybody."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    async def ask(
        self, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> RawAnswer:
        return RawAnswer(200, self.body)


def test_a_watch_goes_on_whatever_a_sidecar_answers() -> None:
    for body in (b'{"version": "\xff"}', b"", b"[" * 100_000, b"7"):
        watch = Watch(FleetSources({"odd": "http://odd:1"}), Raw(body), SystemClock())
        asyncio.run(watch.look())
        assert watch.seen["odd"].problem


def gatherer(client: Answers, *names: str) -> Gatherer:
    watch = Watch(FleetSources({}), client, SystemClock())
    watch.seen = {
        name: MemberState(FleetMember(name, name, f"https://{name}"), "", 0) for name in names
    }
    return Gatherer(watch, client, SystemClock(), at_once=16)


def overview(count: int) -> SaidOverview:
    return SaidOverview(groups=[SaidGroup(1, "queue://a", "cause", recent_messages=count)])


def test_a_hanging_sidecar_has_few_places_and_the_others_answer() -> None:
    async def look() -> None:
        client = Answers({"good/": overview(3)})
        gather = gatherer(client, "good", "hangs")
        for n in range(20):
            person = Person(f"person-{n}", {})
            good, hangs = await gather.all(person, "/overview", SaidOverview, wait_s=0.01)
            assert good.value == overview(3)
            assert hangs.value is None
            assert hangs.problem == "no answer yet"
        assert client.at_once["hangs"] == PER_SIDECAR
        client.released.set()
        [_, hangs] = await gather.all(ANNA, "/overview", SaidOverview, wait_s=5.0)
        assert hangs.problem == "it took too long, and is asked again soon"

    asyncio.run(look())


def test_what_was_known_stands_in_for_its_person_and_goes_with_the_right_to_it() -> None:
    async def look() -> None:
        client = Answers({"one/": overview(3)})
        gather = gatherer(client, "one")
        [said] = await gather.all(ANNA, "/overview", SaidOverview, fresh_s=0.0)
        assert (said.value, said.problem) == (overview(3), "")
        del client.answers["one/"]
        [said] = await gather.all(ANNA, "/overview", SaidOverview, wait_s=0.01, fresh_s=0.0)
        assert (said.value, said.problem) == (overview(3), "no newer answer yet")
        [said] = await gather.all(BERT, "/overview", SaidOverview, wait_s=0.01, fresh_s=0.0)
        assert said.value is None
        client.released.set()

        client.answers["two/"] = overview(3)
        gather = gatherer(client, "two")
        [said] = await gather.all(ANNA, "/overview", SaidOverview, fresh_s=0.0)
        assert said.value == overview(3)
        client.answers["two/"] = None
        [said] = await gather.all(ANNA, "/overview", SaidOverview, fresh_s=0.0)
        assert (said.value, said.is_refused) == (None, True)

    asyncio.run(look())


def test_groups_of_one_cause_are_one_and_credentials_go_with_each_question() -> None:
    async def look() -> None:
        groups = [
            SaidGroup(7, "queue://a", "timeout", trend="up", last_at_ms=5, exhausted=2),
            SaidGroup(8, "queue://b", "timeout", trend="odd", last_at_ms=9, exhausted=1),
        ]
        client = Answers({"one/api/v1/groups": groups, "two/api/v1/groups": groups[:1]})
        client.answers |= {f"{name}/api/v1/status": {} for name in ("one", "two")}
        found = await Desk(gatherer(client, "one", "two"), ANNA).groups()
        [group] = found.found
        assert (group.trend, group.last_at_ms, group.counts["exhausted"]) == ("up", 9, 5)
        assert [place.sidecar.name for place in group.places] == ["one", "one", "two"]
        assert found.missing == {}
        assert all(headers == ANNA.headers for _, headers in client.asked)

    asyncio.run(look())


def test_a_preview_leaves_no_place_of_a_cause_out() -> None:
    async def look() -> None:
        groups = [SaidGroup(n, f"queue://q.{n}", "timeout", exhausted=1) for n in range(300)]
        client = Answers({"one/api/v1/groups": groups, "one/api/v1/preview": None})
        client.answers["one/api/v1/status"] = {}
        found = await Desk(gatherer(client, "one"), ANNA).preview(Action.RETRY, "timeout")
        assert len(found.found) == len(groups)

    asyncio.run(look())

"""Plays rows on real brokers: one sidecar for the rows of a wire and a policy."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from ruamel.yaml import YAML

from amqsidecar.cli.opened import opened_view
from amqsidecar.config.load import load_config
from amqsidecar.engine.crash_points import ALL_NAMES
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.schedule import Recall, RowFilter, RowState, RowView
from amqsidecar.operations.browse import list_page
from amqsidecar.operations.references import find_reference
from amqsidecar.wiring.app import CRASH_POINT_VARIABLE
from combinations import artemis_stage, classic_stage, oracle
from combinations.artemis_stage import ArtemisStage
from combinations.axes import ASKED, Asker, Detour, Note, Policy, Row, Setup, Wire
from combinations.case import FOREIGN_RULE, Case, notes_queue
from combinations.classic_stage import ClassicStage
from support.brokers.real import ArtemisBroker, ClassicBroker
from support.jms.ledger import ADDED_PROPERTIES, CHANGED_HEADERS, PROVENANCE_PROPERTIES
from support.jms.message import JmsMessage
from support.sidecar.process import SidecarProcess
from support.stores.postgres_server import PostgresServer
from support.versions import CLASSIC_6
from support.waiting import eventually
from support.web.client import web_client

Stage = ArtemisStage | ClassicStage

ENDED: Final = "the sidecar ended with"
NOTHING: Final[Mapping[str, str]] = {}
FOREIGN_CAUSE: Final = "combo.ForeignCause"
_GROUPS_AT_ONCE: Final = 3
_ADDED_BY_ARTEMIS: Final = ("_AMQ_ACTUAL_EXPIRY", "_AMQ_LARGE_SIZE")
_ADDED_BY_WIRES: Final[Mapping[Wire, Sequence[str]]] = {
    Wire.STOMP: (
        *("receipt", "transaction", "destination", "destination-type"),
        *("content-length", "persistent"),
    ),
    Wire.CLASSIC_STOMP: ("amqsidecarOriginalDestination",),
    Wire.CLASSIC_AMQP: ("JMS_AMQP_HEADER", "JMS_AMQP_PROPERTIES", "JMS_AMQP_ORIGINAL_ENCODING"),
}
"""Properties that brokers add to what comes over these wires (`wires.md`)."""


class Verdict(NamedTuple):
    """What was found out about a row.

    Attributes:
        case: the row as it was played.
        problems: each way in which it breaks the law; empty = it does not.
    """

    case: Case
    problems: Sequence[str]


class Brokers:
    """One Artemis, one PostgreSQL, and one Classic whose file is made for the rows.

    Each is started on first use.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._artemis: ArtemisBroker | None = None
        self._postgres: PostgresServer | None = None

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def stage(self, cases: Sequence[Case]) -> Callable[[Case], Stage]:
        """Start what the rows need, and return who makes a stage for a group."""
        classic: ClassicBroker | None = None
        if any(case.row.wire.is_classic for case in cases):
            text = classic_stage.activemq_xml(cases, redelivers=False)
            classic = ClassicBroker(CLASSIC_6, activemq_xml=text)
            self._stack.enter_context(classic)
        if self._artemis is None and not all(case.row.wire.is_classic for case in cases):
            self._artemis = ArtemisBroker(address_settings=artemis_stage.ADDRESS_SETTINGS)
            self._stack.enter_context(self._artemis)
        if self._postgres is None and any(case.row.setup in _DATABASES for case in cases):
            self._postgres = self._stack.enter_context(PostgresServer())

        def make(case: Case) -> Stage:
            if case.row.wire.is_classic:
                assert classic is not None
                return ClassicStage(classic)
            assert self._artemis is not None
            return ArtemisStage(self._artemis)

        return make

    def store(self, setup: Setup) -> str:
        """Return the URL of a new database; empty = the setup needs none."""
        if setup not in _DATABASES:
            return ""
        assert self._postgres is not None
        return self._postgres.url(self._postgres.make_database())


def play(
    rows: Mapping[int, Row],
    brokers: Brokers,
    folder: Path,
    *,
    label: str = "",
    environ: Mapping[str, str] = NOTHING,
) -> list[Verdict]:
    """Play rows and judge each.

    Args:
        rows: by their number in the array.
        brokers: where.
        folder: of the sidecars' stores and logs.
        label: makes names of queues that no other call on these brokers uses.
        environ: further variables of the sidecars.
    """

    def group_of(row: Row) -> str:
        setup = "" if row.setup is Setup.PLAIN else f"-{row.setup}"
        return f"{row.wire}-{row.policy}{setup}{label}"

    cases = [Case(number, row, group_of(row)) for number, row in rows.items()]
    make_stage = brokers.stage(cases)
    ordered = sorted(cases, key=lambda case: case.group)
    groups = [list(found) for _, found in groupby(ordered, key=lambda case: case.group)]

    def play_group(members: list[Case]) -> list[Verdict]:
        place = folder / members[0].group
        place.mkdir(parents=True)
        with closing(make_stage(members[0])) as stage:
            store = brokers.store(members[0].row.setup)
            return _Group(members, stage, place, cases, environ, store).play()

    with ThreadPoolExecutor(_GROUPS_AT_ONCE) as pool:
        found = [verdict for verdicts in pool.map(play_group, groups) for verdict in verdicts]
    return sorted(found, key=lambda verdict: verdict.case.number)


class _Group:
    def __init__(
        self,
        cases: list[Case],
        stage: Stage,
        folder: Path,
        all_cases: Sequence[Case],
        environ: Mapping[str, str],
        store: str,
    ) -> None:
        self.cases = cases
        self.setup = cases[0].row.setup
        self.stage = stage
        self.folder = folder
        self.name = cases[0].group
        self._all_cases = all_cases
        self._environ = environ
        self._store = store
        self._kills = [f"{name}:1" for name in ALL_NAMES] if self.setup is Setup.KILLED else []

    def play(self) -> list[Verdict]:
        stage, cases = self.stage, self.cases
        stage.open(self.name)
        for case in cases:
            stage.prepare(case)
        stage.produce(cases)
        stage.write([_note_message(case, note) for case in cases for note in _notes(case)])
        stage.kill(cases)
        self._count_before()
        with ExitStack() as self._stack:
            self.sidecar = self._stack.enter_context(self._sidecar(self.folder))
            if self._kills:
                # Why: it has made its store when it dies.
                self.sidecar.die_at(self._kills.pop(0))
            self._keep_running()
            self._sidecars = [self.sidecar]
            if self.setup is Setup.SHARED:
                other = self._stack.enter_context(self._sidecar(self.folder / "other"))
                self._sidecars.append(other.start())
            self._open_store()
            if self.setup is Setup.BACKLOG:
                self._release_backlog()
            self._ask()
            self._wait(self._is_settled, cases)
            self._end_kills()
            codes = [one.stop() for one in self._sidecars]
            found = self._judge()
        log = [f"{ENDED} {code}" for code in codes if code]
        return [Verdict(case, [*problems, *log]) for case, problems in found]

    def _open_store(self) -> None:
        sidecar = self.sidecar
        config = load_config(None, sidecar.options, {**os.environ, **sidecar.environ})
        self.store = self._stack.enter_context(opened_view(config))

    def _move(self) -> None:
        """Move the schedule into its database."""
        assert self.sidecar.stop() == 0
        self.sidecar.run_command("schedule move", "--to", self._store)
        self.sidecar.options.append(f"store.url={self._store}")
        self.sidecar.start()
        self._open_store()

    # Before.

    def _count_before(self) -> None:
        def alive() -> list[Case]:
            contents = self.stage.contents(self.name)
            for case in self.cases:
                case.before = contents
            return [
                case
                for case in self.cases
                if contents.get(case.source, Counter())[case.test_id] != 1
            ]

        eventually(lambda: not alive(), what=self.name, last=lambda _: f"not dead: {alive()}")

    def _sidecar(self, folder: Path) -> SidecarProcess:
        folder.mkdir(exist_ok=True)
        row = self.cases[0].row
        policy: dict[str, object] = {"plugins": [{"rules": {"rules": list(self._rules())}}]}
        if row.policy is not Policy.LIVE:
            policy["source"] = str(self._policy_file(row))
        if row.wire.reads_notes:
            policy["verdicts"] = "obey"
        intake: dict[str, object] = {
            "backlog": "process",
            "queues": sorted({case.source for case in self.cases}),
        }
        if row.wire.reads_notes:
            intake["cause_notes"] = notes_queue(self.name)
        if row.wire.endswith("stomp"):
            intake["allow_lossy"] = ["body_type"]
        if row.wire.endswith("classic-amqp"):
            intake["origin"] = {case.source: case.died_in for case in self.cases}
        if self.setup is Setup.BACKLOG:
            intake |= {"backlog": "hold", "backlog_threshold": 0}
        if self.setup is Setup.GATED:
            policy["gates"] = _GATES
        sections = {
            "policy": policy,
            "intake": intake,
            "redelivery": _REDELIVERY.get(self.setup, {}),
        }
        if self.setup is Setup.PARTLY_MANUAL:
            sections["redelivery"] = {"manual": [f"combo.{self.name}.hour.#"]}
        sections |= {
            "observe": {"interval_s": 1},
        }
        is_database = self._store and self.setup is not Setup.MOVED
        sets = [f"store.url={self._store}"] if is_database else []
        path = self.folder / "amqsidecar.yaml"
        with path.open("w", encoding="utf-8") as file:
            YAML().dump({name: one for name, one in sections.items() if one}, file)
        return SidecarProcess(
            folder,
            self.stage.url(row.wire),
            sets=sets,
            environ={"AMQSIDECAR_CONFIG": str(path), **self._environ},
        )

    def _rules(self) -> Iterator[Mapping[str, object]]:
        yield {"name": FOREIGN_RULE, "cause_class": [FOREIGN_CAUSE], "action": "discard"}
        for case in self.cases:
            rule = {"name": case.token, "properties": {"row": case.token}}
            if case.row.detour is Detour.RULED and case.row.note is not Note.OWN:
                yield {**rule, "redeliver": {**_RULED, "until": case.token}}
            elif case.row.asker is Asker.RULE_REDIRECT:
                yield {**rule, "redirect": {"to": case.destination, "delay_ms": 0}}
            elif case.row.asker is Asker.RULE_EDIT:
                yield {**rule, "action": "continue", "set_properties": dict(case.edit)}

    def _policy_file(self, row: Row) -> Path:
        path = self.folder / ("policy.yaml" if row.policy is not Policy.FULL else "policy.xml")
        if row.wire.is_classic and row.policy is Policy.FULL:
            text = classic_stage.activemq_xml(self._all_cases, redelivers=True)
            path.write_text(text, encoding="utf-8")
            return path
        content: Mapping[str, object]
        if row.wire.is_classic:
            entries = list(classic_stage.redelivery_entries())
            content = {"plugins": [{"redelivery": {"entries": entries}}]}
        else:
            entries = list(artemis_stage.policy_of(row.policy, self.cases))
            content = {"address_settings": entries}
            path = path.with_suffix(".yaml")
        with path.open("w", encoding="utf-8") as file:
            YAML().dump(content, file)
        return path

    # Asking.

    def _ask(self) -> None:
        asked = [case for case in self.cases if case.row.asker in ASKED]
        self._wait(self._can_be_asked, asked)
        self._detour()
        rows = {case.token: self._row(case) for case in asked}
        for case in asked:
            row = rows[case.token]
            if row is None:
                case.refused = "it is not in the store"
                continue
            case.asked_at = len(self._seen(case)[1])
            case.refused = case.refused or self._ask_for(case, row)

    def _release_backlog(self) -> None:
        """Release what nobody asks for, once it is held."""
        self._wait(self._is_held, self.cases)
        for case in self.cases:
            row = self._row(case)
            if row is not None and case.row.asker not in ASKED - {Asker.RECALL}:
                case.refused = self._command("release", str(row.id))

    def _is_held(self, case: Case) -> bool:
        row = self._row(case)
        return row is not None and row.state is RowState.HELD and not row.in_flight

    def _detour(self) -> None:
        """Let a person do what comes before the ask, and wait for each step's effect."""
        cases = [case for case in self.cases if case.row.detour is not Detour.NONE]
        self._wait(self._is_idle, [case for case in cases if case.row.asker not in ASKED])
        for step in range(max(map(len, _STEPS.values()))):
            taking = [case for case in cases if step < len(_STEPS[case.row.detour])]
            for case in taking:
                case.refused = case.refused or self._take(case, _STEPS[case.row.detour][step])
            self._wait(lambda case: self._is_taken(case, step), taking)  # noqa: B023 - at once
            if step == 0 and self.setup is Setup.MOVED:
                self._move()

    def _take(self, case: Case, step: Step) -> str:
        row = self._row(case)
        words = step.command.format(id=row.id if row else 0, name=case.token, undone=case.undone)
        if not words:
            return ""
        if step.command.startswith("event"):
            return self._command(*words.split(), yes=False)
        if step.command.startswith("operation"):
            return self._command("operation undo", str(case.undone), yes=False)
        if not step.command.startswith("discard"):
            return self._command(*words.split())
        case.undone = self.sidecar.json_command(*words.split(), "--yes")["operation"]
        return ""

    def _is_taken(self, case: Case, step: int) -> bool:
        """Return whether a step has its effect."""
        row = self._row(case)
        is_idle = row is None or not row.in_flight
        return bool(case.refused) or (is_idle and _STEPS[case.row.detour][step].effect(row))

    def _is_idle(self, case: Case) -> bool:
        row = self._row(case)
        return row is not None and not row.in_flight

    def _can_be_asked(self, case: Case) -> bool:
        row = self._row(case)
        if row is None or row.in_flight:
            return False
        if case.row.asker is Asker.RECALL:
            return row.state is RowState.EXHAUSTED or row.state is RowState.PARKED
        return True

    def _ask_for(self, case: Case, row: RowView) -> str:
        number = str(row.id)
        match case.row.asker:
            case Asker.RETRY | Asker.RECALL:
                return self._command("retry", number)
            case Asker.REDIRECT:
                return self._command("redirect", number, "--to", case.destination)
            case Asker.EDIT:
                pairs = [f"--property={name}={text}" for name, text in case.edit.items()]
                return self._command("edit", number, *pairs)
            case Asker.IDS_FILE:
                path = self.folder / f"{row.id}.csv"
                path.write_text(f"redelivery_id\n{row.redelivery_id}\n", encoding="utf-8")
                return self._command("retry", "--ids-from", str(path))
            case Asker.CONSOLE_RETRY:
                return self._post({"action": "retry"}, row.id)
            case Asker.CONSOLE_REDIRECT:
                return self._post({"action": "redirect", "target": case.destination}, row.id)
            case _:
                return ""

    def _command(self, *arguments: str, yes: bool = True) -> str:
        done = self.sidecar.try_command(*arguments, *(["--yes"] if yes else []))
        return "" if done.returncode == 0 else done.stderr or done.stdout

    def _post(self, action: Mapping[str, object], row_id: int) -> str:
        [started] = [one for one in self.sidecar.log_lines() if one.get("event") == "started"]
        body = {**action, "filter": {"id": [row_id]}, "expected": 1}
        with web_client(f"http://{started['http']}") as client:
            csrf = client.get("/api/v1/session").json()["csrf"]
            headers = {"X-CSRF-Token": csrf}
            answer = client.post("/api/v1/operations", json=body, headers=headers)
        return "" if answer.status_code == 201 else answer.text

    def _is_settled(self, case: Case) -> bool:
        if case.refused:
            return True
        rows, history = self._seen(case)
        if any(one.in_flight for one in rows):
            return False
        decided = [one for one in history[case.asked_at :] if isinstance(one, oracle.DECIDED)]
        return bool(decided) or any(self._is_blocked(one) for one in rows)

    def _is_blocked(self, row: RowView) -> bool:
        return row.state is RowState.WAITING and any(
            one.get("event") == "destination_blocked" and one.get("destination") == row.destination
            for sidecar in self._sidecars
            for one in sidecar.log_lines()
        )

    def _wait(self, condition: Callable[[Case], bool], cases: Sequence[Case]) -> None:
        """Wait until a condition holds for all, or until it is in vain: the judge has the word."""
        left = list(cases)

        def are_all() -> bool:
            self._keep_running()
            left[:] = [case for case in left if not condition(case)]
            return not left

        try:
            eventually(are_all, every_s=0.2)
        except TimeoutError:
            for case in left:
                case.refused = case.refused or "waited for in vain"

    def _keep_running(self) -> None:
        """Start the sidecar where it has not been started, or has killed itself."""
        if self.sidecar.is_running():
            return
        place = self._kills.pop(0) if self._kills else ""
        environ = {CRASH_POINT_VARIABLE: place} if place else {}
        self.sidecar.start(ready=not place, environ=environ)

    def _end_kills(self) -> None:
        """Go on without a further kill."""
        if self.setup is Setup.KILLED:
            if self.sidecar.is_running():
                self.sidecar.kill()
            self._kills.clear()
            self._keep_running()
            self._wait(self._is_settled, self.cases)

    def _judge(self) -> list[tuple[Case, list[str]]]:
        found: dict[int, list[str]] = {}

        def look() -> bool:
            after = self.stage.contents(self.name)
            for case in self.cases:
                rows, history = self._seen(case)
                seen = oracle.Seen(rows, history, after)
                found[case.number] = list(oracle.problems(case, seen))
                place = oracle.named_place(case, seen)
                if not found[case.number] and place is not None and place.queues:
                    found[case.number] = list(self._altered(case, place.queues))
            return not any(found.values())

        # Why: the judge has the word on what differs to the end.
        with suppress(TimeoutError):
            eventually(look, every_s=1.0)
        told = list(self._status_problems())
        return [(case, [*found[case.number], *told]) for case in self.cases]

    def _altered(self, case: Case, queues: frozenset[str]) -> Iterator[str]:
        assert case.sent is not None
        found: list[JmsMessage] = []
        for queue in queues:
            held = self.stage.browse(case, queue)
            found += [one for one in held if one.test_id == case.test_id]
        if len(found) != 1:
            yield f"a browser shows {len(found)} of it in {sorted(queues)}"
            return
        added = _ADDED_BY_WIRES.get(case.row.wire, ())
        names = (*ADDED_PROPERTIES, *PROVENANCE_PROPERTIES, *_ADDED_BY_ARTEMIS, *added)
        is_edited = {name: found[0].value(name) for name in case.edit}
        if is_edited not in (dict(case.edit), {}) and queues == case.arrived_in:
            yield f"it was sent without its edit: {is_edited}"
        yield from case.sent.differences(
            found[0],
            # Why: a dead letter has no time to live; of Classic its redelivery has a new one.
            without_headers=(*CHANGED_HEADERS, "JMSExpiration"),
            without_properties=(*names, *case.edit),
        )

    def _status_problems(self) -> Iterator[str]:
        """Return where `status` differs from the rows that `list` has."""
        status = self.sidecar.status()
        counted = {(one.destination, one.state): one.count for one in status.waiting}
        listed: dict[tuple[str, RowState], int] = {}
        for row in self._rows():
            key = (row.destination, row.state)
            listed[key] = listed.get(key, 0) + 1
        if counted != listed:
            yield f"status: {counted}; list: {listed}"

    # Reading.

    def _row(self, case: Case) -> RowView | None:
        return next(iter(self._seen(case)[0]), None)

    def _rows(self) -> list[RowView]:
        return list_page(self.store, RowFilter(), 10_000).rows

    def _seen(self, case: Case) -> tuple[list[RowView], list[AnyEvent]]:
        assert case.sent is not None
        message_id = case.sent.message_id
        for name in (message_id, message_id.removeprefix("ID:")):
            if (found := find_reference(self.store, name, self.store.state())) is not None:
                return found.rows, found.history
        return [], []


class Step(NamedTuple):
    """A command of a person, and its effect on the message's row; None = it has none."""

    command: str
    effect: Callable[[RowView | None], bool]


def _is_held(row: RowView | None) -> bool:
    is_left = row is not None and row.is_in_final_queue and row.recall is not Recall.RULES
    return row is not None and (row.state is RowState.HELD or is_left)


def _waits(row: RowView | None) -> bool:
    return row is not None and (row.state is RowState.WAITING or row.recall is Recall.RULES)


def _waits_no_more(row: RowView | None) -> bool:
    return row is None or row.state is not RowState.HELD


def _is_in_final_queue(row: RowView | None) -> bool:
    return row is not None and row.is_in_final_queue and row.recall in (Recall.NONE, Recall.LEAVE)


def _is_back(row: RowView | None) -> bool:
    """Return whether an undo is over: what came out of its final queue is there again."""
    if row is None or row.recall is Recall.RETURN:
        return False
    return not (row.state is RowState.WAITING and row.is_final)


_HOLD: Final = Step("hold {id}", _is_held)
_AWAIT: Final = Step("hold {id} --until {name}", _is_held)
_REPORT: Final = Step("event {name}", _waits_no_more)
_STEPS: Final[Mapping[Detour, Sequence[Step]]] = {
    Detour.NONE: (),
    Detour.HELD: (_HOLD,),
    Detour.RELEASED: (_HOLD, Step("release {id}", _waits)),
    Detour.EVENT: (_AWAIT, _REPORT),
    Detour.AWAITS: (_AWAIT,),
    Detour.ANOTHER_EVENT: (
        Step("hold {id} --until another.{name}", _is_held),
        Step(
            "hold {id} --until {name}", lambda row: row is not None and "." not in (row.gate or "")
        ),
        _REPORT,
    ),
    Detour.RULED: (Step("", _is_held), _REPORT),
    Detour.UNDONE: (
        Step("discard {id}", lambda row: row is None),
        Step("operation undo", _is_back),
    ),
    Detour.GIVEN_UP: (Step("give-up {id}", _is_in_final_queue),),
    Detour.TAKEN_BACK: (
        Step("take-back {id}", lambda row: row is not None and not row.is_in_final_queue),
    ),
}
_DATABASES: Final = (Setup.POSTGRES, Setup.SHARED, Setup.MOVED)
_RULED: Final = {"maximum_redeliveries": 5, "redelivery_delay_ms": 0}
_REDELIVERY: Final[Mapping[Setup, Mapping[str, object]]] = {
    Setup.KEEP: {"exhausted": "keep"},
    Setup.MANUAL: {"mode": "manual"},
    Setup.IN_PLACE: {"mode": "in_place"},
}
_GATES: Final[Sequence[Mapping[str, object]]] = (
    {"windows": {"default_entry": {"windows": [{"opens": "* * * * *"}]}}},
    {"breaker": {"default_entry": {}}},
    {"pace": {"default_entry": {"messages": 1, "per_ms": 1000}}},
    {"order": {"default_entry": {"verdict_ms": 1000}}},
)


def _notes(case: Case) -> Iterator[Mapping[str, object]]:
    assert case.sent is not None
    note: dict[str, object] = {"message_id": case.sent.message_id, "redelivery_count": 0}
    match case.row.note:
        case Note.OWN:
            note |= {"exception": "combo.OwnBug", "consumer": "own", "queue": case.read_from}
            if case.row.detour is Detour.RULED:
                note["verdict"] = {"action": "wait_for", "event": case.token}
            elif case.row.asker is Asker.VERDICT:
                note["verdict"] = {"action": "redirect", "destination": case.destination}
            yield note
        case Note.FOREIGN_VERDICT:
            note |= {"exception": "combo.OtherBug", "consumer": "other", "queue": "another"}
            yield {**note, "verdict": {"action": "never"}}
        case Note.FOREIGN_CAUSE:
            yield {**note, "exception": FOREIGN_CAUSE, "consumer": "other", "queue": "another"}
        case Note.NONE:
            return


def _note_message(case: Case, note: Mapping[str, object]) -> Mapping[str, object]:
    return {
        "destination": notes_queue(case.group),
        "type": "Text",
        "text": json.dumps(note),
        "sampleProperties": False,
        "persistent": True,
    }

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
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.schedule import RowFilter, RowState, RowView
from amqsidecar.operations.browse import list_page
from amqsidecar.operations.references import find_reference
from combinations import artemis_stage, classic_stage, oracle
from combinations.artemis_stage import ArtemisStage
from combinations.axes import Asker, Note, Policy, Row, Wire
from combinations.case import FOREIGN_RULE, Case, notes_queue
from combinations.classic_stage import ClassicStage
from support.brokers.real import ArtemisBroker, ClassicBroker
from support.jms.ledger import ADDED_PROPERTIES, CHANGED_HEADERS, PROVENANCE_PROPERTIES
from support.jms.message import JmsMessage
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_6
from support.waiting import eventually
from support.web.client import web_client

Stage = ArtemisStage | ClassicStage

ENDED: Final = "the sidecar ended with"
NOTHING: Final[Mapping[str, str]] = {}
FOREIGN_CAUSE: Final = "combo.ForeignCause"
_GROUPS_AT_ONCE: Final = 3
_ADDED_BY_WIRES: Final[Mapping[Wire, Sequence[str]]] = {
    Wire.STOMP: ("receipt", "transaction", "destination", "destination-type"),
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
    """One Artemis, and one Classic whose file is made for the rows, each started on first use."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._artemis: ArtemisBroker | None = None

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

        def make(case: Case) -> Stage:
            if case.row.wire.is_classic:
                assert classic is not None
                return ClassicStage(classic)
            assert self._artemis is not None
            return ArtemisStage(self._artemis)

        return make


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
        return f"{row.wire}-{row.policy}{label}"

    cases = [Case(number, row, group_of(row)) for number, row in rows.items()]
    make_stage = brokers.stage(cases)
    ordered = sorted(cases, key=lambda case: case.group)
    groups = [list(found) for _, found in groupby(ordered, key=lambda case: case.group)]

    def play_group(members: list[Case]) -> list[Verdict]:
        place = folder / members[0].group
        place.mkdir(parents=True)
        with closing(make_stage(members[0])) as stage:
            return _Group(members, stage, place, cases, environ).play()

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
    ) -> None:
        self.cases = cases
        self.stage = stage
        self.folder = folder
        self.name = cases[0].group
        self._all_cases = all_cases
        self._environ = environ

    def play(self) -> list[Verdict]:
        stage, cases = self.stage, self.cases
        stage.open(self.name)
        for case in cases:
            stage.prepare(case)
        stage.produce(cases)
        stage.write([_note_message(case, note) for case in cases for note in _notes(case)])
        stage.kill(cases)
        self._count_before()
        with self._sidecar() as self.sidecar:
            self.sidecar.start()
            config = load_config(None, self.sidecar.options, {**os.environ, **self.sidecar.environ})
            with opened_view(config) as self.store:
                self._ask()
                self._wait(self._is_settled, cases)
                code = self.sidecar.stop()
                found = self._judge()
        log = [] if code == 0 else [f"{ENDED} {code}"]
        return [Verdict(case, [*problems, *log]) for case, problems in found]

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

    def _sidecar(self) -> SidecarProcess:
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
        path = self.folder / "amqsidecar.yaml"
        with path.open("w", encoding="utf-8") as file:
            YAML().dump({"policy": policy, "intake": intake}, file)
        return SidecarProcess(
            self.folder,
            self.stage.url(row.wire),
            environ={"AMQSIDECAR_CONFIG": str(path), **self._environ},
        )

    def _rules(self) -> Iterator[Mapping[str, object]]:
        yield {"name": FOREIGN_RULE, "cause_class": [FOREIGN_CAUSE], "action": "discard"}
        for case in self.cases:
            rule = {"name": case.token, "properties": {"row": case.token}}
            if case.row.asker is Asker.RULE_REDIRECT:
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
        asked = [case for case in self.cases if case.row.asker in _ASKED]
        self._wait(self._can_be_asked, asked)
        rows = {case.token: self._row(case) for case in asked}
        for case in asked:
            row = rows[case.token]
            if row is None:
                case.refused = "it is not in the store"
                continue
            case.asked_at = len(self._seen(case)[1])
            case.refused = self._ask_for(case, row)

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

    def _command(self, *arguments: str) -> str:
        done = self.sidecar.try_command(*arguments, "--yes")
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
            for one in self.sidecar.log_lines()
        )

    def _wait(self, condition: Callable[[Case], bool], cases: Sequence[Case]) -> None:
        """Wait until a condition holds for all, or until it is in vain: the judge has the word."""
        left = list(cases)

        def are_all() -> bool:
            left[:] = [case for case in left if not condition(case)]
            return not left

        try:
            eventually(are_all, every_s=0.2)
        except TimeoutError:
            for case in left:
                case.refused = case.refused or "waited for in vain"

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
        names = (*ADDED_PROPERTIES, *PROVENANCE_PROPERTIES, "_AMQ_ACTUAL_EXPIRY", *added)
        is_edited = {name: found[0].value(name) for name in case.edit}
        if is_edited not in (dict(case.edit), {}) and queues == case.arrived_in:
            yield f"it was sent without its edit: {is_edited}"
        yield from case.sent.differences(
            found[0], without_headers=CHANGED_HEADERS, without_properties=(*names, *case.edit)
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


_ASKED: Final = frozenset(
    {
        Asker.CONSOLE_RETRY,
        Asker.CONSOLE_REDIRECT,
        Asker.RETRY,
        Asker.REDIRECT,
        Asker.EDIT,
        Asker.RECALL,
        Asker.IDS_FILE,
    }
)
"""Who asks through a running sidecar, once it has the message."""


def _notes(case: Case) -> Iterator[Mapping[str, object]]:
    assert case.sent is not None
    note: dict[str, object] = {"message_id": case.sent.message_id, "redelivery_count": 0}
    match case.row.note:
        case Note.OWN:
            note |= {"exception": "combo.OwnBug", "consumer": "own", "queue": case.read_from}
            if case.row.asker is Asker.VERDICT:
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

"""Gates in the cycle: what waits stays, what is final passes, and without gates nothing changes."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import amqsidecar_breaker
import amqsidecar_pace
from amqsidecar.cli.main import run_command_line
from amqsidecar.config.load import load_config
from amqsidecar.engine.gates import FAULT_WAIT_MS, NO_GATES, Gates, described
from amqsidecar.engine.judging.judge import LATEST_DUE_MS
from amqsidecar.errors import ConfigError
from amqsidecar.model import row_changes
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.event import DestinationBlocked, Resent
from amqsidecar.model.schedule import RowFilter
from amqsidecar.plugin import DueMessage, Gate, Wait
from amqsidecar.plugin_loader import BUILT_IN_GATES, GATE_GROUP, load_gate_plugins
from amqsidecar.wiring import rules
from amqsidecar.wiring.rules import load_gates
from simulation.rules import CountingRules
from simulation.world import World
from support.gates import gate_of
from support.machine.switching import OneAtATime, run_together
from support.stores.statements import counted

ALL = RowFilter()


class Scripted:
    """A gate of a plugin: answers what the test sets, and remembers its calls."""

    def __init__(self, answer: object = None) -> None:
        self.answer = answer
        self.told: list[tuple[str, str]] = []

    def describe(self, destination: Destination) -> str | None:
        return None

    def wait_of(self, message: DueMessage, now_ms: int) -> Wait | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer(now_ms) if callable(self.answer) else None

    def passed(self, message: DueMessage, now_ms: int) -> None:
        self.told.append(("passed", str(message.destination)))

    def resent(self, destination: Destination, now_ms: int) -> None:
        self.told.append(("resent", str(destination)))

    def returned(self, destination: Destination, now_ms: int) -> None:
        self.told.append(("returned", str(destination)))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, CountingRules(maximum=1, delay_ms=0))
    yield made
    made.kill()


def begin(world: World, **gates: Gate) -> list[tuple[str, int]]:
    """Start a sidecar with gates; return what is reported of waits."""
    waits: list[tuple[str, int]] = []
    world.gates = Gates(gates, lambda name, count: waits.append((name, count)))
    world.start()
    return waits


def reasons(world: World) -> set[str | None]:
    return {row.reason for row in world.store.list_rows(ALL, 100)}


def test_what_waits_is_due_later_with_its_reason_and_goes_then(world: World) -> None:
    gate = Scripted(lambda now_ms: Wait(1_100_000, "not yet") if now_ms < 1_100_000 else None)
    waits = begin(world, mine=gate)
    for body in "abc":
        world.die(body)
    world.run(4)
    assert world.bodies("orders") == []
    assert reasons(world) == {"not yet"}
    assert waits == [("mine", 3)]
    while not world.bodies("orders"):
        world.run(1)
    assert world.clock.now_ms() >= 1_100_000
    assert world.bodies("orders") == ["a", "b", "c"]
    assert gate.told == [("passed", "queue://orders")] * 3 + [("resent", "queue://orders")] * 3
    assert waits == [("mine", 3)]


def test_the_first_gate_that_lets_wait_has_the_word_and_no_other_counts_it(world: World) -> None:
    first, second = Scripted(), Scripted(lambda now_ms: Wait(now_ms + 5_000, "second"))
    third = Scripted(lambda now_ms: Wait(now_ms + 9_000, "third"))
    begin(world, first=first, second=second, third=third)
    world.die("a")
    world.run(4)
    assert reasons(world) == {"second"}
    assert first.told == []


def test_gates_hear_of_what_comes_back(world: World) -> None:
    gate = Scripted()
    begin(world, mine=gate)
    world.die("a")
    world.run(4)
    world.die_again("orders")
    world.run(4)
    assert gate.told[-1] == ("returned", "queue://orders")


def test_what_goes_to_a_final_queue_passes_no_gate(world: World) -> None:
    world.rules = CountingRules(maximum=0)
    begin(world, mine=Scripted(lambda now_ms: Wait(now_ms + 60_000, "closed")))
    world.die("a")
    world.run(3)
    assert world.bodies("DLQ.exhausted") == ["a"]


def test_what_a_person_retries_passes_gates_that_hear_of_it_and_the_next_death_does_not(
    world: World,
) -> None:
    world.rules = CountingRules(maximum=9, delay_ms=0)
    closed = Scripted(lambda now_ms: Wait(now_ms + 10**7, "closed"))
    fails = Scripted(RuntimeError("oops"))
    begin(world, mine=closed, other=fails)
    world.die("a")
    world.die("b")
    world.run(4)
    first, _ = world.store.list_rows(ALL, 9)
    assert (
        world.store.change(
            RowFilter(ids=(first.id,)), row_changes.retry(world.clock.now_ms(), "ann")
        )
        == 1
    )
    world.run(4)
    assert world.bodies("orders") == ["a"]
    assert closed.told == fails.told == [("passed", "queue://orders"), ("resent", "queue://orders")]
    world.die_again("orders")
    world.run(4)
    assert world.bodies("orders") == []
    assert [(row.redelivery_count, row.gate) for row in world.store.list_rows(ALL, 9)] == [
        (1, "mine"),
        (2, "mine"),
    ]


@pytest.mark.parametrize(
    ("answer", "reason", "wait_ms"),
    [
        (RuntimeError("oops"), "the gate mine fails: RuntimeError: oops", FAULT_WAIT_MS),
        (lambda now_ms: Wait(now_ms, "never again"), "never again", FAULT_WAIT_MS),
        (lambda _: Wait(1.5, "half"), "half", FAULT_WAIT_MS),  # type: ignore[arg-type]
        (
            lambda _: True,
            "the gate mine fails: AttributeError: 'bool' object has no attribute 'until_ms'",
            FAULT_WAIT_MS,
        ),
        (lambda _: Wait(2**70, "far"), "far", LATEST_DUE_MS - 1_000_000),
        (lambda now_ms: Wait(now_ms + 1_000, "x" * 9_999), "x" * 500, 1_000),
    ],
)
def test_a_strangers_gate_can_not_harm(
    world: World, answer: object, reason: str, wait_ms: int
) -> None:
    """At worst it delays messages; the cycle continues, and nothing spins."""
    begin(world, mine=Scripted(answer))
    world.die("a")
    world.run(4)
    assert reasons(world) == {reason}
    [row] = world.store.list_rows(ALL, 10)
    assert 0 <= row.due_at_ms - 1_000_000 - wait_ms < 2_000
    assert world.bodies("orders") == []


def test_news_is_reported_once(world: World) -> None:
    begin(world, breaker=gate_of(amqsidecar_breaker.plugin, default_entry={"least": 2}))
    world.rules = CountingRules(maximum=99, delay_ms=0)
    world.connect()
    world.die("a")
    world.die("b")
    for _ in range(3):
        world.run(4)
        world.die_again("orders")
    world.run(4)
    [told] = [event for event in world.events if isinstance(event, DestinationBlocked)]
    assert told.gate == "breaker"
    assert told.reason.startswith("breaker: open")
    assert told.reason in {str(one) for one in reasons(world)}


def test_a_pace_takes_few_statements_and_none_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 due at 5 per second 5 go, and 35 are given 7 slots by 7 statements."""
    world.limits = type(world.limits)(max_taken=100, max_sent=100)
    begin(world, pace=gate_of(amqsidecar_pace.plugin, default_entry={"messages": 5}))
    for number in range(40):
        world.die(f"m{number:02}")
    statements = counted(world.store, monkeypatch)
    while statements["postpone_rows"] == 0:
        world.run(1)
    assert statements["postpone_rows"] == 7
    while len(world.bodies("orders")) < 40:
        world.run(1)
    assert statements["postpone_rows"] == 7
    assert world.bodies("orders") == [f"m{number:02}" for number in range(40)]
    sent = Counter(event.at_ms // 1_050 for event in world.events if isinstance(event, Resent))
    assert max(sent.values()) <= 10


class Deaf(Scripted):
    """A gate that passes all and raises on each notification."""

    def resent(self, destination: Destination, now_ms: int) -> None:
        raise RuntimeError("deaf")


def test_a_gate_that_raises_on_a_notification_is_reported_once_and_stops_nothing(
    world: World,
) -> None:
    faults: list[tuple[str, str]] = []
    gates = {"mine": Deaf()}
    world.gates = Gates(gates, report_fault=lambda name, error: faults.append((name, str(error))))
    world.start()
    world.die("a")
    world.die("b")
    world.run(4)
    assert world.bodies("orders") == ["a", "b"]
    assert faults == [("mine", "deaf")]


def test_gates_that_let_all_pass_change_no_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Counter[str]] = []
    for gates in (NO_GATES, Gates({"mine": Scripted()})):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        world = World(folder, CountingRules(maximum=1, delay_ms=0))
        world.gates = gates
        world.start()
        world.die("a")
        statements = counted(world.store, monkeypatch)
        world.run(4)
        assert world.bodies("orders") == ["a"]
        found.append(statements.copy())
        world.kill()
    assert found[0] == found[1]


# ---------------------------------------------------------------------- configuration


def problems_of(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "sidecar.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_gates(load_config(path, (), {}))
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in caught.value.problems]


def test_none_are_on_by_default() -> None:
    assert load_gates(load_config(None, (), {})) == {}


def test_order_is_refused_where_others_send_from_the_same_schedule(tmp_path: Path) -> None:
    text = "store: {url: postgresql://db/a}\npolicy:\n  gates:\n    - order: {default_entry: {}}\n"
    assert problems_of(tmp_path, text) == [
        "sidecar.yaml:3: policy.gates: order needs a schedule with a single sidecar: leave it "
        "out, or use a store.url of sqlite:"
    ]
    (tmp_path / "sidecar.yaml").write_text(text.replace("order", "pace"))
    assert list(load_gates(load_config(tmp_path / "sidecar.yaml", (), {}))) == ["pace"]


def test_gates_are_asked_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sidecar.yaml"
    path.write_text(
        "policy:\n  gates:\n    - pace: {default_entry: {messages: 2}}\n"
        "    - breaker: {default_entry: {}}\n"
    )
    assert list(load_gates(load_config(path, (), {}))) == ["pace", "breaker"]
    text = '[{"pace": {"default_entry": {"messages": 2}}}]'
    assert list(load_gates(load_config(None, (f"policy.gates={text}",), {}))) == ["pace"]


def test_every_problem_is_reported_with_file_and_line(tmp_path: Path) -> None:
    text = """\
policy:
  gates:
    - pace:
        entries:
          - queue: a
            mesages: 3
    - brake:
        default_entry: {}
    - breaker: 7
    - windows:
        default_entry:
          windows: [{opens: "0 22 * * 1"}]
    - pace: {default_entry: {}}
"""
    told = problems_of(tmp_path, text)
    assert [one.partition(": ")[0] for one in told] == [
        "sidecar.yaml:5",
        "sidecar.yaml:7",
        "sidecar.yaml:9",
        "sidecar.yaml:12",
    ]
    assert "mesages: there is no such option" in told[0]
    assert "did you mean breaker?" in told[1] or "installed: breaker, pace, windows" in told[1]
    assert "breaker: expected a mapping" in told[2]
    assert "days of the week as names" in told[3]


def test_each_gate_describes_what_acts_on_a_destination(tmp_path: Path) -> None:
    path = tmp_path / "sidecar.yaml"
    path.write_text("""\
policy:
  gates:
    - windows:
        entries:
          - queue: "night.>"
            windows: [{opens: "0 22 * * *"}]
    - breaker: {default_entry: {}}
    - pace: {default_entry: {messages: 2}}
""")
    gates = load_gates(load_config(path, (), {}))
    told = {name: gate.describe(queue("night.a")) for name, gate in gates.items()}
    assert told == {
        "windows": f"open at 0 22 * * * for 60 min, UTC ({path}:5)",
        "breaker": f"opens when 50% of at least 20 come back within 60000 ms ({path}:7)",
        "pace": f"2 per 1000 ms ({path}:8)",
    }
    assert gates["windows"].describe(queue("day")) is None


def test_explain_names_the_gates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sidecar.yaml"
    path.write_text(
        "policy:\n  rules: {plugins: [redelivery: {default_entry: {}}]}\n"
        "  gates: [pace: {default_entry: {}}]\n"
    )
    arguments = ["explain", "--config", str(path), "--output", "text", "--destination"]
    assert run_command_line([*arguments, "a"]) == 0
    assert f"  gate:    pace: 1 per 1000 ms ({path}:3)" in capsys.readouterr().out


def test_explain_names_the_gates_of_each_case_of_a_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sidecar.yaml"
    path.write_text(
        "policy:\n  rules: {plugins: [redelivery: {default_entry: {maximum_redeliveries: 1}}]}\n"
        "  gates: [pace: {entries: [{queue: a}]}]\n"
    )
    cases = (("a", 0), ("a", 1), ("b", 0))
    text = "".join(
        json.dumps({"destination": name, "redelivery_count": count}) + "\n" for name, count in cases
    )
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    said = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", said)
    assert run_command_line(["explain", "--config", str(path), "--batch"]) == 0
    answers = [json.loads(line) for line in said.buffer.getvalue().splitlines()]
    assert [answer.get("gates") for answer in answers] == [
        [f"pace: 1 per 1000 ms ({path}:3)"],
        None,
        None,
    ]


def test_a_strangers_gate_that_can_not_be_described_harms_no_page() -> None:
    gate = Scripted()
    gate.describe = lambda _: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    assert described({"mine": gate})(queue("a")) == (
        "mine: fails: ZeroDivisionError: division by zero",
    )


def test_a_gate_stands_there_once(tmp_path: Path) -> None:
    text = "policy:\n  gates:\n    - pace: {default_entry: {}}\n    - pace: {default_entry: {}}\n"
    assert problems_of(tmp_path, text) == [
        "sidecar.yaml:4: policy.gates: pace is there twice; merge the entries"
    ]


@pytest.mark.parametrize("wrong", ["7", "pace", "{pace: {}}", "[pace]", "[{pace: {}, b: {}}]"])
def test_what_is_no_list_of_gates_is_reported(tmp_path: Path, wrong: str) -> None:
    [told] = problems_of(tmp_path, f"policy:\n  gates: {wrong}\n")
    assert told.startswith("sidecar.yaml:2: policy.gates: expected a list of gates")


def test_a_broker_held_schedule_has_no_gates(tmp_path: Path) -> None:
    text = (
        "store: {url: 'broker:'}\nintake: {backlog: process}\n"
        "policy:\n  gates: [{pace: {default_entry: {}}}]\n"
    )
    assert any("policy.gates: need a store" in one for one in problems_of(tmp_path, text))


def test_strangers_gates_are_found_and_checked_like_ours() -> None:
    ours = [EntryPoint(name, f"amqsidecar_{name}:plugin", GATE_GROUP) for name in BUILT_IN_GATES]
    assert set(load_gate_plugins(ours)) == set(BUILT_IN_GATES)
    with pytest.raises(ConfigError, match=r"gate mine \(os.path:sep\): is not a gate: it lacks"):
        load_gate_plugins([*ours, EntryPoint("mine", "os.path:sep", GATE_GROUP)])
    with pytest.raises(ConfigError, match="gate pace: is missing"):
        load_gate_plugins(ours[1:])


class WatchedGate(Scripted):
    """Notes whether two threads ask it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.alone = OneAtATime()

    def describe(self, destination: Destination) -> str | None:
        with self.alone.inside():
            return None


def test_pages_that_are_read_at_once_ask_a_gate_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = WatchedGate()
    monkeypatch.setattr(rules, "load_gates", lambda _config: {"pace": gate})
    at = rules.gates_at(load_config(None, (), {}))
    run_together(lambda thread: [at(queue(f"orders.{thread}")) for _ in range(50)])
    assert not gate.alone.were_two

"""The commands `explain` and `import`: keys, exit codes, order, where the sidecar differs."""

import io
import json
import os
from pathlib import Path

import pytest

from amqsidecar.broker import BrokerKind
from amqsidecar.cli.explain_command import answer_batch
from amqsidecar.cli.main import run_command_line
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.destination import queue
from amqsidecar.operations.explain import Explainer
from amqsidecar.plugin import Chance

POLICIES = Path(__file__).parents[1] / "policies"
CLASSIC = f"policy.source={POLICIES / 'full.activemq.xml'}"
ARTEMIS = f"policy.source={POLICIES / 'full.broker.xml'}"


@pytest.fixture(autouse=True)
def _no_options_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AMQSIDECAR_"):
            monkeypatch.delenv(name)


def _run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    """Run the whole command line in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", err)
        code = run_command_line(arguments)
    written = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return code, written[0], written[1]


def _one(*arguments: str) -> dict[str, object]:
    code, out, err = _run("explain", *arguments)
    assert code == 0, err
    (line,) = out.splitlines()
    answer = json.loads(line)
    assert isinstance(answer, dict)
    return answer


def _batch(source: str, *cases: object, options: tuple[str, ...] = ()) -> list[dict[str, object]]:
    stdin = "".join(json.dumps(case) + "\n" for case in cases)
    code, out, err = _run("explain", "--set", source, "--batch", *options, stdin=stdin)
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_a_redelivery_has_exactly_the_keys_of_the_contract() -> None:
    """action, delay_ms, redelivery_count, rule, in this order."""
    answer = _one(
        "--set", CLASSIC, "--destination", "queue://orders.eu", "--no-collision-avoidance"
    )
    assert list(answer) == ["action", "delay_ms", "redelivery_count", "rule"]
    assert answer["action"] == "redeliver"
    assert answer["delay_ms"] == 5000
    assert answer["redelivery_count"] == 1
    assert "full.activemq.xml:33" in str(answer["rule"])


def test_a_dead_letter_has_exactly_the_keys_of_the_contract() -> None:
    """action, destination, expiration_ms, rule; and `differs` because the sidecar reads it."""
    answer = _one("--set", CLASSIC, "--destination", "queue://B.x", "--redelivery-count", "4")
    assert list(answer) == ["action", "destination", "expiration_ms", "rule", "differs"]
    assert answer["destination"] == "queue://DLQ.B.x.dead"
    assert answer["expiration_ms"] == 60000
    assert "queue://DLQ.B.x.dead.exhausted" in str(answer["differs"])


def test_a_discard_has_exactly_the_keys_of_the_contract() -> None:
    """action, rule."""
    answer = _one("--set", CLASSIC, "--destination", "queue://trash", "--redelivery-count", "4")
    assert list(answer) == ["action", "rule"]
    assert answer["action"] == "discard"


def test_artemis_lines_also_have_the_matched_settings() -> None:
    """max_delivery_attempts, dead_letter_address, redelivery_delay_ms."""
    redelivered, dead, lost, other = _batch(
        ARTEMIS,
        {"address": "orders.eu", "delivery_count": 2},
        {"address": "orders.eu::sub", "delivery_count": 3},
        {"address": "lost", "delivery_count": 1},
        {"address": "zzz"},
        options=("--no-collision-avoidance",),
    )
    assert redelivered["delay_ms"] == 200
    assert redelivered["redelivery_count"] == 2
    for key, value in (
        ("max_delivery_attempts", 3),
        ("dead_letter_address", "DLQ"),
        ("redelivery_delay_ms", 100),
    ):
        assert redelivered[key] == value
    assert dead["action"] == "dead_letter"
    assert dead["destination"] == "queue://DLQ"
    assert "queue://DLQ.exhausted" in str(dead["differs"])
    assert lost["action"] == "discard"
    assert other["max_delivery_attempts"] == 10


def test_no_dead_letter_address_is_null(tmp_path: Path) -> None:
    """JSON null, not a missing key."""
    path = tmp_path / "p.yaml"
    path.write_text("address_settings: [{match: a, max_delivery_attempts: 1}]")
    (answer,) = _batch(f"policy.source={path}", {"address": "a", "delivery_count": 1})
    assert answer["dead_letter_address"] is None
    assert answer["action"] == "discard"


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ({"destination": "topic://prices.a"}, "reads queue://DLQ.prices"),
        ({"destination": "topic://other", "redelivery_count": 1}, "every subscriber"),
        ({"destination": "queue://DLQ.prices"}, "itself a dead-letter queue"),
        ({"destination": "queue://DLQ.prices.exhausted"}, "itself a dead-letter queue"),
        ({"destination": "topic://ActiveMQ.Advisory.Queue"}, "an advisory"),
        ({"destination": "queue://amqsidecar.causes"}, "its origin queue://amqsidecar.causes is"),
    ],
)
def test_what_the_sidecar_does_otherwise(case: dict[str, object], words: str) -> None:
    """The broker's own answer stays; `differs` says what the sidecar does and why."""
    (answer,) = _batch(CLASSIC, case)
    assert words in str(answer["differs"])


def test_a_negative_delay_is_reported(tmp_path: Path) -> None:
    """The broker computes it; the sidecar re-sends at once."""
    path = tmp_path / "p.yaml"
    path.write_text(
        "address_settings: [{match: a, redelivery_delay_ms: 5, max_redelivery_delay_ms: -1}]"
    )
    (answer,) = _batch(f"policy.source={path}", {"address": "a", "delivery_count": 1})
    assert answer["delay_ms"] == -1
    assert "at once" in str(answer["differs"])


def test_a_message_without_a_decision_is_reported() -> None:
    """A chain without an answer parks."""

    class Silent:
        def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> None:
            return None

    explainer = Explainer(Silent(), SendRules(BrokerKind.CLASSIC, lambda _: False, ".final"))
    answer = explainer.explain(DeadLetter(queue("A")))
    assert (answer.action, answer.differs) == ("none", "the sidecar parks it")


def test_named_intake_queues_decide_what_is_renamed() -> None:
    """Only what the intake reads is renamed."""
    case = {"destination": "queue://B.x", "redelivery_count": 9}
    (answer,) = _batch(CLASSIC, case, options=("--set", "intake.queues=[other]"))
    assert "differs" not in answer
    (answer,) = _batch(
        CLASSIC,
        case,
        options=("--set", "intake.queues=[DLQ.>]", "--set", "redelivery.final_suffix=.final"),
    )
    assert "queue://DLQ.B.x.dead.final" in str(answer["differs"])


def test_republished_topics_don_t_differ() -> None:
    """policy.topics=republish does what the rules say."""
    (answer,) = _batch(
        CLASSIC,
        {"destination": "topic://other", "redelivery_count": 1},
        options=("--set", "policy.topics=republish"),
    )
    assert answer["action"] == "redeliver"
    assert "differs" not in answer


def test_a_seed_fixes_chance() -> None:
    """The same seed gives the same delays; another one gives others; none of them leave +-20 %."""
    cases = [{"destination": "queue://orders.a", "redelivery_count": 1}] * 20

    def delays(*options: str) -> list[object]:
        return [answer["delay_ms"] for answer in _batch(CLASSIC, *cases, options=options)]

    assert delays("--seed", "1") == delays("--seed", "1") != delays("--seed", "2")
    assert set(delays("--no-collision-avoidance")) == {7500}
    assert all(6000 <= int(str(delay)) <= 9000 for delay in delays())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"destination":1}', "destination"),
        ('{"destination":""}', "length"),
        ('{"destination":"queue://"}', "needs a name"),
        ('{"destination":"A","redelivery_count":-1}', ">= 0"),
        ('{"destination":"A","redelivery_count":1.5}', "int"),
        ('{"destination":"A","redeliverycount":1}', "redeliverycount"),
        ('{"address":"A"}', "address"),
        ("{", "truncated"),
        ("", "line is empty"),
    ],
)
def test_a_bad_line_stops_the_batch_with_its_number(line: str, words: str) -> None:
    """What stands before it is answered, nothing is skipped, exit code 2."""
    good = '{"destination":"queue://A"}\n'
    code, out, err = _run(
        "explain", "--set", CLASSIC, "--batch", stdin=good + good + line + "\n" + good
    )
    assert code == 2
    assert len(out.splitlines()) == 2
    assert err.startswith("standard input, line 3: ")
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--set", CLASSIC], 2, "--destination"),
        (["--set", ARTEMIS], 2, "--address"),
        (["--set", CLASSIC, "--destination", "queue://"], 2, "needs a name"),
        (["--set", CLASSIC, "--destination", "A", "--batch"], 2, "no other case"),
        (
            ["--set", CLASSIC, "--destination", "A", "--redelivery-count", "x"],
            2,
            "redelivery-count",
        ),
        (["--destination", "A"], 78, "no policy is given"),
        (["--set", "policy.source=gone.xml", "--destination", "A"], 78, "gone.xml"),
        (
            ["--set", f"policy.source={POLICIES / 'bad.activemq.xml'}", "--destination", "A"],
            78,
            "bad.activemq.xml:20",
        ),
    ],
)
def test_exit_codes(arguments: list[str], code: int, words: str) -> None:
    """2 for wrong usage, 78 for a wrong configuration, with nothing on standard output."""
    found, out, err = _run("explain", *arguments)
    assert found == code
    assert out == ""
    assert words in err


def test_text_output() -> None:
    """For people: what, why, and where the sidecar differs."""
    arguments = ("explain", "--set", CLASSIC, "--output", "text", "--destination")
    assert "redeliver after" in _run(*arguments, "queue://orders.a")[1]
    code, out, err = _run(*arguments, "queue://B.x", "--redelivery-count", "9", "--non-persistent")
    assert code == 0
    assert "dead letter: to queue://DLQ.B.x.dead, for 60000 ms" in out
    assert "differs: " in out
    assert "warning: " in err
    assert _run(*arguments, "queue://trash", "--redelivery-count", "9")[1].startswith("discard\n")


def test_configuration_file_and_inline_rules(tmp_path: Path) -> None:
    """--config and policy.rules work as everywhere."""
    config = tmp_path / "c.yaml"
    config.write_text(
        "policy:\n  rules:\n    address_settings:\n      - {match: '#', redelivery_delay_ms: 7}\n"
    )
    answer = _one("--config", str(config), "--address", "a")
    assert answer["delay_ms"] == 7


def test_many_cases_are_answered_in_one_run() -> None:
    """One line each, whatever the number; how fast is a question for the benchmark."""
    lines = [
        json.dumps(
            {"destination": f"queue://orders.{number % 5000}", "redelivery_count": number % 8}
        )
        for number in range(100_000)
    ]
    code, out, _ = _run("explain", "--set", CLASSIC, "--batch", stdin="\n".join(lines) + "\n")
    assert code == 0
    assert out.count("\n") == 100_000


def test_output_is_written_in_chunks() -> None:
    """A long batch does not wait in memory."""
    sink = io.BytesIO()
    assert answer_batch([b"x"] * 3, lambda _: {"rule": "r" * 700_000}, sink) is None  # type: ignore[arg-type,return-value]
    assert len(sink.getvalue()) == 3 * (700_000 + len('{"rule":""}\n'))


def test_import_prints_yaml_that_decides_the_same(tmp_path: Path) -> None:
    """XML in, YAML out, equal answers; warnings on standard error."""
    for source, case in (
        ("full.activemq.xml", {"destination": "queue://orders.a", "redelivery_count": 2}),
        ("full.broker.xml", {"address": "orders.a", "delivery_count": 2}),
    ):
        target = tmp_path / "policy.yaml"
        code, out, err = _run("import", str(POLICIES / source), "--to", str(target))
        assert (code, out) == (0, "")
        assert "warning: " in err
        options = ("--no-collision-avoidance",)
        (mine,) = _batch(f"policy.source={target}", case, options=options)
        (theirs,) = _batch(f"policy.source={POLICIES / source}", case, options=options)
        del mine["rule"], theirs["rule"]
        assert mine == theirs


def test_import_as_json_and_from_a_uri() -> None:
    """--output json has the policy and the warnings."""
    uri = "tcp://host:61616?jms.redeliveryPolicy.maximumRedeliveries=3"
    code, out, _ = _run("import", uri, "--output", "json")
    assert code == 0
    content = json.loads(out)
    assert content["policy"] == {
        "plugins": [{"redelivery": {"default_entry": {"maximum_redeliveries": 3}}}]
    }
    assert content["warnings"] == []
    assert _run("import", "--set", CLASSIC)[1].startswith("# From ")


@pytest.mark.parametrize("arguments", [[], ["gone.xml"], [str(POLICIES / "bad.activemq.xml")]])
def test_import_of_something_wrong(arguments: list[str]) -> None:
    """Exit code 78 and nothing on standard output."""
    code, out, err = _run("import", *arguments)
    assert (code, out) == (78, "")
    assert err


def test_import_to_a_place_that_can_t_be_written(tmp_path: Path) -> None:
    """Named, not a traceback."""
    code, _, err = _run("import", str(POLICIES / "full.broker.xml"), "--to", str(tmp_path))
    assert code == 78
    assert "can't be written" in err


def test_without_a_dead_letter_strategy_the_queue_that_was_read_decides(tmp_path: Path) -> None:
    """As the run does: `ActiveMQ.DLQ` is no queue of an Artemis."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("plugins: [{redelivery: {default_entry: {maximum_redeliveries: 0}}}]")
    answer = _one("--set", f"policy.source={policy}", "--destination", "queue://A")
    assert answer["destination"] == "queue://ActiveMQ.DLQ"
    assert "the queue that it was read from, plus .exhausted" in str(answer["differs"])


def test_a_discard_that_no_line_orders_is_kept_and_defaults_are_named(tmp_path: Path) -> None:
    """The broker's answer stays; the defaults that it rests on are named."""
    policy = tmp_path / "policy.yaml"
    policy.write_text('address_settings: [{match: "#", max_delivery_attempts: 1}]')
    source = f"policy.source={policy}"
    answer = _one("--set", source, "--address", "w.q")
    assert answer["action"] == "discard"
    assert "no written line orders a discard" in str(answer["differs"])
    assert "plus .exhausted" in str(answer["differs"])
    assert answer["assumed"] == "redelivery-delay, dead-letter-address, expiry-address"
    policy.write_text("plugins: [{discarding: {drop_only: B}}]")
    kept = _one("--set", source, "--destination", "queue://A")
    dropped = _one("--set", source, "--destination", "queue://B")
    assert (kept["action"], dropped["action"]) == ("discard", "discard")
    assert "differs" in kept
    assert "differs" not in dropped
    assert f"({policy}:" in str(dropped["rule"])


TABLE = (
    "policy.plugins=[{rules: {rules: ["
    "{cause_class: ConnectException, redeliver: {maximum_redeliveries: -1, within_ms: 7200000}}, "
    "{properties: {tenant: old}, redirect: {to: repair, delay_ms: 5}}, "
    "{jms_type: bill, headers: {JMSPriority: '9'}, action: exhaust}]}}]"
)


def test_facts_for_rules_beyond_the_brokers_can_be_given() -> None:
    asked = ("--set", CLASSIC, "--set", TABLE, "--destination", "queue://orders.eu")
    down = ("--cause", "java.net.ConnectException: refused", "--age")
    assert _one(*asked, *down, "1h")["rule"] == "rule 1 redeliver (--set policy.plugins)"
    assert _one(*asked, *down, "2h") == {
        "action": "exhaust",
        "rule": "rule 1 within_ms=7200000 (--set policy.plugins)",
    }
    assert _one(*asked, "--property", "tenant=old") == {
        "action": "redirect",
        "delay_ms": 5,
        "redelivery_count": 1,
        "destination": "queue://repair",
        "rule": "rule 2 redirect to queue://repair (--set policy.plugins)",
    }
    bill = _one(*asked, "--jms-type", "bill", "--header", "JMSPriority=9")
    assert bill["rule"] == "rule 3 exhaust (--set policy.plugins)"
    assert "rule 3" not in str(_one(*asked, "--jms-type", "bill")["rule"])
    case = {"destination": "orders.eu", "properties": {"tenant": "old"}, "age_ms": 7}
    [answer] = _batch(CLASSIC, case, options=("--set", TABLE))
    assert answer["action"] == "redirect"
    code, _, err = _run("explain", *asked, "--property", "tenant")
    assert code == 2
    assert "NAME=VALUE" in err

"""Artemis's own filters beside our evaluator: equal, or undecided, never silently different."""

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from proton import Message, byte, char, float32, int32, short, ulong

from amqsidecar.formats.amqp_artemis_message import encode_resend
from amqsidecar.formats.artemis_filter_view import filter_view
from amqsidecar.policy.selector import NarrowInt, PropertyOf, parse_selector
from support import maven, versions
from support.links.cycles import resend_of
from support.machine.processes import run_program
from support.tier import at_length

pytestmark = pytest.mark.oracle

HERE = Path(__file__).parent
QUESTIONS = at_length(100_000, otherwise=6_000)
NAMES = ("color", "size", "flag", "gone", "weight", "my_prop", "$x")
HEADERS = ("AMQPriority", "AMQDurable", "AMQTimestamp", "AMQAddress", "JMSType", "JMSXGroupID")
TEXTS = ("red", "green", "", "r%d", "3", "O'Brien", "ä_ö", "true", "a.b")
NUMBERS = ("0", "1", "3", "-3", "017", "0x1F", "7L", "2.5", "3.0", ".5", "1e3", "5000000000")
NOW_MS = 1_000_000


class Question(NamedTuple):
    """A filter, a message as the oracle reads it, and what our evaluator sees of it."""

    filter: str
    kind: str
    message: bytes
    view: PropertyOf


def text_of(chance: Random) -> str:
    return "'" + chance.choice(TEXTS).replace("'", "''") + "'"


def number(chance: Random, depth: int) -> str:
    kind = chance.randrange(6)
    if depth and kind == 0:
        sign = chance.choice("+-*/%")
        return f"{number(chance, depth - 1)} {sign} {number(chance, depth - 1)}"
    if depth and kind == 1:
        return f"-({number(chance, depth - 1)})"
    return chance.choice((*NAMES, *HEADERS)) if kind < 4 else chance.choice(NUMBERS)


def condition(chance: Random, depth: int) -> str:
    name = chance.choice((*NAMES, *NAMES, *HEADERS))
    no = chance.choice(("", "NOT "))
    match chance.randrange(13 if depth else 8):
        case 0:
            return f"{name} {chance.choice(('=', '<>'))} {text_of(chance)}"
        case 1:
            sign = chance.choice(("=", "<>", "<", "<=", ">", ">="))
            return f"{number(chance, 2)} {sign} {number(chance, 2)}"
        case 2:
            pattern = chance.choice(("r%", "_ed", "%", "r!%d", "", "%3%", "O''_%", "ä!_ö"))
            escape = " ESCAPE '!'" if "!" in pattern or chance.random() < 0.1 else ""
            return f"{name} {no}LIKE '{pattern}'{escape}"
        case 3:
            return f"{name} {no}IN ({', '.join(text_of(chance) for _ in range(1 + depth))})"
        case 4:
            return f"{number(chance, 1)} {no}BETWEEN {number(chance, 1)} AND {number(chance, 1)}"
        case 5:
            return f"{name} IS {no}NULL"
        case 6:
            return chance.choice((name, "TRUE", "FALSE", f"{name} = TRUE", f"{name} <> FALSE"))
        case 7:
            return f"{name} = {chance.choice(NAMES)}"
        case 8 | 9:
            return f"{condition(chance, depth - 1)} AND {condition(chance, depth - 1)}"
        case 10 | 11:
            return f"{condition(chance, depth - 1)} OR {condition(chance, depth - 1)}"
        case _:
            return f"{no}({condition(chance, depth - 1)})"


CORE_TYPES = ("string", "boolean", "byte", "short", "int", "long", "float", "double")


def value_of(chance: Random, type_: str) -> Any:
    match type_:
        case "string":
            return chance.choice(TEXTS)
        case "boolean":
            return chance.random() < 0.5
        case "float":
            return struct.unpack("f", struct.pack("f", chance.choice((0.1, 2.5, 3.0, -1.5))))[0]
        case "double":
            return chance.choice((0.1, 2.5, 3.0, 1000.0))
        case _:
            return chance.choice((0, 1, 3, -3, 31, 100))


def core_question(chance: Random) -> Question:
    found = {
        name: (type_, value_of(chance, type_))
        for name in NAMES
        if name != "gone" and (type_ := chance.choice(CORE_TYPES)) and chance.random() < 0.8
    }
    lines = "\n".join(
        f"{name}\0{type_}\0{str(value).lower() if type_ == 'boolean' else value}"
        for name, (type_, value) in found.items()
    )
    values: Mapping[str, Any] = {
        **{
            name: NarrowInt(value) if type_ in ("byte", "short") else value
            for name, (type_, value) in found.items()
        },
        "AMQPriority": 7,
        "AMQTimestamp": 5000,
        "AMQDurable": "DURABLE",
        "AMQAddress": "orders",
    }
    return Question(condition(chance, 3), "core", lines.encode(), values.get)


AMQP_TYPES = {
    "string": str,
    "boolean": bool,
    "byte": byte,
    "short": short,
    "int": int32,
    "long": int,
    "float": float32,
    "double": float,
    "ulong": ulong,
    "char": char,
}


def amqp_question(chance: Random) -> Question:
    properties = {}
    for name in NAMES:
        type_ = chance.choice(tuple(AMQP_TYPES))
        if name != "gone" and chance.random() < 0.8:
            value = {"ulong": 3, "char": "x"}.get(type_)
            value = value_of(chance, type_) if value is None else value
            properties[name] = AMQP_TYPES[type_](value)
    message = Message(
        id="ID:1",
        durable=chance.random() < 0.5,
        priority=chance.choice((0, 4, 9)),
        body="x",
        properties=properties,
        subject=chance.choice((None, "red")),
        creation_time=chance.choice((0, 5)),
        group_id=chance.choice((None, "red")),
    )
    resend = resend_of(bytes(message.encode()))
    view = filter_view(resend, "orders", "amqp/1.0", NOW_MS, expires_by_itself=False)
    return Question(condition(chance, 3), "amqp", encode_resend(resend, NOW_MS), view)


def ask_artemis(questions: Iterable[Question]) -> list[str]:
    """Return the broker's answers."""
    jars = maven.broker_jars(versions.TESTED["artemis"])
    classes = maven.compiled(str(HERE / "SelectorOracle.java"), jars)
    command = [maven.tool("java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-cp", f"{classes}:{jars}/*", "SelectorOracle"]
    lines = "".join(
        f"{one.filter.encode().hex()}\t{one.kind}\t{one.message.hex()}\n" for one in questions
    )
    done = run_program(command, input=lines, code=0)
    return [line for line in done.stdout.splitlines() if line in ("0", "1", "invalid")]


@pytest.mark.parametrize("make", [core_question, amqp_question], ids=("core", "amqp"))
def test_each_decided_answer_is_the_brokers(make: Any) -> None:
    chance = Random(7)
    questions = [make(chance) for _ in range(QUESTIONS // 2)]
    answers = ask_artemis(questions)
    assert len(answers) == len(questions)
    seen: Counter[str] = Counter()
    for one, answer in zip(questions, answers, strict=True):
        if answer == "invalid":
            seen["invalid"] += 1
            continue
        ours = parse_selector(one.filter).matches(one.view)
        seen[str(ours)] += 1
        assert ours is None or ours is (answer == "1"), one
    # Why: what is never decided is never wrong either.
    assert seen["None"] < 0.3 * len(questions), seen
    assert min(seen["True"], seen["False"]) > 0.1 * len(questions), seen

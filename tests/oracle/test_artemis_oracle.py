"""Artemis's own parser, settings repository and queue beside ours, line by line.

Each configuration is a `broker.xml` that the broker's FileConfigurationParser reads. Its entries
stand in a real HierarchicalObjectRepository, and a real QueueImpl is asked by checkRedelivery, so
that matching, order, merging, limit, delay and the fate of the message are all the broker's.
"""

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import pytest

from amqsidecar.cli.main import run_command_line
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.artemis_decider import ArtemisDecider, redelivery_delay_ms
from amqsidecar.policy_source.load import compile_policy, load_policy
from support import maven, versions
from support.tier import at_length

pytestmark = pytest.mark.oracle

HERE = Path(__file__).parent
CONFIGURATIONS = at_length(260, otherwise=65)
CASES = 300
PROCESSES = 3
ENVIRONMENT = {"ORACLE_DLA": "DLA.env", "ORACLE_DELAY": "750"}

DEFAULT_SYNTAX = (".", "*", "#")
SYNTAXES = (
    ("/", "+", ">"),
    ("_", "*", "#"),
    (".", "+", ">"),
    ("-", "?", "!"),
    ("/", "*", "#"),
    ("/", ".", "#"),
    (".", "*", "+"),
    ("/", "*", "."),
    ("$", "*", "#"),
    ("|", "*", "#"),
)
MARKERS = ("()", "[]", "||")
WORDS = ("a", "b", "c", "orders", "eu", "qu", "queue", "A", "a$", "ab", "1", "x y", "ü", "😀")
DELAYS = (
    "0",
    "1",
    "7",
    "100",
    "333",
    "500",
    "1000",
    "-5",
    "+30000",
    "9223372036854775807",
    "4611686018427387904",
    "-9223372036854775808",
    "${ORACLE_DELAY}",
    "${nobody:250}",
)
MULTIPLIERS = (
    "1.0",
    "2",
    "1.5",
    "1.1",
    "0.5",
    "0",
    "-2",
    "3.3333333",
    "1e300",
    "+.5",
    "5.",
    "NaN",
    "1.000001",
)
ATTEMPTS = ("-7", "-1", "0", "1", "2", "3", "5", "10", "+12", "2147483647")
ADDRESSES = ("DLA", "D.L.A", "", " DLA ", "${ORACLE_DLA}", "${nobody:D}", "${nobody}", "DLA::q")
BOOLEANS = ("true", "false", "1", "0", " true ")
ILLEGAL_MATCHES = ("a.#.c", "#.a", "a.##", "(", "a.(.*", "[.#", "a\\#b", "*+?{")
BAD_VALUES = (
    ("max-delivery-attempts", "3x"),
    ("max-delivery-attempts", "2147483648"),
    ("redelivery-delay", "5s"),
    ("redelivery-delay", ""),
    ("redelivery-delay", "1_000"),
    ("max-redelivery-delay", "9223372036854775808"),
    ("redelivery-delay-multiplier", "two"),
    ("redelivery-delay-multiplier", "1_0"),
    ("redelivery-delay-multiplier", "inf"),
    ("redelivery-collision-avoidance-factor", "1.01"),
    ("redelivery-collision-avoidance-factor", "-0.5"),
    ("redelivery-delay-multiplier", "2f"),
    ("redelivery-delay-multiplier", "Infinity"),
    ("redelivery-delay-multiplier", "INF"),
    ("redelivery-delay-multiplier", "0x1.8p1"),
    ("no-expiry", "TRUE"),
    ("auto-create-dead-letter-resources", "yes"),
    ("redelivery-multiplier", "2"),
    ("Redelivery-Delay", "100"),
    ("no-expiry", "true</no-expiry><no-expiry>true"),
)
BAD_ELEMENTS = (
    "<literal-match-markers>(</literal-match-markers>",
    "<address-settings/>",
    '<address-settings><address-setting match="a" other="b"/></address-settings>',
)
PREFIXED = ("address-settings", "address-setting", "core", "configuration", "dead-letter-address")
"""The broker takes these with a prefix, and ignores them."""


@dataclass(frozen=True)
class Generated:
    """One configuration, its file, and the cases (address, delivery count) to ask it."""

    path: Path
    cases: list[tuple[str, int]]


def make_pattern(chance: random.Random, syntax: tuple[str, str, str], markers: str | None) -> str:
    delimiter, single, any_words = syntax
    words = [chance.choice(WORDS) for _ in range(chance.choice((1, 1, 2, 2, 2, 3, 3, 4)))]
    for index, word in enumerate(words):
        roll = chance.random()
        if roll < 0.35:
            words[index] = single
        elif roll < 0.5:
            words[index] = chance.choice((word + single, single + word, f"{word}{single}{word}"))
        elif roll < 0.53:
            words[index] = ""
    text = delimiter.join(words)
    roll = chance.random()
    if roll < 0.35:
        text += chance.choice((delimiter, delimiter, delimiter, "")) + any_words
    elif roll < 0.38:
        text = any_words
    elif roll < 0.44:
        text = chance.choice(
            (
                f"[ab]+{delimiter}{single}",
                f"(a|b){single}",
                f"a+{single}",
                f"a{single}({delimiter}b)?({delimiter}c)?",
                f"{single}({delimiter}b)?",
            )
        )
    elif roll < 0.46:
        text = f"a\\{single}{delimiter}b"
    elif roll < 0.48:
        text += "::" + chance.choice(WORDS)
    if markers is not None and chance.random() < 0.25:
        text = markers[0] + text + markers[1]
    return text


def _element(chance: random.Random, name: str, text: str) -> str:
    blank = chance.choice(("", "", "", " ", "\n\t"))
    return f"<{name}>{blank}{escape(text)}{blank}</{name}>"


def make_settings(chance: random.Random) -> str:
    choices = {
        "max-delivery-attempts": ATTEMPTS,
        "redelivery-delay": DELAYS,
        "redelivery-delay-multiplier": MULTIPLIERS,
        "max-redelivery-delay": DELAYS,
        "redelivery-collision-avoidance-factor": ("0", "0.15", "0.5", "1.0"),
        "dead-letter-address": ADDRESSES,
        "expiry-address": ADDRESSES,
        "auto-create-dead-letter-resources": BOOLEANS,
        "dead-letter-queue-prefix": ("", "P.", " X"),
        "dead-letter-queue-suffix": ("", ".s"),
        "expiry-delay": DELAYS[:6],
        "no-expiry": BOOLEANS,
        "max-size-bytes": ("-1", "10MB"),
    }
    names = [name for name in choices if chance.random() < 0.4]
    chance.shuffle(names)
    return "".join(_element(chance, name, chance.choice(choices[name])) for name in names)


def make_addresses(
    chance: random.Random, syntax: tuple[str, str, str], matches: Iterable[str]
) -> list[str]:
    """Return addresses that are likely to match, and some that don't."""
    delimiter, single, any_words = syntax
    known = list(matches)
    found = ["", "a", delimiter]
    while len(found) < CASES // 2:
        if chance.random() < 0.7:
            text = chance.choice(known).split("::")[0]
            if chance.random() < 0.1:
                found.append(text)
                continue
            text = text.strip("()[]|").replace(single, chance.choice(("a", "b", "xyz", "")))
            extra = chance.choice(("", f"{delimiter}a", f"{delimiter}x{delimiter}y", delimiter))
            text = text.removesuffix(any_words).removesuffix(delimiter) + extra
        else:
            count = chance.randint(1, 4)
            text = delimiter.join(chance.choice(WORDS) for _ in range(count))
        if chance.random() < 0.1:
            text += "::" + chance.choice(WORDS)
        found.append(text)
    return [text for text in found if "\t" not in text]


def _prefixed(chance: random.Random, text: str) -> str:
    """Return a file with some or all of its elements in a namespace with a prefix."""
    names = chance.sample(PREFIXED, chance.choice((1, 1, 2, len(PREFIXED))))
    for name in names:
        text = re.sub(rf"(</?)({name})(?=[ />])", r"\1p:\2", text)
    at = 'configuration xmlns="urn:activemq"'
    core = '<p:configuration xmlns:p="urn:activemq"' if "configuration" in names else f"<{at}"
    text = re.sub(rf"<(?:p:)?{at}", core, text)
    return re.sub(r"<((?:p:)?core) ", r'<\1 xmlns:p="urn:activemq:core" ', text)


def _generate(seed: int, folder: Path) -> Generated:
    chance = random.Random(seed)
    syntax = DEFAULT_SYNTAX if chance.random() < 0.7 else chance.choice(SYNTAXES)
    markers = chance.choice(MARKERS) if chance.random() < 0.2 else None
    matches = [
        make_pattern(chance, syntax, markers) for _ in range(chance.choice((0, 1, 3, 8, 13, 40)))
    ]
    if chance.random() < 0.5:
        matches.append(syntax[2])
    matches += chance.sample(matches, min(2, len(matches)))
    bad = chance.random()
    if bad < 0.04:
        matches.append(chance.choice(ILLEGAL_MATCHES))
    entries = [
        f"<address-setting match={quoteattr(match)}>{make_settings(chance)}</address-setting>"
        for match in matches
    ]
    if 0.04 <= bad < 0.09:
        entries.append(
            '<address-setting match="bad"><{0}>{1}</{0}></address-setting>'.format(
                *chance.choice(BAD_VALUES)
            )
        )
    parts = ["<address-settings>\n" + "\n".join(entries) + "\n</address-settings>"]
    if syntax != DEFAULT_SYNTAX:
        names = ("delimiter", "single-word", "any-words")
        inner = "".join(
            f"<{name}>{escape(character)}{chance.choice(('', '', 'z'))}</{name}>"
            for name, character in zip(names, syntax, strict=True)
        )
        parts.append(f"<wildcard-addresses>{inner}</wildcard-addresses>")
    if markers is not None:
        parts.append(f"<literal-match-markers>{markers}</literal-match-markers>")
    if 0.09 <= bad < 0.1:
        parts.append(chance.choice(BAD_ELEMENTS))
    chance.shuffle(parts)
    path = folder / f"{seed}.broker.xml"
    encoding = chance.choice(("UTF-8", "UTF-8", "ISO-8859-1"))
    text = (
        f'<?xml version="1.0" encoding="{encoding}"?>\n<configuration xmlns="urn:activemq">\n'
        '<core xmlns="urn:activemq:core">\n' + "\n".join(parts) + "\n</core>\n</configuration>\n"
    )
    if chance.random() < 0.15:
        text = _prefixed(chance, text)
    path.write_text(text, encoding="utf-8-sig" if 0.1 <= bad < 0.11 else "utf-8")
    addresses = make_addresses(chance, syntax, matches or ["a"])
    counts = (1, 1, 2, 2, 3, 4, 5, 9, 10, 11, 12, 30, 400, 5000)
    cases = [(chance.choice(addresses), chance.choice(counts)) for _ in range(CASES)]
    lines = "".join(f"{address}\t{count}\n" for address, count in cases)
    path.with_name(path.name + ".cases").write_text(lines, encoding="utf-8")
    return Generated(path, cases)


def ask_artemis(generated: Iterable[Generated]) -> list[list[str] | None]:
    """Return the lines of each configuration; None = the broker refuses it."""
    generated = list(generated)
    jars = maven.broker_jars(versions.TESTED["artemis"])
    classes = maven.compiled(str(HERE / "ArtemisOracle.java"), jars)
    command = [maven.tool("java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-Dfile.encoding=UTF-8", "-cp", f"{classes}:{jars}/*", "ArtemisOracle"]
    done = subprocess.run(
        command,
        input="".join(f"{one.path}\n" for one in generated),
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **ENVIRONMENT, "LC_ALL": "C.UTF-8"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = iter(done.stdout.split("\n")[:-1])
    answers: list[list[str] | None] = []
    for one in generated:
        first = next(lines)
        if first.startswith("refused\t"):
            answers.append(None)
        else:
            answers.append([first, *(next(lines) for _ in one.cases[1:])])
    assert next(lines, None) is None
    return answers


def _stdin(cases: Iterable[tuple[str, int]]) -> bytes:
    return b"".join(
        json.dumps({"address": address, "delivery_count": count}).encode() + b"\n"
        for address, count in cases
    )


def explain_here(path: Path, cases: Iterable[tuple[str, int]]) -> tuple[int, list[str]]:
    """Run `amqsidecar explain --batch` in this process: exit code and lines."""
    out = TextIOWrapper(BytesIO(), "utf-8", write_through=True)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setattr("sys.stdin", TextIOWrapper(BytesIO(_stdin(cases)), "utf-8"))
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", TextIOWrapper(BytesIO(), "utf-8"))
        code = run_command_line(_arguments(path))
        written = out.buffer.getvalue().decode()
    return code, written.splitlines()


def _arguments(path: Path) -> list[str]:
    return ["explain", "--set", f"policy.source={path}", "--batch", "--no-collision-avoidance"]


def as_oracle(line: str) -> list[str]:
    """Return a line of ours in the oracle's form, as far as both have it."""
    answer = json.loads(line)
    address = answer["dead_letter_address"]
    action = answer["action"]
    arguments: dict[str, Callable[[], str]] = {
        "redeliver": lambda: str(answer["delay_ms"]),
        "dead_letter": lambda: answer["destination"].removeprefix("queue://"),
        "discard": lambda: "",
    }
    return [
        str(answer["max_delivery_attempts"]),
        "~" if address is None else f"={address}",
        str(answer["redelivery_delay_ms"]),
        action,
        arguments[action](),
    ]


@pytest.fixture(scope="module")
def configurations(tmp_path_factory: pytest.TempPathFactory) -> list[Generated]:
    """The same configurations in every run."""
    folder = tmp_path_factory.mktemp("artemis_oracle")
    return [_generate(seed, folder) for seed in range(CONFIGURATIONS)]


@pytest.fixture(scope="module")
def broker_answers(configurations: list[Generated]) -> list[list[str] | None]:
    """What Artemis says, asked once."""
    return ask_artemis(configurations)


def _is_read_otherwise(one: Generated) -> bool:
    """Whether the tested release reads a configuration in another way than the oldest one.

    Artemis 2.44 builds a regular expression of the delimiter `$` without quoting it, so that it
    matches next to nothing; later releases quote it.
    """
    is_oldest = versions.usual("artemis").version == versions.ARTEMIS
    return not is_oldest and "<delimiter>$" in one.path.read_text(encoding="utf-8")


def test_explain_equals_the_broker_line_by_line(
    configurations: list[Generated], broker_answers: list[list[str] | None]
) -> None:
    """Settings, action, delay and destination of every case; refusals of every configuration."""
    began = time.perf_counter()
    compared = refused = 0
    actions: dict[str, int] = {}
    for one, theirs in zip(configurations, broker_answers, strict=True):
        if _is_read_otherwise(one):
            continue
        code, ours = explain_here(one.path, one.cases)
        if theirs is None:
            assert code == 78, f"{one.path.read_text()}\nthe broker refuses this, we don't"
            refused += 1
            continue
        assert code == 0, f"{one.path.read_text()}\nwe refuse this, the broker doesn't"
        for case, mine, real in zip(one.cases, ours, theirs, strict=True):
            fields = as_oracle(mine)
            assert fields == real.split("\t")[:5], f"{one.path.read_text()}\n{case}"
            actions[fields[3]] = actions.get(fields[3], 0) + 1
            compared += 1
    print(
        f"{compared} cases equal, {refused} configurations refused by both, {actions}, "
        f"{time.perf_counter() - began:.1f} s"
    )
    assert compared >= 0.75 * CONFIGURATIONS * CASES
    assert 5 <= refused <= 50
    assert min(actions.values()) >= 1000
    assert len(actions) == 3


def test_collision_avoidance_and_auto_created_queues_equal_the_broker(
    configurations: list[Generated], broker_answers: list[list[str] | None]
) -> None:
    """A delay that the broker varied lies in our range; the created queue has our name."""
    plugins = load_plugins()
    varied = created = 0
    for one, theirs in zip(configurations, broker_answers, strict=True):
        if theirs is None or _is_read_otherwise(one):
            continue
        decider = compile_policy(load_policy(one.path, plugins, ENVIRONMENT), plugins)
        assert isinstance(decider, ArtemisDecider)
        for (address, count), real in zip(one.cases, theirs, strict=True):
            settings = decider.effective(address)
            fields = real.split("\t")
            ends = sorted(
                redelivery_delay_ms(settings, count, iter((sign, 1.0)).__next__)
                for sign in (0.0, 0.9)
            )
            assert ends[0] <= int(fields[5]) <= ends[1]
            varied += ends[0] != ends[1]
            if fields[6] != "~":
                assert fields[6] == f"={settings.dead_letter_queue}"
                created += 1
            elif fields[3] != "redeliver":
                assert settings.dead_letter_queue is None
    assert varied > 1000
    assert created > 500


def test_the_installed_command_says_the_same(
    configurations: list[Generated], broker_answers: list[list[str] | None]
) -> None:
    """A few configurations through the command as a process of its own."""
    asked = 0
    for one, theirs in zip(configurations, broker_answers, strict=True):
        if theirs is None:
            continue
        done = subprocess.run(
            [sys.executable, "-m", "amqsidecar", *_arguments(one.path)],
            input=_stdin(one.cases),
            capture_output=True,
            env={**os.environ, **ENVIRONMENT},
            check=True,
        )
        lines = done.stdout.decode().splitlines()
        assert [as_oracle(line) for line in lines] == [line.split("\t")[:5] for line in theirs]
        asked += 1
        if asked == PROCESSES:
            return

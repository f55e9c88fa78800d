"""java.util.regex itself beside our translation: equal, or refused, never silently different.

Run as a program, this file writes the character tables of the Java on the machine into
``amqsidecar/policy/java_regex/unicode13.zlib``.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amqsidecar.policy.java_regex import chars as java_chars
from amqsidecar.policy.java_regex.chars import table
from amqsidecar.policy.java_regex.java_regex import (
    JavaRegex,
    JavaRegexError,
    JavaRegexTimeout,
    compile_java_regex,
)
from amqsidecar.policy.java_regex.parser import parse
from amqsidecar.policy.java_regex.tree import Chars
from support.machine.processes import run_program
from support.tier import at_length

pytestmark = pytest.mark.oracle

HERE = Path(__file__).parent
SOURCE = HERE / "JavaRegexOracle.java"
CORPUS = HERE / "java_regex_corpus.txt"
PATTERNS = at_length(1000, otherwise=125)
"""Random ones of each grammar."""
MOST_REFUSED = 60
MOST_TIMED_OUT = 5
OPEN_UNICODE_NAMES = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")


def _java_home_binary(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is not on the path: the oracle needs JDK 17"
    return found


def oracle_classes() -> Path:
    """Compile the oracle once per source text."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "amqsidecar" / f"java-{digest}"
    if not (folder / "JavaRegexOracle.class").exists():
        building = folder.with_name(f"{folder.name}.{os.getpid()}")
        building.mkdir(parents=True)
        javac = _java_home_binary("javac")
        subprocess.run([javac, "-d", str(building), str(SOURCE)], check=True)
        if folder.exists():
            shutil.rmtree(building)
        else:
            building.rename(folder)
    return folder


def ask_java(*arguments: str, stdin: str = "", options: Sequence[str] = ()) -> list[str]:
    """Run the oracle once and return its lines."""
    command = [_java_home_binary("java"), "-Xss1m", "-XX:+UseSerialGC", *options]
    command += ["-cp", str(oracle_classes()), "JavaRegexOracle", *arguments]
    done = run_program(command, input=stdin, code=0)
    return done.stdout.splitlines()


def unicode_tables() -> str:
    return "\n".join(ask_java("unicode", options=OPEN_UNICODE_NAMES))


def write_unicode_tables(path: Path) -> None:
    path.write_bytes(zlib.compress(unicode_tables().encode("ascii"), 9))


@dataclass(frozen=True)
class Grammar:
    """Random patterns from a choice of parts."""

    chars: tuple[str, ...]
    escapes: tuple[str, ...]
    anchors: tuple[str, ...]
    references: tuple[str, ...]
    heads: tuple[str, ...]
    noise: tuple[str, ...]
    odds: tuple[float, float, float, float, float]

    def alternatives(self, random: Random, depth: int = 0) -> str:
        count = random.choice((1, 1, 1, 2, 2, 3))
        return "|".join(self.sequence(random, depth) for _ in range(count))

    def sequence(self, random: Random, depth: int) -> str:
        length = random.choice((0, 1, 1, 2, 2, 3)) if depth else random.randint(1, 4)
        return "".join(self.item(random, depth) for _ in range(length))

    def item(self, random: Random, depth: int) -> str:
        noise = random.choice(self.noise) if self.noise and random.random() < 0.03 else ""
        quantifier = ""
        if random.random() < 0.35:
            quantifier = random.choice(QUANTIFIERS) + random.choice(("", "", "", "?", "+"))
        return noise + self.atom(random, depth) + quantifier

    def atom(self, random: Random, depth: int) -> str:
        char, anchor, escape, klass, reference = self.odds
        dice = random.random()
        if dice < char or (dice >= reference and depth >= 3):
            return random.choice(self.chars)
        if dice < anchor:
            return random.choice(self.anchors)
        if dice < escape:
            return random.choice(self.escapes)
        if dice < klass:
            return self.klass(random, 0)
        if dice < reference:
            return random.choice(self.references)
        return random.choice(self.heads) + self.alternatives(random, depth + 1) + ")"

    def klass(self, random: Random, depth: int) -> str:
        members = [self.member(random, depth) for _ in range(random.randint(1, 3))]
        stray = random.choice("&-^[]#") if random.random() < 0.04 else ""
        negation = "^" if random.random() < 0.3 else ""
        return f"[{negation}{''.join(members)}{stray}]"

    def member(self, random: Random, depth: int) -> str:
        dice = random.random()
        if dice < 0.4 or (dice >= 0.75 and depth >= 2):
            return random.choice(self.chars).replace(".", "-")
        if dice < 0.55:
            return random.choice(RANGES)
        if dice < 0.75:
            return random.choice(self.escapes)
        if dice < 0.87:
            return self.klass(random, depth + 1)
        char = random.choice(self.chars).replace(".", "a")
        operand = (self.klass(random, depth + 1), char, char * 2, "a-c")
        return "&&" + random.choice(operand)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


QUANTIFIERS = _words("? * + {2} {1,2} {0,2} {1,} {0} {3} {2,3} {2,} {0,1}")
RANGES = ("a-c", "A-C", "0-9", "b-k", "a-é", r"\n-\r", "A-z", "é-ſ", "S-k")
WIDE = Grammar(
    chars=(*"aabbcAB1_\n\réÉßſKk😀\u0301 x", r"\.", r"\-"),
    escapes=_words(
        r"\d \D \w \W \s \S \h \H \v \V \n \r \t \x61 \x{61} \u0061 \0141 \cJ \e \. \- \é "
        r"\p{Lower} \p{L} \P{L} \pL \p{IsAlphabetic} \p{Upper} \P{Upper} \p{IsLatin} "
        r"\p{javaLowerCase} \p{Punct} \Qa.b\E \Qa\E \x{1F600}"
    ),
    anchors=_words(r". ^ $ . \b \B \A \z \Z \R \G"),
    references=_words(r"\1 \2 \k<n> \11"),
    heads=_words(
        "( ( (?: (?: (?: (?= (?! (?> (?<= (?<! (?<n> (?i: (?iu: (?s: (?m: (?d: (?U: (?x: (?-i: "
        "(?iU-u:"
    ),
    noise=("(?i)", "(?m)", "(?s)", "(?x)", "(?d)", "(?u)", "(?U)", "(?-i)", *"#]}", "  ", "{2}"),
    odds=(0.40, 0.52, 0.62, 0.72, 0.75),
)
NARROW = Grammar(
    chars=tuple("aabbab."),
    escapes=(r"\r", r"\n", "[ab]", "[^a]", r"\w"),
    anchors=("^", "$", r"\b", r"\B", r"\R"),
    references=(r"\1", r"\2", r"\1", r"\3"),
    heads=("(", "(", "(", "(?:", "(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"),
    noise=(),
    odds=(0.45, 0.50, 0.55, 0.56, 0.63),
)
WIDE_INPUTS = [
    "",
    *_words("a b ab ba aa aaa aab abab abc A B AB aB Ab 1 a1 11 a.b aab.b a-b _ a_ - . .."),
    *("\n", "a\n", "a\r\n", "\r\n", "\r", "a\nb", "\na", "a\r", "b\n\n", "a\r\nb", "\u2028"),
    *("a\u2028", "\u0085a", "\x0b", "\f", "\t", "a b", " a", "\x1b", "\u00a0", "\u180e"),
    *_words("é É aé éa ß ẞ ßa ẞa ſ s S K k K aK 😀 a😀 😀a 😀b😀 𐐀 𐐨 x xx xa ax a# aaaa bbbb"),
    *("a\u0301", "\u0301", "e\u0301b", "1\u0301", "_\u0301", "😀\u0301"),
    *_words("abba aabb baab [ ] { } & İ ı i I Σ ς σ 🇩🇪 ٣"),
]
NARROW_INPUTS = [
    *("".join(text) for length in range(6) for text in product("ab", repeat=length)),
    *("".join(text) for length in range(1, 4) for text in product("ab\r\n", repeat=length)),
    *("aA", "Aa", "bB", "aBAb", "abAB", "a😀", "😀a", "😀b", "ab😀", "😀😀"),
]


_MARKS = {"␊": "\n", "␍": "\r", "␉": "\t", "␣": " ", "∅": ""}


def _unmark(line: str) -> str:
    for mark, text in _MARKS.items():
        line = line.replace(mark, text)
    return re.sub("⟨([0-9a-f]+)⟩", lambda found: chr(int(found[1], 16)), line)


def corpus() -> tuple[list[str], list[str]]:
    """Return patterns and inputs of the corpus file."""
    parts: dict[str, list[str]] = {}
    for line in CORPUS.read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            parts[line[3:]] = []
        elif line and not line.startswith("# "):
            parts[next(reversed(parts))].append(_unmark(line))
    return parts["patterns"], parts["inputs"]


def _hex(letter: str, text: str) -> str:
    return f"{letter} {text.encode('utf-8').hex()}\n"


class Tally:
    """Compares our verdicts with a row of Java's, and counts."""

    def __init__(self, inputs: Sequence[str]) -> None:
        self.inputs = inputs
        self.count: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.faults: list[str] = []

    def judge(self, pattern: str, java: str) -> None:
        invalid = java.startswith("invalid ")
        try:
            ours = compile_java_regex(pattern, timeout_ms=500)
        except JavaRegexError as error:
            if not 0 <= error.position <= len(pattern) or error.pattern != pattern:
                self.faults.append(f"{pattern!r} is refused without its position")
            self.count["invalid, refused" if invalid else "valid, refused"] += 1
            if not invalid:
                self.reasons[error.reason] += 1
            return
        if invalid:
            self.faults.append(f"{pattern!r} is accepted; Java says {java}")
            return
        verdicts = "".join(self.verdict(ours, text) for text in self.inputs)
        for text, java_says, we_say in zip(self.inputs, java, verdicts, strict=True):
            # S and T: Java itself gave up on the text, so there is nothing to compare with.
            if java_says != we_say and java_says not in "ST" and we_say != "T":
                self.faults.append(f"{pattern!r} on {text!r}: Java {java_says}, ours {we_say}")
        self.count["equal, with a time-out" if "T" in verdicts else "equal"] += 1

    @staticmethod
    def verdict(ours: JavaRegex, text: str) -> str:
        try:
            return "1" if ours.matches(text) else "0"
        except JavaRegexTimeout:
            return "T"

    def report(self) -> str:
        lines = [f"{name}: {count}" for name, count in sorted(self.count.items())]
        lines += [f"  refused {count} times: {what}" for what, count in self.reasons.most_common()]
        return "\n".join(lines)


def rows_of(patterns: Sequence[str], inputs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each pattern with Java's verdicts on the inputs."""
    stdin = "".join(_hex("I", text) for text in inputs) + "".join(_hex("P", p) for p in patterns)
    return zip(patterns, ask_java(stdin=stdin), strict=True)


def judged(patterns: Sequence[str], inputs: Sequence[str]) -> Tally:
    """Compare patterns with Java's, and find no fault."""
    tally = Tally(inputs)
    for pattern, row in rows_of(patterns, inputs):
        tally.judge(pattern, row)
    print(tally.report())
    assert tally.faults == []
    return tally


def test_corpus_is_equal_or_refused() -> None:
    """Each pattern of the corpus means the same as in Java on every input, or is refused."""
    patterns, inputs = corpus()
    assert len(set(patterns)) >= 400
    assert len(set(inputs)) >= 60
    tally = judged(patterns, inputs)
    assert tally.count["valid, refused"] <= MOST_REFUSED
    assert tally.count["equal, with a time-out"] <= MOST_TIMED_OUT


def _property_patterns() -> list[str]:
    scripts = dict(pair.split("=") for pair in table("script_alias").split())
    blocks = [name for line in table("blocks").split(";") for name in line.split(":")[1].split(",")]
    categories = {run.split(":")[1] for run in table("category").split()}
    plain = categories | set("LMNZCPS") | set(java_chars._ASCII_CLASSES) | set(java_chars._JAVA)
    names = [*plain, "LC", "LD", *(f"In{name}" for name in blocks)]
    names += [f"Is{name}" for name in (*java_chars._UNICODE, *java_chars._POSIX, *plain)]
    names += [f"Is{name}" for name in (*scripts, *scripts.values())]
    cased = [f"(?i)\\p{{{name}}}" for name in (*plain, "IsLowercase", "IsTitlecase", "IsUpper")]
    wide = [f"(?U)\\p{{{name}}}" for name in (*java_chars._POSIX, *plain)]
    wide += [f"(?U)\\{letter}" for letter in "dDsSwWhHvV"]
    return [*(f"\\p{{{name}}}" for name in names), *cased, *wide]


def test_every_named_set_holds_the_same_code_points() -> None:
    """Every property, script, block and class ends where it ends in Java."""
    edges = {0, 0x41, 0x61, 0x7F, 0x10FFFF}
    for name in ("category", "script"):
        for chars in java_chars._labelled(name).values():
            edges.update(bound - offset for bound in chars.bounds for offset in (0, 1))
    patterns = _property_patterns()
    inputs = [chr(c) for c in sorted(edges) if 0 <= c < 0x110000 and not 0xD800 <= c <= 0xDFFF]
    faults = []
    for pattern, row in rows_of(patterns, inputs):
        tree = parse(pattern)
        assert isinstance(tree, Chars)
        ours = "".join("1" if ord(text) in tree.chars else "0" for text in inputs)
        if ours != row:
            faults.append(pattern)
    assert faults == []


def test_case_folding_is_that_of_java() -> None:
    """Under (?i) and (?iu) each cased character meets the same characters as in Java."""
    cased = java_chars._mapping("upper").keys() | java_chars._mapping("lower").keys()
    some = [*sorted(cased)[::7], *map(ord, "AIKSµßåÿİı")]
    inputs = [chr(c) for c in sorted({*some, *(java_chars.fold(c) for c in some)})]
    heads = ("(?i)%s", "(?iu)%s", "(?iu)[%s]", "(?i)[%s]", "(?iu)[^%s]", "(?iu)[%s-\\x{ffff}]")
    patterns = [head % chr(c) for c in some if c <= 0xFFFF for head in heads]
    judged(patterns, inputs)


def test_character_tables_are_those_of_this_java() -> None:
    """The packed tables are what Java 17 prints."""
    rows = dict(line.split(" ", 1) for line in unicode_tables().splitlines())
    assert {name: table(name) for name in rows} == rows


def test_sampled_random_patterns_are_equal_or_refused() -> None:
    """Patterns of two grammars mean the same as in Java, or are refused."""
    for grammar, inputs in ((WIDE, WIDE_INPUTS), (NARROW, NARROW_INPUTS)):
        random = Random(20240229)
        patterns = [grammar.alternatives(random) for _ in range(PATTERNS)]
        tally = judged(patterns, inputs)
        assert tally.count["equal"] >= 0.3 * PATTERNS


@pytest.fixture(scope="module")
def java_line() -> Iterator[Callable[[str], str]]:
    """Answer one pattern at a time from one running Java."""
    command = [_java_home_binary("java"), "-Xss1m", "-cp", str(oracle_classes()), "JavaRegexOracle"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin
        assert process.stdout
        stdin, stdout = process.stdin, process.stdout
        stdin.write("".join(_hex("I", text) for text in WIDE_INPUTS))

        def ask(pattern: str) -> str:
            stdin.write(_hex("P", pattern))
            return stdout.readline().rstrip("\n")

        yield ask
        stdin.close()


@settings(
    max_examples=500,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(random=st.randoms(use_true_random=False))
def test_generated_patterns_are_equal_or_refused(
    java_line: Callable[[str], str], random: Random
) -> None:
    """Whatever pattern Hypothesis builds means the same as in Java, or is refused."""
    pattern = WIDE.alternatives(random)
    tally = Tally(WIDE_INPUTS)
    tally.judge(pattern, java_line(pattern))
    assert tally.faults == []


if __name__ == "__main__":
    write_unicode_tables(Path(sys.argv[1]))

"""Artemis's own reader of `broker.properties` beside ours, also over a `broker.xml`."""

import random
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

from oracle import test_artemis_oracle as oracle
from support.tier import at_length

pytestmark = pytest.mark.oracle

FILES = at_length(10_000, otherwise=100)
CASES = 12
SYNTAX = oracle.DEFAULT_SYNTAX
BOOLEANS = ("true", "false", "yes", "no", "on", "off", "1", "0", "Y", "FALSE")
LONGS = ("0", "100", "+5", "-5", "2k", "1KB", "3 m", "1Gib", "7b", " 12 ", "${ORACLE_DELAY}")
SETTINGS = {
    "maxDeliveryAttempts": oracle.ATTEMPTS,
    "redeliveryDelay": LONGS,
    "maxRedeliveryDelay": LONGS,
    "redeliveryMultiplier": (*oracle.MULTIPLIERS, "2f", "1.5d", "Infinity", " 3 "),
    "redeliveryCollisionAvoidanceFactor": ("0", "0.5"),
    "deadLetterAddress": oracle.ADDRESSES,
    "expiryAddress": oracle.ADDRESSES,
    "autoCreateDeadLetterResources": BOOLEANS,
    "deadLetterQueuePrefix": ("", "P."),
    "expiryDelay": ("-1", "5", " 7 "),
    "noExpiry": BOOLEANS,
    "sendToDLAOnNoRoute": BOOLEANS,
    "maxSizeBytes": ("-1", "10MB"),
}
IGNORED = (
    'addressSettings."#".redeliveryDelayMultiplier=3',
    'addressSettings."#".maxDeliveryAttempt=1',
    'addressSettings."#".maxDeliveryAttempts=-',
    "addressSettings.a.b.maxDeliveryAttempts=1",
    "addressSettings.#.deadLetterAddress.name=x",
    'addressSetting."#".maxDeliveryAttempts=1',
    'adressSettings."#".maxDeliveryAttempts=1',
    "nobodyKnows=1",
    "maxRedeliveryDelay=1",
)
BAD = (
    "maxDeliveryAttempts=3x",
    "maxDeliveryAttempts=2147483648",
    "redeliveryDelay=5s",
    "redeliveryDelay=",
    "redeliveryDelay=9223372036854775808",
    "redeliveryDelay=9007199254740993g",
    "redeliveryMultiplier=two",
    "expiryDelay=2k",
    "noExpiry=maybe",
)


def _escaped(chance: random.Random, text: str, special: str) -> str:
    """Return a text as it stands in a file of properties."""
    parts = []
    for character in text:
        units = character.encode("utf-16-be")
        codes = [units[index : index + 2].hex() for index in range(0, len(units), 2)]
        if ord(character) > 0xFF or chance.random() < 0.02:
            parts += [f"\\u{code}" for code in codes]
        else:
            parts.append(f"\\{character}" if character in special else character)
        if chance.random() < 0.02:
            parts.append("\\\n  ")
    return "".join(parts)


def _line(chance: random.Random, match: str, surround: str) -> str:
    name = chance.choice(tuple(SETTINGS))
    value = chance.choice(SETTINGS[name])
    is_plain = not set(match) & set(".([") and match
    where = match if is_plain and chance.random() < 0.5 else f"{surround}{match}{surround}"
    top = chance.choice(("addressSettings", "addressSettings", "addressesSettings"))
    key = _escaped(chance, f"{top}.{where}.{name}", " :=\\")
    text = _escaped(chance, value, "\\")
    start = "\\" if text.startswith(" ") else ""
    return chance.choice(("", " ")) + key + chance.choice(("=", ":", " = ", " ")) + start + text


def _base(chance: random.Random, matches: Iterable[str]) -> str:
    entries = "".join(
        f"<address-setting match={quoteattr(match)}>{oracle.make_settings(chance)}"
        "</address-setting>"
        for match in dict.fromkeys(matches)
    )
    return (
        '<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core"><address-settings>'
        f"{entries}</address-settings></core></configuration>"
    )


def _generate(seed: int, folder: Path) -> tuple[oracle.Generated, bool]:
    """Return a file, and whether the broker misreads one of its values in silence."""
    chance = random.Random(seed)
    path = folder / str(seed) / "broker.properties"
    path.parent.mkdir()
    matches = [
        "#",
        *(oracle.make_pattern(chance, SYNTAX, None) for _ in range(chance.randint(1, 6))),
    ]
    surround = chance.choice(('"', '"', '"', "$$"))
    lines = [_line(chance, chance.choice(matches), surround) for _ in range(chance.randint(0, 25))]
    lines += chance.sample(IGNORED, chance.choice((0, 0, 1, 2)))
    lines += chance.sample(("# a comment \\", "! another", "", "  "), 2)
    if chance.random() < 0.1:
        lines.append(f"addressSettings.{surround}#{surround}=-")
    is_bad = chance.random() < 0.05
    if is_bad:
        lines.append(f"addressSettings.{surround}bad{surround}.{chance.choice(BAD)}")
    chance.shuffle(lines)
    if surround != '"':
        lines.insert(0, f"key.surround={surround}")
    path.write_bytes(chance.choice(("\n", "\r\n")).join(lines).encode("latin-1"))
    if chance.random() < 0.6:
        path.with_name("broker.xml").write_text(_base(chance, matches[: len(matches) // 2 + 1]))
    addresses = oracle.make_addresses(chance, SYNTAX, matches)
    cases = [(chance.choice(addresses), chance.choice((1, 2, 3, 5, 12))) for _ in range(CASES)]
    rows = "".join(f"{address}\t{count}\n" for address, count in cases)
    path.with_name(path.name + ".cases").write_text(rows, encoding="utf-8")
    return oracle.Generated(path, cases), is_bad


@pytest.mark.timeout(at_length(3600, otherwise=300))
def test_explain_equals_the_broker(tmp_path: Path) -> None:
    """Settings, action, delay and destination; a value that it misreads in silence is refused."""
    generated = [_generate(seed, tmp_path) for seed in range(FILES)]
    answers = oracle.ask_artemis([one for one, _ in generated])
    compared = refused = 0
    for (one, is_bad), theirs in zip(generated, answers, strict=True):
        written = one.path.read_text("latin-1")
        code, ours = oracle.explain_here(one.path, one.cases)
        assert (code == 78) == (is_bad or theirs is None), written
        if code == 78:
            refused += 1
            continue
        assert theirs is not None
        for case, mine, real in zip(one.cases, ours, theirs, strict=True):
            assert oracle.as_oracle(mine) == real.split("\t")[:5], f"{written}\n{case}"
            compared += 1
    print(f"{compared} cases equal, {refused} files refused")
    assert compared >= 0.8 * FILES * CASES
    assert refused >= 3

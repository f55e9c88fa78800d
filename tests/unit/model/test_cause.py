"""Causes that differ in numbers, ids, addresses, times are one group; other classes never are."""

import random
import string
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amqsidecar.model.cause import (
    BLANK,
    GROUP_MAX,
    KEPT_BYTES_MAX,
    TEXT_MAX,
    _group,
    bounded_cause,
    cause_group,
    root_reason,
)

CASES = [
    block.rpartition("\n= ")
    for block in Path(__file__)
    .with_name("causes.txt")
    .read_text("utf-8")
    .rstrip("\n")
    .split("\n\n")
    if not block.startswith("#")
]

ENVELOPE = (
    "java.lang.Throwable: Delivery[{n}] exceeds redelivery policy limit:RedeliveryPolicy "
    "{{destination = {queue}, maximumRedeliveries = {n}, backOffMultiplier = 5.0}}, cause:{cause}"
)

hexadecimal = st.text("0123456789abcdef", min_size=8, max_size=40)
host = st.from_regex(
    r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,5})?\.(prod|test)\.(com|local)", fullmatch=True
)
name = st.text(string.ascii_letters, min_size=1, max_size=8)
value = st.one_of(
    st.integers().map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str),
    st.uuids().map(str),
    hexadecimal,
    hexadecimal.map(lambda digits: f"0x{digits}"),
    host,
    st.builds("{}:{}".format, host, st.integers(10, 65_535)),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=4).map(lambda address: f"localhost/{address}:61616"),
    st.builds("{}@{}".format, name, host),
    st.builds("https://{}/{}?q={}".format, host, name, name),
    st.builds("/var/{}/{}.xml:{}".format, name, name, st.integers(1, 9_999)),
    st.builds("ID:{}-36211-{}-3:1:1:1:7".format, host, st.integers(10**12, 10**13)),
    st.datetimes().map(lambda at: at.isoformat()),
    st.datetimes().map(lambda at: f"{at.isoformat()}Z[Europe/Berlin]"),
    st.datetimes().map(lambda at: at.strftime("%a %b %d %H:%M:%S UTC %Y")),
    st.datetimes().map(lambda at: at.strftime("%d-%b-%y %I.%M.%S %p").upper()),
    st.builds("'{}'".format, name),
    st.builds('"{}"'.format, name),
)
template = st.sampled_from(
    (
        "java.lang.IllegalStateException: order {} refused",
        "java.io.IOException: {}",
        "com.acme.PayException: payment {} of customer {} failed, try again in {} ms",
        "java.net.ConnectException: Connection refused: {}",
        "com.acme.A: x [{}]; nested exception is com.acme.B: y ({})",
        "no class at all, only {} and {}.",
    )
)
class_name = st.from_regex(r"([a-z][a-z0-9_]{0,8}\.){1,4}[A-Z][A-Za-z0-9_]{0,20}", fullmatch=True)
hostile = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.sampled_from("*\"'‘’“”„«».,:;-+/\\@$[](){}=\n\r\0 0123456789abcdefABCXZ😀\u202e\ud800"),
        st.sampled_from(("\nCaused by: ", "ID:", "://", " Mon ", " Jan", " UTC", "$Proxy", "$$")),
        st.sampled_from(
            ("java.lang.Throwable: ", " redelivery  policy limit:", ", cause:", "a.B2")
        ),
        value,
    ),
    max_size=30,
).map("".join)


@pytest.mark.parametrize(("cause", "_", "group"), CASES)
def test_the_group_of(cause: str, _: str, group: str) -> None:
    assert cause_group(cause.replace("␊", "\n")) == group


@settings(deadline=None)
@given(template, st.lists(value, min_size=6, max_size=6))
def test_numbers_ids_addresses_and_times_do_not_separate_failures(
    cause: str, values: list[str]
) -> None:
    assert cause_group(cause.format(*values[:3])) == cause_group(cause.format(*values[3:]))


@settings(deadline=None)
@given(template, value, st.integers(0, 10**6), class_name)
def test_the_envelope_of_the_broker_does_not_count(
    cause: str, cut: str, number: int, queue: str
) -> None:
    words = cause.format(cut, cut, cut)
    assert cause_group(ENVELOPE.format(n=number, queue=queue, cause=words)) == cause_group(words)


@settings(deadline=None)
@given(class_name, class_name, template)
@example("com.acme.v2.Refused", "com.acme.v3.Refused", "{}")
@example("a.deadbeef.Refused", "a.deadbeee.Refused", "{}")
def test_other_classes_are_other_groups(one: str, other: str, words: str) -> None:
    ours, theirs = (
        {
            cause_group(f"{name}: {words}"),
            cause_group(f"com.acme.Outer: x; nested exception is {name}: {words}"),
            cause_group(f"com.acme.Outer: x\n\tat y\nCaused by: {name}: {words}"),
        }
        for name in (one, other)
    )
    assert one == other or not ours & theirs
    assert all(one in group for group in ours)


@settings(deadline=None)
@given(st.one_of(hostile, st.builds("{}: {}".format, class_name, hostile)), st.randoms())
@example("a.B2: order 17", random.Random(1))
@example("java.lang.Throwable: 1 redelivery policy limit:, cause:x.Y: 2", random.Random(2))
def test_a_text_that_differs_in_digits_only_has_the_group_that_it_would_have_alone(
    text: str, chance: random.Random
) -> None:
    """The second text gets the cached group of the first."""
    other = "".join(chance.choice(string.digits) if one in string.digits else one for one in text)
    assert [cause_group(one) for one in (text, other)] == [_group(one) for one in (text, other)]


@settings(deadline=None)
@given(hostile)
@example("\nCaused by:\nCaused by:")
@example("java.lang.Throwable: x redelivery  policy limit:, cause:y")
@example("a" * 300 + ".B: c.D: " + "x 1" * 200)
def test_any_text_has_a_short_group_that_is_its_own_group(text: str) -> None:
    group = cause_group(text)
    assert 0 < len(group) <= GROUP_MAX
    assert group.isprintable() or not group.isascii()
    assert len(group.splitlines()) == 1
    group.encode()
    assert cause_group(group) == group


@pytest.mark.parametrize(
    "piece",
    [
        *("a", "1", "a.", "a.A", "-", "a-", "'", " 'a", '"', "“", "/", "/a", " /a", "a@a.", "a:"),
        *("1.", "* ", "* Mon ", "* Jan", "-*", "$$", "ID:", "a://", "a b\n", "\nCaused by: "),
        *("java.lang.Throwable:  redelivery policy limit:, cause:", "\0", "😀", "\u202e", "a'a'"),
    ],
)
def test_a_megabyte_of_anything_is_cut_before_it_is_read(piece: str) -> None:
    """Code that reads all of it, or by a pattern that is not linear, exceeds pytest's timeout."""
    text = piece * (1_000_000 // len(piece))
    assert cause_group(text) == cause_group(text[:TEXT_MAX])


def test_what_is_left_of_nothing_has_a_group() -> None:
    assert cause_group("") == cause_group("\0\r\n\u202e") == BLANK


FRAMES = "\n".join(f"\tat com.acme.Frame{number}.run(Frame.java:{number})" for number in range(900))


@settings(max_examples=50)
@given(
    head=st.one_of(hostile, st.builds("{}: {}".format, class_name, st.text())),
    frames=st.integers(0, len(FRAMES)),
    root=st.one_of(st.just(""), st.builds("\nCaused by: {}: {}".format, class_name, st.text())),
    tail=st.integers(0, len(FRAMES)),
)
@example(head="a.B: x", frames=len(FRAMES), root="\nCaused by: c.D: y", tail=0)
@example(head="a.B: x" + "\U0001f600" * 20_000, frames=0, root="\nCaused by: c.D: y", tail=0)
@example(head="Caused by: " * 5_000, frames=0, root="", tail=0)
def test_a_kept_cause_is_bounded_and_keeps_its_group(
    head: str, frames: int, root: str, tail: int
) -> None:
    cause = f"{head}\n{FRAMES[:frames]}{root}\n{FRAMES[:tail]}"
    kept = bounded_cause(cause)
    assert len(kept.encode("utf-8", "surrogatepass")) <= KEPT_BYTES_MAX
    assert bounded_cause(kept) == kept
    if len(cause) <= TEXT_MAX:
        assert cause_group(kept) == cause_group(cause)


def test_a_megabyte_keeps_its_first_and_its_last_class() -> None:
    cause = f"a.Outer: x\n{FRAMES * 30}\nCaused by: b.Root: y\n\tat z"
    kept = bounded_cause(cause)
    assert kept.startswith("a.Outer: x\n\tat com.acme.Frame0")
    assert kept.endswith("\nCaused by: b.Root: y\n\tat z")
    assert " characters are left out here]" in kept


@pytest.mark.parametrize("most", [200, 2_048])
def test_a_short_cause_of_a_row_is_no_longer_than_asked_for(most: int) -> None:
    kept = bounded_cause(f"a.Outer: x\n{FRAMES}\nCaused by: b.Root: y", most)
    assert len(kept.encode()) <= most
    assert kept.startswith("a.Outer: x")
    assert "Caused by: b.Root: y" in kept


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("no stock", "no stock"),
        ("a.b.Outer: no stock", "Outer: no stock"),
        ("a.b.Outer Caused by: c.d.In$ner: no stock", "In$ner: no stock"),
        ("a.b.Outer: x; nested exception is c.d.Inner: y", "Inner: y"),
        ("a.b.Outer at shop.Stock.take Caused by: c.d.Inner", "Inner"),
        ("a.b.Outer at shop.Stock.take", "Outer at shop.Stock.take"),
        ("a.b.Outer: no c.d.Order: 7", "Outer: no c.d.Order: 7"),
        (
            "a.b.Outer: called c.d.Order: 7; Caused by: e.f.Inner: no g.Line: 8",
            "Inner: no g.Line: 8",
        ),
        ("no c.d.Order: 7", "no c.d.Order: 7"),
        ("db.acme.com: refused", "db.acme.com: refused"),
    ],
)
def test_the_root_reason_begins_at_the_class_of_an_exception(line: str, reason: str) -> None:
    assert root_reason(line) == reason

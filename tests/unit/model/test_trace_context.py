"""Trace contexts of producers are read as they are written, and our own follow from ids."""

import pytest

from amqsidecar.model.trace_context import (
    TraceContext,
    is_sampled,
    own_context,
    parse_b3,
    parse_traceparent,
    sampling_limit,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [(f"00-{TRACE}-{SPAN}-01", True), (f"00-{TRACE}-{SPAN}-00", False)],
)
def test_a_traceparent_is_read_and_written_again(text: str, is_sampled: bool) -> None:
    found = parse_traceparent(text)
    assert found == TraceContext(TRACE, SPAN, is_sampled)
    assert found.traceparent == text


def test_a_later_version_may_say_more() -> None:
    assert parse_traceparent(f"01-{TRACE}-{SPAN}-03-more") == TraceContext(TRACE, SPAN)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-٠١",
    ],
)
def test_what_is_no_traceparent_names_no_context(text: str) -> None:
    assert parse_traceparent(text) is None


@pytest.mark.parametrize(
    ("text", "context"),
    [
        (f"{TRACE}-{SPAN}-1-05e3ac9a4f6e3b90", TraceContext(TRACE, SPAN)),
        (f"{TRACE[16:]}-{SPAN}-0", TraceContext("0" * 16 + TRACE[16:], SPAN, is_sampled=False)),
        (f"{TRACE}-{SPAN}", TraceContext(TRACE, SPAN)),
        ("0", None),
        (f"{TRACE}-{SPAN}-2", None),
    ],
)
def test_a_b3_header_is_read(text: str, context: TraceContext | None) -> None:
    assert parse_b3(text) == context


def test_a_message_has_the_same_trace_in_each_process() -> None:
    assert own_context("a-000000000001") == TraceContext(
        "65112705788d106a61a3284d5a5b761d", "3f855719a1839de2"
    )
    assert own_context("half \ud800") != own_context("other \ud800")


def test_about_the_share_is_sampled_all_attempts_or_none() -> None:
    ids = [f"f6a6bc37-{number:012d}" for number in range(20_000)]
    limit = sampling_limit(0.01)
    found = [one for one in ids if is_sampled(one, limit)]
    assert 150 < len(found) < 250
    assert all(is_sampled(one, sampling_limit(1.0)) for one in ids)
    assert not any(is_sampled(one, sampling_limit(0.0)) for one in ids)

"""When a token is obtained again, and when a connection has to log in with the next one."""

import json
import math
from base64 import urlsafe_b64encode

import pytest
from structlog.testing import capture_logs

from amqsidecar.brokers.connection.bearer_tokens import (
    BearerToken,
    BearerTokens,
    lifetime_s,
    token_in_file,
)
from amqsidecar.errors import LinkLost
from support.virtual_clock import VirtualClock


def jwt(claims: object) -> str:
    body = urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (jwt({"exp": 160}), 60.0),
        (jwt({"exp": 40}), -60.0),
        (jwt({}), math.inf),
        (jwt([1]), math.inf),
        (jwt({"exp": "soon"}), math.inf),
        ("opaque", math.inf),
        ("a.\u00e4.c", math.inf),
        ("a.!!!.c", math.inf),
    ],
)
def test_the_end_of_a_token_is_its_exp(token: str, expected: float) -> None:
    assert lifetime_s(token, 100_000) == expected


class Provider:
    """Counts what it gives."""

    def __init__(self, lifetime_s: float) -> None:
        self.lifetime_s = lifetime_s
        self.given = 0
        self.is_down = False

    def obtain(self) -> BearerToken:
        if self.is_down:
            raise LinkLost("the provider is away")
        self.given += 1
        return BearerToken(f"token {self.given}", self.lifetime_s)


def test_a_token_is_renewed_before_it_expires_and_links_follow() -> None:
    """A fifth of its life before, a minute at most."""
    clock, provider = VirtualClock(), Provider(100)
    tokens = BearerTokens(provider.obtain, clock, is_cheap=False)
    assert tokens.secret() == tokens.secret() == "token 1"
    up_s = clock.monotonic_s()
    clock.advance(79_000)
    assert not tokens.outdated(up_s)
    clock.advance(1_000)
    assert tokens.outdated(up_s)
    assert tokens.outdated(up_s), "another link has the old one, too"
    assert not tokens.outdated(clock.monotonic_s())
    assert (tokens.secret(), provider.given) == ("token 2", 2)


def test_a_token_that_the_broker_refuses_is_not_used_again() -> None:
    """By the clock it is good: the machine slept, or the provider has other keys since."""
    clock, provider = VirtualClock(), Provider(3_600)
    tokens = BearerTokens(provider.obtain, clock, is_cheap=False)
    assert tokens.secret() == "token 1"
    tokens.refused()
    assert tokens.secret() == tokens.secret() == "token 2"


def test_a_link_stays_up_while_the_provider_is_away() -> None:
    clock, provider = VirtualClock(), Provider(100)
    tokens = BearerTokens(provider.obtain, clock, is_cheap=False)
    tokens.secret()
    up_s = clock.monotonic_s()
    provider.is_down = True
    clock.advance(80_000)
    with capture_logs() as lines:
        assert not tokens.outdated(up_s)
        assert not tokens.outdated(up_s)
    assert [line["event"] for line in lines] == ["bearer_token_not_renewed"]
    provider.is_down = False
    clock.advance(5_000)
    assert tokens.outdated(up_s)


def test_a_file_is_read_at_each_log_in_and_again_when_its_token_ends() -> None:
    clock = VirtualClock()
    end_s = clock.now_ms() // 1000 + 100
    content = [jwt({"exp": end_s})]
    tokens = token_in_file(lambda: content[0], clock)
    assert tokens.secret() == content[0]
    up_s = clock.monotonic_s()
    clock.advance(90_000)
    assert not tokens.outdated(up_s), "nobody has written the next one yet"
    content[0] = jwt({"exp": end_s + 100})
    clock.advance(5_000)
    assert tokens.outdated(up_s)
    assert tokens.secret() == content[0]
    content[0] = jwt({"exp": end_s + 200})
    assert tokens.secret() == content[0]


def test_a_token_of_unknown_life_is_obtained_at_each_log_in() -> None:
    clock, provider = VirtualClock(), Provider(math.inf)
    tokens = BearerTokens(provider.obtain, clock, is_cheap=False)
    assert tokens.secret() == "token 1"
    up_s = clock.monotonic_s()
    clock.advance(1_000)
    assert tokens.secret() == "token 2", "the first may have expired"
    assert not tokens.outdated(up_s), "else two links would end each other again and again"

"""The mode follows the options, one link after another."""

from types import SimpleNamespace
from typing import cast

import pytest

from amqsidecar.broker import Features, LookSession
from amqsidecar.engine.manual import Manual
from amqsidecar.errors import BrokerRefused, ConfigError, Problem
from amqsidecar.runtime.mode import LiveMode

PAY, ALL, NONE = Manual(["pay.>"]), Manual([">"]), Manual()


def link(*, selects: bool) -> LookSession:
    return cast(LookSession, SimpleNamespace(features=Features(selects_origins=selects)))


def test_a_change_acts_from_the_next_link_on() -> None:
    read = [NONE, ALL, ALL, PAY, ALL]
    mode, renewals = LiveMode(NONE, lambda: read.pop(0)), list[str]()
    mode.begin(link(selects=False))
    mode.follow(renewals.append)
    assert not renewals
    mode.follow(renewals.append)
    mode.follow(renewals.append)
    assert len(renewals) == 1
    assert (mode.now, mode.has_left) == (NONE, False)
    mode.begin(link(selects=False))
    assert (mode.now, mode.has_left) == (ALL, True)
    mode.follow(renewals.append)
    # Why as before: this link can't leave a part of a queue.
    mode.begin(link(selects=False))
    assert mode.now == ALL
    mode.follow(renewals.append)
    mode.begin(link(selects=True))
    assert (mode.now, len(renewals)) == (ALL, 3)


def test_a_first_link_that_cannot_is_refused() -> None:
    mode = LiveMode(PAY)
    mode.follow(pytest.fail)
    with pytest.raises(BrokerRefused):
        mode.begin(link(selects=False))
    mode.begin(link(selects=True))
    assert (mode.now, mode.has_left) == (PAY, False)


def test_options_that_cannot_be_read_leave_the_mode_of_before() -> None:
    def fail() -> Manual:
        raise ConfigError([Problem("redelivery.mode", "expected automatic or manual")])

    mode = LiveMode(ALL, fail)
    mode.follow(pytest.fail)
    assert mode.now == ALL


class ChangingLink:
    """A link that is asked for its features while the options change."""

    def __init__(self, mode: LiveMode, *, selects: bool) -> None:
        self._mode = mode
        self._selects = selects

    @property
    def features(self) -> Features:
        self._mode.follow(lambda _reason: None)
        return Features(selects_origins=self._selects)


@pytest.mark.parametrize("selects", [True, False])
def test_options_that_change_while_a_link_is_asked_wait_for_the_next_link(selects: bool) -> None:
    """Neither do they act unasked, nor are they lost where the link can't do the former ones."""
    read = [NONE, PAY, ALL]
    mode = LiveMode(NONE, lambda: read.pop(0))
    mode.begin(link(selects=False))
    mode.follow(pytest.fail)
    mode.follow(lambda _reason: None)
    mode.begin(cast(LookSession, ChangingLink(mode, selects=selects)))
    assert mode.now == (PAY if selects else NONE)
    mode.begin(link(selects=False))
    assert mode.now == ALL

"""The windows of a destination: when it was out of order for all messages at the same time.

A hidden Markov model of two states finds out when, from the outcomes of re-sends and the windows of
first deaths. Windows without either are inferred from their neighbours.
"""

import numpy as np

from amqsidecar.pipeline.whatif.attempts import Mask, WindowCounts
from amqsidecar.pipeline.whatif.curve import Numbers

_ROUNDS = 12
_LOST_WEIGHT = 0.3
"""A re-send of a message that never recovered weighs less: the message may be at fault."""
_BLOCK = 3
"""Neighbouring windows that are hidden from each other."""
_NEAR = 10
"""A re-send is evidence for this number of windows on each side."""
_OWN_WEIGHT = 4.0
"""Weight of the states beside a window's own re-sends, as a number of re-sends."""


def tried_windows(windows: WindowCounts) -> Mask:
    """Return which windows have re-sends, or are near such windows."""
    tried = np.cumsum(windows.successes + windows.failures + windows.lost)
    at = np.arange(len(tried))
    before = np.where(at > _NEAR, tried[np.maximum(at - _NEAR - 1, 0)], 0.0)
    return np.asarray(tried[np.minimum(at + _NEAR, len(at) - 1)] > before)


def rates_between(windows: WindowCounts) -> Numbers:
    """Return the success rate of each window by the others, without its neighbours.

    A policy meets windows between those of history's re-sends, so a model must predict hidden
    windows.
    """
    block = np.arange(len(windows.deaths)) // _BLOCK % 2
    rates = np.zeros(len(block))
    for hidden in (0, 1):
        is_seen = block != hidden
        seen = WindowCounts(
            windows.first,
            windows.deaths,
            windows.successes * is_seen,
            windows.failures * is_seen,
            windows.lost * is_seen,
        )
        rates = np.where(is_seen, rates, window_rates(seen))
    return rates


def window_rates(windows: WindowCounts) -> Numbers:
    """Return the success rate of each window, from its own attempts and its likely state."""
    works, good, bad = _states(windows)
    likely = works * good + (1 - works) * bad
    tried = windows.successes + windows.failures
    return (windows.successes + _OWN_WEIGHT * likely) / (tried + _OWN_WEIGHT)


def _states(windows: WindowCounts) -> tuple[Numbers, float, float]:
    """Return the probability that a destination works in each window, and both success rates."""
    has_deaths = windows.deaths > 0
    tried = windows.successes + windows.failures
    good, bad = 0.9, 0.02
    deadly = np.array([0.9 * has_deaths.mean() + 0.02, 0.3 * has_deaths.mean() + 0.01])
    deadly = np.clip([deadly[0] + 0.3, deadly[1]], 0.01, 0.97)
    stays = np.array([0.95, 0.98])
    works = np.zeros(len(has_deaths))
    for _ in range(_ROUNDS):
        rates = np.array([bad, good])
        # Why a limit: a window in which the state changes is of neither.
        log_likely = np.clip(
            windows.successes[:, None] * np.log(rates)
            + windows.failures[:, None] * np.log1p(-rates)
            + windows.lost[:, None] * np.log1p(-rates * _LOST_WEIGHT)
            + np.where(has_deaths[:, None], np.log(deadly), np.log1p(-deadly)),
            -60.0,
            0.0,
        )
        works, stays = _smoothed(log_likely, stays)
        good = _rate(works, windows.successes, tried)
        bad = min(_rate(1 - works, windows.successes, tried), good)
        fails = 1 - works
        deadly = np.clip(
            [
                (fails * has_deaths).sum() / max(fails.sum(), 1e-9),
                (works * has_deaths).sum() / max(works.sum(), 1e-9),
            ],
            1e-3,
            1 - 1e-3,
        )
    return works, good, bad


def _rate(weights: Numbers, successes: Numbers, tried: Numbers) -> float:
    share = ((weights * successes).sum() + 0.01) / ((weights * tried).sum() + 0.02)
    return float(np.clip(share, 1e-3, 1 - 1e-3))


def _smoothed(log_likely: Numbers, stays: Numbers) -> tuple[Numbers, Numbers]:
    """Return the probability of the second state in each window, and how likely each state stays.

    The forward and backward recursions of a hidden Markov model.
    """
    emits = np.exp(log_likely - log_likely.max(axis=1, keepdims=True)).tolist()
    s0, s1 = float(stays[0]), float(stays[1])
    forward: list[tuple[float, float]] = []
    a, b = 0.5, 0.5
    for e0, e1 in emits:
        a, b = (a * s0 + b * (1 - s1)) * e0, (a * (1 - s0) + b * s1) * e1
        total = a + b
        a, b = a / total, b / total
        forward.append((a, b))
    works = np.zeros(len(forward))
    stay0 = leave0 = stay1 = leave1 = 0.0
    x, y = 1.0, 1.0
    for at in range(len(forward) - 1, -1, -1):
        a, b = forward[at]
        total = a * x + b * y
        works[at] = b * y / total
        if at:
            e0, e1 = emits[at]
            f, g = forward[at - 1]
            moves = (f * s0 * e0 * x, f * (1 - s0) * e1 * y, g * (1 - s1) * e0 * x, g * s1 * e1 * y)
            all_moves = sum(moves)
            stay0 += moves[0] / all_moves
            leave0 += moves[1] / all_moves
            leave1 += moves[2] / all_moves
            stay1 += moves[3] / all_moves
            x, y = s0 * e0 * x + (1 - s0) * e1 * y, (1 - s1) * e0 * x + s1 * e1 * y
            total = x + y
            x, y = x / total, y / total
    stays = np.array([(stay0 + 5) / (stay0 + leave0 + 6), (stay1 + 5) / (stay1 + leave1 + 6)])
    return works, np.clip(stays, 0.5, 1 - 1e-5)

"""The deliveries of each window under a policy, where each delivery makes others fail.

Messages are masses here, not counted one by one: what fails of a window's re-sends is due again
some windows later. Failures depend on the load of the window, and so the load on itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from amqsidecar.pipeline.whatif.attempts import WINDOW_MS, Usual, WindowCounts
from amqsidecar.pipeline.whatif.curve import Numbers
from amqsidecar.pipeline.whatif.ensemble import Ensemble
from amqsidecar.pipeline.whatif.failure_models.destination import LoadRate
from amqsidecar.pipeline.whatif.failure_models.draws import Draws

MOST_RESENDS: Final = 50
"""Of one message that are followed here."""


@dataclass(frozen=True)
class Stream:
    """Messages of a destination that fail alike and that a policy treats alike.

    Attributes:
        ensemble: their models.
        messages: how many they are.
        delays_ms: of the policy.
    """

    ensemble: Ensemble
    messages: int
    delays_ms: Sequence[int]


@dataclass(frozen=True)
class Arrivals:
    """The first deaths of a group of messages.

    Attributes:
        deaths: by window.
        rate: how likely its re-sends succeed.
        never: share that never succeeds.
        delays_ms: from a death to each re-send.
    """

    deaths: Numbers
    rate: LoadRate
    never: float
    delays_ms: Sequence[float]


def policy_load(streams: Sequence[Stream], windows: WindowCounts, usual: Usual) -> Numbers | None:
    """Return the deliveries of each window of a destination under a policy.

    A group in which failures don't depend on load is taken for one in which they do.

    Returns:
        None = failures depend on load in no group.
    """
    rates = {}
    for at, stream in enumerate(streams):
        for model in stream.ensemble.models:
            if isinstance(model, Draws) and isinstance(model.rate, LoadRate):
                rates[at] = model.rate, model.never
    if not rates:
        return None
    other = next(iter(rates.values()))
    total = sum(one.messages for one in streams)
    groups = [
        Arrivals(
            windows.deaths * one.messages / total,
            *rates.get(at, other),
            [delay + usual.late_ms for delay in one.delays_ms[:MOST_RESENDS]],
        )
        for at, one in enumerate(streams)
    ]
    return load_by_window(groups, usual.back_ms)


def load_by_window(groups: Sequence[Arrivals], back_ms: float) -> Numbers:
    """Return the deliveries of each window.

    Args:
        groups: all messages of a destination.
        back_ms: from a re-send to the next death, usually.
    """
    count, steps = len(groups[0].deaths), max(len(one.delays_ms) for one in groups)
    load: Numbers = np.stack([one.deaths for one in groups]).sum(axis=0, dtype=np.float64)
    # How many windows later each re-send is, and what is due: by window, re-send, and mass. The
    # masses are, of each group, messages that can succeed and then those that can't. A re-send that
    # a group does not have is after the last window.
    waits = np.full((steps, 2 * len(groups)), count + 1.0)
    for place, one in enumerate(groups):
        for at, delay in enumerate(one.delays_ms):
            waits[at, 2 * place : 2 * place + 2] = (delay + (back_ms if at else 0)) / WINDOW_MS
    stays = np.maximum(0.0, 1 - waits)
    due = np.zeros((count, steps + 1, 2 * len(groups)))
    masses = np.stack(
        [one.deaths * share for one in groups for share in (1 - one.never, one.never)], axis=1
    )
    if steps:
        for window in np.flatnonzero(masses.any(axis=1)).tolist():
            _put(due[:, 0], window, waits[0], masses[window])
    for window in range(count):
        if not due[window, :steps].any():
            continue
        first_deaths, sent = load[window], due[window].sum()
        # Why twice: what fails at once is due again in the same window.
        for _ in range(2):
            at_load = np.array([first_deaths + sent])
            fails = np.array([1 - float(one.rate.at(at_load)[0]) for one in groups])
            failing = np.column_stack([fails, np.ones(len(groups))]).ravel()
            now = due[window].copy()
            for step in range(steps - 1):
                now[step + 1] += now[step] * failing * stays[step + 1]
            sent = now[:steps].sum()
        load[window] += sent
        for step in range(steps - 1):
            _put(due[:, step + 1], window, waits[step + 1], now[step] * failing, is_later=True)
    return load


def _put(
    due: Numbers, window: int, waits: Numbers, masses: Numbers, *, is_later: bool = False
) -> None:
    """Add masses to the two windows that each is due between; with `is_later` not to this one."""
    whole = waits.astype(np.int64)
    for shift, share in ((whole, 1 - waits + whole), (whole + 1, waits - whole)):
        is_added = (masses > 0) & (window + shift < len(due))
        if is_later:
            is_added &= shift > 0
        places = np.flatnonzero(is_added)
        due[window + shift[places], places] += masses[places] * share[places]

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
from amqsidecar.pipeline.whatif.failure_models.chance import LoadRate
from amqsidecar.pipeline.whatif.failure_models.draws import Draws

MOST_RESENDS: Final = 50
"""Of one message that are followed here."""


@dataclass(frozen=True)
class Arrivals:
    """The first deaths of a group of messages.

    Attributes:
        deaths: by window.
        rate: how likely its re-sends succeed.
        never: share that never succeeds.
    """

    deaths: Numbers
    rate: LoadRate
    never: float


def policy_load(
    ensembles: Sequence[Ensemble], windows: WindowCounts, delays_ms: Sequence[int], usual: Usual
) -> Numbers | None:
    """Return the deliveries of each window of a destination under a policy.

    A group in which failures don't depend on load is taken for one in which they do.

    Args:
        ensembles: of all groups of messages of the destination.
        windows: of the destination.
        delays_ms: of the policy.
        usual: of the destination.

    Returns:
        None = failures depend on load in no group.
    """
    rates = {}
    for at, ensemble in enumerate(ensembles):
        for model in ensemble.models:
            if isinstance(model, Draws) and isinstance(model.rate, LoadRate):
                rates[at] = model.rate, model.never
    if not rates:
        return None
    other = next(iter(rates.values()))
    total = sum(one.messages for one in ensembles)
    groups = [
        Arrivals(windows.deaths * one.messages / total, *rates.get(at, other))
        for at, one in enumerate(ensembles)
    ]
    delays = [one + usual.late_ms for one in delays_ms[:MOST_RESENDS]]
    return load_by_window(groups, delays, usual.back_ms)


def load_by_window(
    groups: Sequence[Arrivals], delays_ms: Sequence[float], back_ms: float
) -> Numbers:
    """Return the deliveries of each window.

    Args:
        groups: all messages of a destination.
        delays_ms: from a death to each re-send.
        back_ms: from a re-send to the next death, usually.
    """
    count, steps = len(groups[0].deaths), len(delays_ms)
    load: Numbers = np.stack([one.deaths for one in groups]).sum(axis=0, dtype=np.float64)
    # How many windows later each re-send is, and what is due: by window, re-send, and mass. The
    # masses are, of each group, messages that can succeed and then those that can't.
    waits = [(delay + (back_ms if at else 0)) / WINDOW_MS for at, delay in enumerate(delays_ms)]
    due = np.zeros((count, steps + 1, 2 * len(groups)))
    masses = [one.deaths * share for one in groups for share in (1 - one.never, one.never)]
    if steps:
        for window in range(count):
            arriving = np.array([one[window] for one in masses])
            if arriving.any():
                _put(due[:, 0], window, waits[0], arriving)
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
                now[step + 1] += now[step] * failing * _stays(waits[step + 1])
            sent = now[:steps].sum()
        load[window] += sent
        for step in range(steps - 1):
            _put(due[:, step + 1], window, waits[step + 1], now[step] * failing, is_later=True)
    return load


def _stays(wait: float) -> float:
    """Return the share of a mass that is due in the same window."""
    return max(0.0, 1 - wait)


def _put(
    due: Numbers, window: int, wait: float, masses: Numbers, *, is_later: bool = False
) -> None:
    """Add masses to the two windows that they are due between; with `is_later` not to this one."""
    whole = int(wait)
    for shift, share in ((whole, 1 - wait + whole), (whole + 1, wait - whole)):
        if window + shift < len(due) and not (is_later and shift == 0):
            due[window + shift] += masses * share

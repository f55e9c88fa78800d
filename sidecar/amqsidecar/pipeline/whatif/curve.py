"""The distribution of the time until a re-send succeeds.

The model: a message becomes recoverable at one moment after its first death and stays so; a poison
message never does. The moment lies after the last re-send that failed, and not after the one that
succeeded. From these intervals the distribution is estimated by Turnbull's self-consistency
algorithm (the nonparametric maximum-likelihood estimate), on a grid of times that grow by 5 %.
Between two neighbouring re-sends the data do not determine the distribution, and the start value of
the algorithm decides: uniform in the logarithm of time. Times after the last re-send of any message
count as never.
"""

import math
from typing import Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Cells = npt.NDArray[np.int64]

FIRST_EDGE_MS: Final = 100.0
GROWTH: Final = 1.05
CELLS: Final = 404
"""Cell 0 ends at `FIRST_EDGE_MS`, each other 5 % later than the one before: more than a year."""
EDGES_MS: Final[Numbers] = FIRST_EDGE_MS * GROWTH ** np.arange(CELLS, dtype=np.float64)
NEVER: Final = CELLS
"""The cell of messages that have not recovered by the end of the grid."""

_MOST_ROUNDS: Final = 500
_CLOSE: Final = 1e-6
_KNOTS: Final[Numbers] = np.concatenate([[0.0], np.log(EDGES_MS)])


def cell_of(at_ms: Numbers) -> Cells:
    """Return the cells of times; -1 for times before a message's first death.

    Example:
        >>> cell_of(np.array([-1.0, 0.0, 100.0, 104.0, 106.0])).tolist()
        [-1, 0, 0, 1, 2]
    """
    places = np.ceil(np.log(np.maximum(at_ms, FIRST_EDGE_MS) / FIRST_EDGE_MS) / math.log(GROWTH))
    return np.where(at_ms < 0, -1, np.minimum(places, CELLS - 1)).astype(np.int64)


def fit_curve(failed: Cells, recovered: Cells, counts: Numbers) -> Numbers:
    """Return the curve: the share of messages that are recoverable by the end of each cell.

    Args:
        failed: cells of the last failed re-sends; -1 = none.
        recovered: cells of the re-sends that succeeded; `NEVER` = none did.
        counts: number of messages of each pair.
    """
    first = failed + 1
    last = np.maximum(recovered, first)
    known = np.concatenate([failed, recovered[recovered < NEVER]])
    masses = np.zeros(CELLS + 1)
    masses[: known.max() + 1] = 1.0
    masses[NEVER] = 1.0
    masses /= masses.sum()
    total = counts.sum()
    for _ in range(_MOST_ROUNDS):
        below = np.concatenate([[0.0], np.cumsum(masses)])
        weights = counts / np.maximum(below[last + 1] - below[first], 1e-300)
        steps = np.bincount(first, weights, CELLS + 2) - np.bincount(last + 1, weights, CELLS + 2)
        moved = masses * np.cumsum(steps)[:-1] / total
        is_done = np.abs(np.cumsum(moved) - below[1:]).max() < _CLOSE
        masses = moved
        if is_done:
            break
    return np.minimum(np.cumsum(masses[:CELLS]), 1.0)


def share_by(curve: Numbers, at_ms: Numbers) -> Numbers:
    """Return the share that is recoverable by each time."""
    shares = np.interp(np.log(np.maximum(at_ms, 1.0)), _KNOTS, np.concatenate([[0.0], curve]))
    return np.where(at_ms < 0, 0.0, shares)


def not_yet(curve: Numbers, at_ms: Numbers, failed_ms: Numbers, recovered_ms: Numbers) -> Numbers:
    """Return the probability that a message is not recoverable yet, given its history.

    Args:
        curve: of messages of its kind; see `fit_curve`.
        at_ms: times since its first death, in milliseconds.
        failed_ms: its last failed re-send; -1 = none.
        recovered_ms: the re-send that succeeded; infinity = none did.
    """
    # Why whole cells: the curve was fitted to them.
    done_by = np.where(np.isinf(recovered_ms), 1.0, curve[cell_of(recovered_ms)])
    open_share = done_by - np.where(failed_ms < 0, 0.0, curve[cell_of(failed_ms)])
    with np.errstate(divide="ignore", invalid="ignore"):
        likely = (done_by - share_by(curve, at_ms)) / open_share
        # Where the curve has nothing between the two: even in the logarithm, as within a cell.
        span = np.log(recovered_ms) - np.log(np.maximum(failed_ms, 1.0))
        even = (np.log(recovered_ms) - np.log(np.maximum(at_ms, 1.0))) / span
    likely = np.where(open_share > 1e-9, likely, np.where(np.isinf(recovered_ms), 1.0, even))
    return np.where(
        at_ms <= failed_ms, 1.0, np.where(at_ms >= recovered_ms, 0.0, np.clip(likely, 0.0, 1.0))
    )

"""How many of how many, and how sure that is."""

import math

import msgspec

_Z = 1.96


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a whole.

    Attributes:
        part: the number of the part.
        whole: the number of the whole; 0 = nothing is known.
        low: with 95 % confidence the true share is not lower; see `share`.
        high: and not higher.
    """

    part: int
    whole: int
    low: float
    high: float


def share(part: int, whole: int) -> Share:
    """Return a share with its Wilson score interval, which is wide where little was seen.

    Args:
        part: at most `whole` of it counts.
        whole: 0 or more.

    Example:
        >>> two_of_three = share(2, 3)
        >>> round(two_of_three.low, 2), round(two_of_three.high, 2)
        (0.21, 0.94)
    """
    if whole <= 0:
        return Share(part=0, whole=0, low=0.0, high=1.0)
    part = min(part, whole)
    found = part / whole
    weight = 1 + _Z**2 / whole
    middle = (found + _Z**2 / (2 * whole)) / weight
    reach = _Z * math.sqrt(found * (1 - found) / whole + _Z**2 / (4 * whole**2)) / weight
    return Share(
        part=part, whole=whole, low=max(0.0, middle - reach), high=min(1.0, middle + reach)
    )

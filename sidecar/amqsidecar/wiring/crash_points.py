"""Where a test wants this process to end."""

import os
import signal
from collections.abc import Mapping

from amqsidecar.engine import crash_points
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.errors import ConfigError, Problem

CRASH_POINT_VARIABLE = "AMQSIDECAR_CRASH_POINT"
"""For tests: `name:n` kills the process with SIGKILL when the place is reached the n-th time.

`name:n:SIGSTOP` freezes it there instead, until it gets SIGCONT.
"""


_CRASHES = {"": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}


def crash_point_of(environ: Mapping[str, str]) -> CrashPoint:
    """Return where the environment wants this process to end, for tests; nowhere by default.

    Raises:
        ConfigError: it names no such place.
    """
    wish = environ.get(CRASH_POINT_VARIABLE, "")
    if not wish:
        return crash_points.no_crash
    name, _, when = wish.partition(":")
    count, _, how = when.partition(":")
    crash = _CRASHES.get(how)
    names = (*crash_points.ALL_NAMES, *crash_points.JOURNAL_NAMES)
    if name not in names or not count.isdigit() or crash is None:
        known = ", ".join(names)
        expected = f"expected one of {known} and a count, such as stored:3 or stored:3:SIGSTOP"
        raise ConfigError([Problem(CRASH_POINT_VARIABLE, expected)])
    left = int(count)

    def hit(reached: str) -> None:
        nonlocal left
        if reached == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), crash)

    return hit

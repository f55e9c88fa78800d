"""How far the clock of a service is behind the wall clock, kept in its schedule for commands.

After a step ahead the service follows by a twentieth of the time that passes. What a command makes
due now by the wall clock would wait until then.
"""

from typing import Final

from amqsidecar.clock import NOTICED_MS
from amqsidecar.schedule import Schedule

_NAME: Final = "clock_behind_ms"


def keep_clock_gap(schedule: Schedule, behind_ms: int) -> None:
    """Keep by how much the service is behind now; a schedule of one service has it."""
    wanted = b"%d" % behind_ms if behind_ms >= NOTICED_MS else b""
    before = schedule.read_value(_NAME) or b""
    if wanted != before:
        schedule.swap_value(_NAME, before, wanted)


def read_clock_gap(schedule: Schedule) -> int:
    """Return by how much the service is behind, as far as it has said."""
    return int(schedule.read_value(_NAME) or b"0")

"""A service's loop ends by a signal, in whatever it is then."""

import sys
from threading import Thread
from types import FrameType
from typing import Any

from amqsidecar.errors import LinkLost
from amqsidecar.runtime.attempts import Attempts
from amqsidecar.runtime.service import LinkLoop
from amqsidecar.telemetry.health import Health
from support.brokers.one import OneBroker
from support.waiting import PATIENCE_S


class StoppedLoop:
    """A loop that finds no broker, and is stopped between two lines of its own thread.

    Attributes:
        pauses: how often it paused before.
    """

    def __init__(self, line: int) -> None:
        self._loop = LinkLoop("test", Attempts(OneBroker(), 1e-6, 1e-6, lambda: 0.5), Health())
        self._left = line
        self.pauses = 0

    def run(self) -> None:
        """Run until the stop."""
        sys.settrace(self._trace)
        self._loop.run(self._connect)

    def _connect(self) -> None:
        self.pauses += 1
        raise LinkLost("nobody is there")

    def _trace(self, frame: FrameType, event: str, _value: object) -> Any:
        if "structlog" in frame.f_code.co_filename:
            return None
        self._left -= event == "line"
        if event == "line" and not self._left:
            self._loop.stop()
        return self._trace


def test_a_signal_on_any_line_of_a_pause_ends_the_loop() -> None:
    """Python runs the handler between two lines of the main thread, also inside a lock."""
    line = pauses = 0
    while pauses < 3:
        line += 1
        stopped = StoppedLoop(line)
        thread = Thread(target=stopped.run, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"it hangs after {line} lines"
        pauses = stopped.pauses

"""Runs a command and ends it when standard input ends: `python -m amqsidecar.demo.tether COMMAND`.

The parent holds the other end of standard input. However the parent dies, the command ends.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from amqsidecar.demo.waiting import wait_or_kill

_GRACE_S = 10.0


def main(command: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    # Why: Ctrl-C goes to the whole group of the terminal, and the parent ends us in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_parent, args=(process,), daemon=True).start()
    return process.wait()


def _end_with_parent(process: "subprocess.Popen[bytes]") -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    process.terminate()
    wait_or_kill(process, _GRACE_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

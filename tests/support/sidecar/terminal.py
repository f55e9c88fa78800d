"""A person at a terminal: waits for each question, and types its answer."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.waiting import eventually


class Question(str):
    """A part of what a program asks."""

    __slots__ = ()


class Hidden(Question):
    """A question whose answer is not shown."""

    __slots__ = ()


def answered(
    command: Sequence[str],
    answers: Sequence[tuple[Question, str]],
    *,
    folder: Path,
    environment: Mapping[str, str],
    columns: int = 80,
) -> tuple[int, str]:
    """Run a command on a terminal; return its exit code and what was shown.

    Args:
        command: the program and its arguments.
        answers: in the order of the questions.
        folder: where it runs.
        environment: all of its variables.
        columns: width of the terminal.
    """
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    left = list(answers)
    shown = b""
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=inside, stdout=inside, stderr=inside
    ) as process:
        os.close(inside)
        try:
            while True:
                shown += os.read(terminal, 4096)
                if left and left[0][0] in shown.decode(errors="replace"):
                    question, answer = left.pop(0)
                    if isinstance(question, Hidden):
                        # Why: what is typed before the echo is switched off is thrown away.
                        eventually(lambda: _is_echo_off(terminal), what="the echo is off")
                    os.write(terminal, f"{answer}\n".encode())
        except OSError:
            pass  # the program has ended
        finally:
            os.close(terminal)
    return process.returncode, shown.decode(errors="replace").replace("\r", "")


def _is_echo_off(terminal: int) -> bool:
    return not termios.tcgetattr(terminal)[3] & termios.ECHO

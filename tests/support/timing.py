"""Where the time of a test run goes: for each folder wall, processor, waiting, broker starts.

    make test-times
    TEST_TIMES=times.jsonl .venv/bin/pytest tests/oracle
    PYTHONPATH=tests .venv/bin/python -m support.timing [--files] times.jsonl

Each process that runs tests appends one line for each test, so that workers need no arrangement.
Processor time is that of the worker and of every process below it, ended or not.
"""

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from support.brokers.process import Broker

VARIABLE: Final = "TEST_TIMES"
"""Names the file; empty or unset: nothing is measured."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_HEADER: Final = ("", "tests", "wall s", "processor s", "waiting s", "broker starts")


class Spent(NamedTuple):
    """The cost of a test, or of many.

    Attributes:
        wall_s: seconds from begin to end.
        processor_s: seconds of all processors together, of the worker and what it has started.
        waiting_s: seconds of the wall time beyond the processor time. On a busy machine it includes
            waiting for a processor.
        broker_starts: of real brokers.
    """

    tests: int = 0
    wall_s: float = 0.0
    processor_s: float = 0.0
    waiting_s: float = 0.0
    broker_starts: int = 0

    def plus(self, other: "Spent") -> "Spent":
        """Return both together."""
        return Spent(
            self.tests + other.tests,
            self.wall_s + other.wall_s,
            self.processor_s + other.processor_s,
            self.waiting_s + other.waiting_s,
            self.broker_starts + other.broker_starts,
        )

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the numbers as the table prints them."""
        seconds = (f"{value:.0f}" for value in (self.wall_s, self.processor_s, self.waiting_s))
        return (str(self.tests), *seconds, str(self.broker_starts))


class Timing:
    """The pytest plugin that measures one process."""

    def __init__(self, path: Path) -> None:
        """Begin to measure now; tests are appended to the file at `path`."""
        self._path = path
        self._last = _now()
        self._has_begun = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Write down a test, with the fixtures that it set up and took down."""
        if not self._has_begun:
            self._has_begun = True
            self._write("(collecting)", 0, _now())
        result = yield
        self._write(item.nodeid, 1, _now())
        return result

    def _write(self, name: str, tests: int, now: tuple[float, float, int]) -> None:
        wall_s, processor_s, starts = (new - old for new, old in zip(now, self._last, strict=True))
        self._last = now
        waiting_s = max(0.0, wall_s - processor_s)
        spent = Spent(tests, wall_s, processor_s, waiting_s, int(starts))
        line = json.dumps([name, *spent]) + "\n"
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line)


def by_folder(name: str) -> str:
    """Return the folder of a test in `tests/`."""
    return name.removeprefix("tests/").partition("/")[0]


def by_file(name: str) -> str:
    """Return the path of a test's module."""
    return name.partition("::")[0]


def table(lines: Iterable[str], group: Callable[[str], str] = by_folder) -> str:
    """Return a table in Markdown of what was written down, largest wall time first."""
    sums: dict[str, Spent] = defaultdict(Spent)
    for line in lines:
        name, *numbers = json.loads(line)
        sums[group(name)] = sums[group(name)].plus(Spent(*numbers))
    rows = sorted(sums.items(), key=lambda row: -row[1].wall_s)
    total = Spent()
    for _, spent in rows:
        total = total.plus(spent)
    cells = [(name, *spent.cells) for name, spent in [*rows, ("all", total)]]
    return "\n".join(f"| {' | '.join(row)} |" for row in (_HEADER, ("---",) * len(_HEADER), *cells))


def _now() -> tuple[float, float, int]:
    return (time.monotonic(), _processor_s(os.getpid()), Broker.starts)


def _processor_s(pid: int) -> float:
    """Return the processor seconds of a process, of its children that ended, and of all below."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        ticks = map(int, stat.rpartition(")")[2].split()[11:15])
        below = (_processor_s(child) for child in _children(pid))
        return sum(ticks) / _TICKS + sum(below)
    return 0.0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += map(int, (thread / "children").read_text(encoding="ascii").split())
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the table by folder, with `--files` by file."""
    paths = [one for one in arguments if one != "--files"]
    lines = [line for path in paths for line in Path(path).read_text("utf-8").splitlines()]
    print(table(lines, by_file if "--files" in arguments else by_folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

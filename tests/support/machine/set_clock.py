"""A wall clock that a test may set, for one real process: a library that is preloaded into it."""

import subprocess
from collections.abc import Mapping
from pathlib import Path


class WallClock:
    """The wall clock of processes that are started with `environ`; their other clocks are real."""

    def __init__(self, folder: Path) -> None:
        """Compile the library into a folder."""
        library, self._file = folder / "set_clock.so", folder / "clock_set_by_s"
        source = Path(__file__).with_name("set_clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
        self.environ: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "CLOCK_SET_FILE": str(self._file),
        }
        self.set_by(0)

    def set_by(self, seconds: int) -> None:
        """Set the clock this far ahead of the machine's, negative = back."""
        written = self._file.with_suffix(".new")
        written.write_text(str(seconds))
        written.replace(self._file)

"""Fetches programs for the demo and the tests, by Maven coordinates, once per user.

Everything is stored in `${XDG_CACHE_HOME:-~/.cache}/amqsidecar`, one folder each. A folder is built
beside its place and renamed, under a file lock, so every existing folder is complete.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from amqsidecar.errors import SidecarError

CLASSIC: Final = "5.18.3"
"""The version of ActiveMQ Classic that the demo can run."""
ARTEMIS: Final = "2.44.0"
"""The version of Apache Artemis that the demo runs by default."""
DEPENDENCY_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"

ReportLine = Callable[[str], None]
"""Takes one line about a download."""

_REPORT_EVERY_S = 2.0
_TRIES = 2
_PROGRESS = re.compile(r"Progress \(\d+\): ([^\r\n]+)")
_HOW_TO_GET: Final = {
    "java": "install a Java runtime, version 17 or later (Debian: apt-get install "
    "openjdk-17-jre-headless; macOS: brew install openjdk; Windows: run this in WSL)",
    "javac": "install a JDK, version 17 or later (Debian: apt-get install openjdk-17-jdk-headless)",
    "mvn": "install Maven 3 (Debian: apt-get install maven; macOS: brew install maven), or give "
    "an unpacked broker with --broker-home DIR, or a running one with --broker URL",
}


class FetchError(SidecarError):
    """Something could not be fetched, or a program for it is missing or failed."""


def cache_root() -> Path:
    """Return the folder that holds everything fetched; make it when missing."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = Path(base) / "amqsidecar"
    root.mkdir(parents=True, exist_ok=True)
    return root


def distribution(artifact: str, version: str, report: ReportLine) -> Path:
    """Return the unpacked distribution of a broker; fetch it when it is not in the cache.

    Raises:
        FetchError: Maven is missing or can't fetch it.
    """

    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=cache_root()) as download:
            fetch(
                f"{DEPENDENCY_PLUGIN}:copy",
                f"-Dartifact=org.apache.activemq:{artifact}:{version}:zip:bin",
                f"-DoutputDirectory={download}",
                what=f"{artifact} {version}",
                report=report,
            )
            [archive] = Path(download).glob("*.zip")
            with zipfile.ZipFile(archive) as unpacked:
                for member in unpacked.infolist():
                    target = Path(unpacked.extract(member, folder))
                    mode = member.external_attr >> 16
                    if mode and not member.is_dir():
                        target.chmod(mode & 0o777)

    [home] = cached(f"{artifact}-{version}", build).iterdir()
    return home


def fetch(*goals: str, what: str, report: ReportLine) -> None:
    """Run Maven, and report how far its downloads are.

    Raises:
        FetchError: Maven is missing, or failed twice; the text has the end of its output.
    """
    mvn = tool("mvn")
    report(f"downloading {what} by Maven, once for this user")
    for attempt in range(1, _TRIES + 1):
        try:
            _watched([mvn, *goals], what, report)
        except FetchError as error:
            # Why: registries answer "too busy" now and then; Maven keeps finished downloads.
            if attempt == _TRIES:
                raise
            report(f"fetching {what} failed, trying again: {_first_error(str(error))}")
        else:
            return


def _watched(command: Sequence[str], what: str, report: ReportLine) -> None:
    # Why not --batch-mode: Maven shows the progress of a download only without it.
    command = [*command, "-Dstyle.color=never"]
    began_s = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            while _goes_on(process):
                progress = _PROGRESS.findall(_read(output))
                seconds = f"{time.monotonic() - began_s:.0f} s"
                report(f"fetching {what}: {seconds}{f', {progress[-1]}' if progress else ''}")
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if process.returncode != 0:
            code = process.returncode
            raise FetchError(f"{' '.join(command)}: exit code {code}\n{_read(output)[-4000:]}")


def _first_error(output: str) -> str:
    lines = output.splitlines()
    return next((line for line in lines if line.startswith("[ERROR]")), lines[0])


def _goes_on(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait(_REPORT_EVERY_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _read(output: IO[str]) -> str:
    # Why pread: the file's position belongs to the process that writes.
    text = os.pread(output.fileno(), os.fstat(output.fileno()).st_size, 0)
    return text.decode(errors="replace").strip()


def tool(name: str) -> str:
    """Return the path of `java`, `javac` or `mvn`.

    Raises:
        FetchError: it is not on PATH; the text says how to get it.
    """
    found = shutil.which(name)
    if found is None:
        raise FetchError(f"{name} is not on PATH: {_HOW_TO_GET[name]}")
    return found


def cached(name: str, build: Callable[[Path], None]) -> Path:
    """Return the folder `name` of the cache, built by exactly one process when missing."""
    place = cache_root() / name
    if place.exists():
        return place
    with locked(name):
        if not place.exists():
            # Its name is fixed, so the next process removes the remains of a killed process.
            beside = cache_root() / f".{name}.partial"
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(mode=0o700)
            try:
                build(beside)
                beside.rename(place)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
    return place


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Be the only process of this user that does this while the block runs."""
    with (cache_root() / f".{name}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

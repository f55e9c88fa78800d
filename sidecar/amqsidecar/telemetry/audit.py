"""The audit: one line for each act of a person, a program or the sidecar itself.

A line is JSON with field names of ECS (Elastic Common Schema); ours are below `amqsidecar`. It is
written after the act, so a crash may lose the last line. The store loses no operation and no actor.
"""

import json
import logging
import os
import sys
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from glob import escape
from ipaddress import ip_address
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.private_files import open_private

STDOUT: Final = "stdout"
STDERR: Final = "stderr"

logger: Final = logging.getLogger("amqsidecar.audit")
"""Its messages are the lines."""
_log: Final = logging.getLogger("amqsidecar.log")


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """The person or program that acts.

    Attributes:
        name: as its way of log-in calls it; may look like anything.
        way: how it proved the name: token, password, proxy, oidc; local = loopback without log-in;
            uid = the operating system's user of a command; rule = the sidecar by itself.
        address: source address; "" = this machine, or unknown.
        user_id: uid of the operating system; "" = none.
    """

    name: str
    way: str
    address: str = ""
    user_id: str = ""


SIDECAR: Final = Actor(name="amqsidecar", way="rule")

_actor: Final = ContextVar("actor", default=SIDECAR)


class ActKind(StrEnum):
    """The kinds of acts."""

    CHANGE = "change"
    READ = "read"
    """Of the content of messages."""
    LOG_IN = "log-in"
    LOG_OUT = "log-out"


_ECS: Final = {
    ActKind.CHANGE: {"event.category": ["database"], "event.type": ["change"]},
    ActKind.READ: {"event.category": ["database"], "event.type": ["access"]},
    ActKind.LOG_IN: {"event.category": ["authentication"], "event.type": ["start"]},
    ActKind.LOG_OUT: {"event.category": ["authentication"], "event.type": ["end"]},
}


class _Handler(WatchedFileHandler):
    """Appends to a file that may be rotated; a line that can't be written goes to the log."""

    def __init__(self, target: str, *, delay: bool, keep_days: int) -> None:
        super().__init__(target, delay=delay)
        self._keep_days = keep_days
        self._day: date | None = None

    def emit(self, record: logging.LogRecord) -> None:
        today = datetime.now(UTC).date()
        if self._keep_days and today != self._day:
            self._day = today
            try:
                keep_latest_days(Path(self.baseFilename), self._keep_days, today)
            except OSError:
                _log.exception("audit_not_rotated")
        super().emit(record)

    def _open(self) -> Any:
        return open(
            self.baseFilename,
            "a",
            encoding="utf-8",
            opener=lambda path, flags: open_private(Path(path), flags),
        )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - of the library
        _log.error("audit_not_written: %s", record.getMessage(), exc_info=True)


def keep_latest_days(path: Path, days: int, today: date) -> None:
    """Rename a file that ends on an earlier day to that day; remove files older than `days`.

    It removes none where all are older.

    If the process dies inside, the file has both names; its lines stay.

    Raises:
        OSError: the folder does not allow it.
    """
    with suppress(FileNotFoundError):
        last = datetime.fromtimestamp(path.stat().st_mtime, UTC).date()
        if last < today:
            with suppress(FileExistsError):
                # Why a link: renaming would replace a file that another process has just named so.
                os.link(path, f"{path}.{last}")
                path.unlink()
    found = {one: date.fromisoformat(one.suffix[1:]) for one in days_of(path)}
    before = today - timedelta(days)
    # Why not all: the clock may be far ahead for a moment; if not, they go a day later.
    if any(day >= before for day in found.values()):
        for one, day in found.items():
            if day < before:
                one.unlink(missing_ok=True)


def days_of(path: Path) -> list[Path]:
    """Return the files of earlier days, the newest first."""
    found = path.parent.glob(f"{escape(path.name)}.*")
    return sorted((one for one in found if _is_day(one.suffix[1:])), reverse=True)


def _is_day(text: str) -> bool:
    try:
        return str(date.fromisoformat(text)) == text
    except ValueError:
        return False


def open_audit(target: str, *, is_needed: bool = True, keep_days: int = 0) -> None:
    """Send audit lines to a stream of this process, or append them to a file.

    Args:
        target: `stderr`, `stdout` or the path of a file.
        is_needed: False = a file is opened with the first line only.
        keep_days: of a file; 0 = whoever rotates it decides.

    Raises:
        ConfigError: the file is needed and can't be written to.
    """
    streams: dict[str, TextIO] = {STDERR: sys.stderr, STDOUT: sys.stdout}
    handler: logging.Handler
    try:
        if target in streams:
            handler = logging.StreamHandler(streams[target])
        else:
            handler = _Handler(target, delay=not is_needed, keep_days=keep_days)
    except OSError as error:
        what = f"{target} can't be written to: {error.strerror or error}"
        raise ConfigError([Problem("log.audit", what)]) from error
    for old in logger.handlers[:]:
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def enter(actor: Actor) -> None:
    """Name the actor of all further acts in this context (a request, a command)."""
    _actor.set(actor)


def actor() -> Actor:
    """Return the actor of this context; the sidecar itself where nobody entered."""
    return _actor.get()


def write(
    action: str,
    kind: ActKind = ActKind.CHANGE,
    *,
    by: Actor | None = None,
    is_success: bool = True,
    reason: str = "",
    fields: dict[str, Any] | None = None,
    **ours: Any,
) -> None:
    """Write the line of one act.

    Args:
        action: such as `retry`.
        by: None = the actor of this context.
        is_success: False = it was refused.
        reason: why, in the words of a person or of the refusal.
        fields: more of ECS.
        ours: below `amqsidecar`: such as selection, count, operation, before, after. None and ""
            are left out.
    """
    who = by or actor()
    line: dict[str, Any] = {
        "@timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "log.level": "info" if is_success else "warning",
        "message": f"{who.name} ({who.way}): {action}",
        "ecs.version": "8.17.0",
        "event.dataset": "amqsidecar.audit",
        "event.kind": "event",
        **_ECS[kind],
        "event.action": action,
        "event.outcome": "success" if is_success else "failure",
        "event.reason": reason,
        "user.name": who.name,
        "user.id": who.user_id,
        "source.address": who.address,
        "source.ip": who.address if _is_ip(who.address) else "",
        **(fields or {}),
        "amqsidecar.way": who.way,
        **{f"amqsidecar.{name}": value for name, value in ours.items()},
    }
    given = {name: value for name, value in line.items() if value not in (None, "")}
    # Why ASCII: names and reasons may hold control characters.
    logger.info("%s", json.dumps(msgspec.to_builtins(given)))


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True

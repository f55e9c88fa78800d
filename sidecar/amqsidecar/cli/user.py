"""The user of the command line."""

import os
import pwd
from pathlib import Path
from typing import Final

from amqsidecar.config.schema import Config
from amqsidecar.telemetry import audit

SERVICE: Final = Path("/proc/1")
"""The first process, which in a container is the service."""


def cli_actor() -> str:
    """Return the name of this person, as events and operations keep it."""
    return f"cli:{_user_name()}"


def enter_as_user(config: Config, *, is_needed: bool) -> None:
    """Audit this command's acts under the operating system's user.

    Args:
        config: names the file of the audit. Where it is a stream, that is the one of the service
            in this container, else the standard error of this command.
        is_needed: False = the command may not write any audit line.

    Raises:
        ConfigError: the file is needed and can't be written to.
    """
    audit.open_audit(_target(config.log.audit), is_needed=is_needed)
    audit.enter(audit.Actor(name=_user_name(), way="uid", user_id=str(os.getuid())))


def _target(target: str) -> str:
    """Return where the lines of a command go, which may not be mixed with its output."""
    descriptors = {audit.STDOUT: 1, audit.STDERR: 2}
    if target not in descriptors:
        return target
    path = SERVICE / "fd" / str(descriptors[target])
    try:
        is_service = b"amqsidecar" in (SERVICE / "cmdline").read_bytes()
    except OSError:
        is_service = False
    # Why no socket: nobody can open it a second time.
    can_be_opened = os.access(path, os.W_OK) and not path.is_socket()
    return str(path) if is_service and can_be_opened else audit.STDERR


def _user_name() -> str:
    """Return the name of the process's user; no variable of the environment changes it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())

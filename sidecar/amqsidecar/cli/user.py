"""The user of the command line."""

import os
import pwd

from amqsidecar.config.schema import Config
from amqsidecar.telemetry import audit


def cli_actor() -> str:
    """Return the name of this person, as events and operations keep it."""
    return f"cli:{_user_name()}"


def enter_as_user(config: Config, *, is_needed: bool) -> None:
    """Audit what this command does as an act of the operating system's user.

    Args:
        config: names the file of the audit; a stream of the service is no command's.
        is_needed: False = the command may turn out to read only what needs no line.

    Raises:
        ConfigError: the file is needed and can't be written to.
    """
    if config.log.audit not in (audit.STDOUT, audit.STDERR):
        audit.open_audit(config.log.audit, is_needed=is_needed)
    audit.enter(audit.Actor(name=_user_name(), way="uid", user_id=str(os.getuid())))


def _user_name() -> str:
    """Return the name of the process's user; no variable of the environment changes it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())

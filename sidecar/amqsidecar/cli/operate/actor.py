"""The user of the command line."""

import getpass


def cli_actor() -> str:
    """Return the name of this person, as events and operations keep it."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli:unknown"

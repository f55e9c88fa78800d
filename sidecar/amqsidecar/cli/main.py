"""The command `amqsidecar`: finds the command that is asked for, and turns errors into exit codes.

0 done · 1 nothing matched, or the demo failed · 2 wrong usage · 78 wrong configuration ·
69 broker, store or journal not reachable · 70 a fault of ours.
"""

import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from amqsidecar import __version__
from amqsidecar.cli.lazy_group import lazy_group
from amqsidecar.errors import (
    BrokerError,
    ConfigError,
    DemoFailed,
    JournalError,
    NothingFound,
    StoreError,
)
from amqsidecar.model.shown import shown, shown_line

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNAVAILABLE: Final = 69
EXIT_SOFTWARE: Final = 70
EXIT_CONFIG: Final = 78

COMMANDS: Final = {
    "demo": ("demo_command", "demo"),
    "init": ("init_command", "init"),
    "run": ("run_command", "run"),
    "listen": ("listen_command", "listen"),
    "explain": ("explain_command", "explain"),
    "doctor": ("doctor_command", "doctor"),
    "import": ("import_command", "import_policy"),
    "status": ("status_command", "status"),
    "groups": ("groups_command", "list_groups"),
    "note": ("operate.note_command", "note"),
    "list": ("list_command", "list_rows"),
    "show": ("show_command", "show"),
    "edit": ("operate.edit_command", "edit"),
    "retry": ("operate.commands", "retry"),
    "give-up": ("operate.commands", "give_up"),
    "hold": ("operate.commands", "hold"),
    "release": ("operate.commands", "release"),
    "redirect": ("operate.commands", "redirect"),
    "discard": ("operate.commands", "discard"),
    "take-back": ("operate.commands", "take_back"),
    "operations": ("operate.operations_command", "list_operations"),
    "operation": ("operate.operations_command", "operation"),
    "backup": ("backup_command", "backup"),
    "access": ("access_command", "app"),
    "journal": ("journal.journal_command", "app"),
    "pipeline": ("pipeline.pipeline_command", "app"),
}
"""Each command, and the module and function that it is; imported when it is asked for."""

ALIASES: Final = {"cancel": "give-up"}
"""Former names, which scripts go on using."""

app = typer.Typer(
    name="amqsidecar",
    cls=lazy_group(COMMANDS, aliases=ALIASES),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        sys.stdout.write(f"amqsidecar {__version__}\n")
        raise typer.Exit


@app.callback()
def amqsidecar(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Redelivers the dead letters of ActiveMQ Classic and Artemis by the broker's own rules.

    Exit codes: 0 done, 1 nothing matched, 2 wrong usage, 78 wrong configuration, 69 not
    done for now (broker, store or journal not reachable; too many messages came back), 70 a fault
    of amqsidecar.
    """


def run_command_line(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: without the program's name; None = those of this process.
    """
    try:
        app(arguments, prog_name="amqsidecar")
    except SystemExit as end:
        # Why: the library says 1 when the reader of our output left early, as `head` does.
        return end.code if isinstance(end.code, int) and end.code != 1 else EXIT_DONE
    except ConfigError as error:
        _say("wrong configuration:", *(f"  {problem}" for problem in error.problems))
        return EXIT_CONFIG
    except (BrokerError, JournalError, StoreError) as error:
        _say(str(error))
        return EXIT_UNAVAILABLE
    except (DemoFailed, NothingFound) as error:
        _say(str(error))
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001 - the last place where a fault can be told
        import traceback  # noqa: PLC0415 - not needed otherwise

        sys.stderr.write(shown(traceback.format_exc()))
        _say(f"a fault of amqsidecar: {type(error).__name__}: {error}")
        return EXIT_SOFTWARE
    return EXIT_DONE


def _say(*lines: str) -> None:
    sys.stderr.write("amqsidecar: " + "\n".join(map(shown_line, lines)) + "\n")


def main() -> None:
    """Run the command of this process and leave."""
    if os.getpid() == 1:
        # Why: from a container's first process the kernel keeps what it does not handle.
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    code = run_command_line()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Why: the interpreter would try again at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)

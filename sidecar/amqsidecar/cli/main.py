"""The command `amqsidecar`: finds the command that is asked for, and turns errors into exit codes.

0 done · 1 nothing matched, or the demo failed · 2 wrong usage · 78 wrong configuration ·
69 broker, store or journal not reachable · 70 a fault of ours.
"""

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from amqsidecar import __version__
from amqsidecar.cli.loading import LazyCommand
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

_SUMMARIES: Final = {
    "demo_command:demo": "Watch real messages die, wait and come back.",
    "init_command:init": "Write amqsidecar.yaml for a broker, then run `doctor` with it.",
    "run_command:run": "Run the service until SIGTERM.",
    "serve_commands:listen": "Proxy an acceptor and save messages that consumers give up.",
    "serve_commands:fleet": "Serve one console and API over many sidecars until SIGTERM.",
    "serve_commands:mcp": "Serve tools for assistants (Model Context Protocol).",
    "explain_command:explain": "Print the rules' decision on a dead letter.",
    "doctor_command:doctor": "Check broker and configuration; print a fix for each fault.",
    "import_command:import_": "Turn a broker's configuration into the equivalent YAML policy.",
    "status_command:status": "Print waiting messages by destination and state.",
    "groups_command:groups": "Print failures by destination and cause.",
    "operate.note_command:note": "Write a note on a group of failures, and print its notes.",
    "operate.mark_command:mark": "Mark this moment, such as a deployment, and print the markers.",
    "list_command:list_": "List messages by number, exhausted ones after all others.",
    "show_command:show": "Show a message: where it waits, and all that happened to it.",
    "operate.edit_command:edit": "Edit a message and re-send it now.",
    "operate.commands:retry": "Redeliver now, held and parked messages too.",
    "operate.commands:give_up": "Send to the final dead-letter queue now.",
    "operate.commands:hold": "Keep messages until a person or an event releases them.",
    "operate.event_command:event": "Report an event outside: what waits for it is released.",
    "operate.commands:release": "Release held messages.",
    "operate.commands:redirect": "Send to another destination now.",
    "operate.commands:discard": "Drop messages; for an hour `operation undo` puts them back.",
    "operate.commands:take_back": "Take exhausted messages out of their final queue.",
    "operate.operations_command:operations": "List operations, the newest first.",
    "operate.operations_command:operation": "Show, pause, resume, cancel or undo an operation.",
    "backup_command:backup": "Copy the schedule into a file, also while the service runs.",
    "schedule_command:schedule": "Move the schedule to another store.",
    "access_command:access": "Make lines for the files that grant access to console and API.",
    "journal_command:journal": "Look after the journal: the history as Parquet files.",
    "pipeline_command:pipeline": "Turn the journals of sidecars into answers, with Spark.",
}
_COMMANDS: Final = [LazyCommand(*listed) for listed in _SUMMARIES.items()]
COMMANDS: Final = {str(command.name): command for command in _COMMANDS}
"""Each command, which is imported when it is asked for."""

ALIASES: Final = {"cancel": "give-up"}
"""Former names, which scripts go on using."""


class _Commands(TyperGroup):
    """Finds a command by name, and makes every character of a usage error visible."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes | {"commands": COMMANDS})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, ALIASES.get(cmd_name, cmd_name))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = shown_line(error.message)
            raise


app = typer.Typer(
    name="amqsidecar",
    cls=_Commands,
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
        arguments: without the program's name; None = this process's arguments.
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
        sys.stderr.write(shown(traceback.format_exc()))
        _say(f"a fault of amqsidecar: {type(error).__name__}: {error}")
        return EXIT_SOFTWARE
    return EXIT_DONE


def _say(*lines: str) -> None:
    sys.stderr.write("amqsidecar: " + "\n".join(map(shown_line, lines)) + "\n")


def main() -> None:
    """Run the command of this process and leave."""
    if os.getpid() == 1:
        # Why: the kernel keeps signals without a handler from a container's first process.
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    code = run_command_line()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Why: the interpreter would try again at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    # Why not imported: only a service has workers.
    if getattr(sys.modules.get("amqsidecar.runtime.worker"), "LEFT", ()):
        # Quirk (PyArrow): a thread that is in it when the interpreter ends aborts the process.
        os._exit(code)
    sys.exit(code)

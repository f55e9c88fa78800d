"""`amqsidecar run`: the service."""

from typing import Annotated

import typer

from amqsidecar.cli.lazy_group import work_of
from amqsidecar.cli.options import ConfigFile, Sets


def run(
    config_file: ConfigFile = None,
    sets: Sets = None,
    observe: Annotated[
        bool,
        typer.Option(
            "--observe",
            help="Only look, with a user that may only browse: take and send nothing.",
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Only check options, rules, gates and files; print all faults; open no "
            "connection.",
        ),
    ] = False,
    connect: Annotated[
        bool,
        typer.Option(
            "--connect", help="With --check: examine the broker, too, as `amqsidecar doctor` does."
        ),
    ] = False,
    await_files: Annotated[
        bool,
        typer.Option(
            "--await-files", help="With --check: report missing files, and check the rest."
        ),
    ] = False,
) -> None:
    """Run the service until SIGTERM.

    It then finishes its cycle and leaves within seconds.
    """
    run_or_check = work_of("run_work:run_or_check")
    run_or_check(config_file, sets, observe=observe, check=check, awaits_files=await_files)
    if connect:
        work_of("doctor_command:doctor")(config_file, sets)

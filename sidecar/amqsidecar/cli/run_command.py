"""`amqsidecar run`: the service."""

from typing import Annotated

import typer

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
    from amqsidecar.cli.run_work import run_or_check  # noqa: PLC0415 - help needs no work

    run_or_check(config_file, sets, observe=observe, check=check, awaits_files=await_files)
    if connect:
        from amqsidecar.cli.doctor_command import doctor  # noqa: PLC0415 - as above

        doctor(config_file, sets)

"""`amqsidecar run`: the service."""

from typing import Annotated

import typer

from amqsidecar.cli.lazy_group import work_of
from amqsidecar.cli.options import ConfigFile, Sets

Observe = Annotated[
    bool,
    typer.Option(
        "--observe",
        help="Only observe: log and count decisions, take and send nothing, use no store.",
    ),
]
CheckOnly = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Only check options, rules, gates and files; print all faults; open no connection.",
    ),
]
AwaitFiles = Annotated[
    bool,
    typer.Option(
        "--await-files",
        help="With --check: report missing files, and check the rest.",
    ),
]


def run(
    config_file: ConfigFile = None,
    sets: Sets = None,
    observe: Observe = False,
    check: CheckOnly = False,
    await_files: AwaitFiles = False,
) -> None:
    """Run the service until SIGTERM.

    It then finishes its cycle and leaves within seconds.
    """
    run_or_check = work_of("run_work:run_or_check")
    run_or_check(config_file, sets, observe=observe, check=check, awaits_files=await_files)

"""`amqsidecar note`: notes on a group of failures."""

from typing import Annotated

import typer

from amqsidecar.cli.opened import opened_schedule
from amqsidecar.cli.options import (
    ConfigFile,
    FilterDestination,
    FilterGroup,
    FilterNumber,
    Output,
    OutputFormat,
    Sets,
    canonical,
    duration_ms,
    read_config,
)
from amqsidecar.cli.printing import print_json, print_line, say
from amqsidecar.cli.user import cli_actor
from amqsidecar.operations.words import clock_time, one_line


def note(
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT",
            help="Text of the note; without it the command only reads.",
            show_default=False,
        ),
    ] = None,
    *,
    group: FilterNumber = None,
    destination: FilterDestination = None,
    cause_group: FilterGroup = None,
    owner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help='Owner of the group from now on; "" = none.',
            show_default=False,
        ),
    ] = None,
    snooze: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Hide the group on the first screen for this time, such as 8h, or until its "
            "next death; 0s = show it again.",
            show_default=False,
        ),
    ] = None,
    config_file: ConfigFile = None,
    sets: Sets = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Write a note on a group of failures, and print its notes.

    The latest is first; it names the owner of the group, and the end of its snooze.

    \b
    JSON: [{"destination", "cause_group", "at_ms", "author", "text", "owner", "snoozed_until_ms"}]
    """  # noqa: D301 - the backspace makes the library keep the lines
    config = read_config(config_file, sets)
    from amqsidecar.clock import SystemClock  # noqa: PLC0415 - keeps `--help` fast
    from amqsidecar.model.schedule import RowFilter  # noqa: PLC0415 - as above
    from amqsidecar.operations.act import ActionRefused  # noqa: PLC0415 - as above
    from amqsidecar.operations.failures.find_group import the_group  # noqa: PLC0415 - as above
    from amqsidecar.operations.failures.notes import write_note  # noqa: PLC0415 - as above

    if (group is None) == (cause_group is None):
        raise typer.BadParameter("give the group: --group N, or --cause-group TEXT")
    name = canonical(destination, "--destination")
    snooze_ms = None if snooze is None else duration_ms(snooze, "--snooze", least_ms=0)
    is_written = (text, owner, snooze) != (None, None, None)
    with opened_schedule(config, read_only=not is_written) as store:
        place = the_group(store, RowFilter(destination=name), part=cause_group, number=group)
        if is_written:
            try:
                now_ms = SystemClock().now_ms()
                write_note(
                    store,
                    place,
                    text or "",
                    cli_actor(),
                    now_ms,
                    owner=owner,
                    snooze_ms=snooze_ms,
                )
            except ActionRefused as error:
                raise typer.BadParameter(str(error)) from error
        notes = store.notes(*place)
    if output is OutputFormat.JSON:
        print_json(notes)
        return
    if not notes:
        say("no notes on this group")
    for one in notes:
        print_line(f"{clock_time(one.at_ms)}  {one_line(one.author)}: {one_line(one.text)}")
    if notes and notes[0].owner:
        print_line(f"owner: {one_line(notes[0].owner)}")
    if notes and notes[0].snoozed_until_ms:
        until = clock_time(notes[0].snoozed_until_ms)
        print_line(f"snoozed until {until}, or until the next death of it")

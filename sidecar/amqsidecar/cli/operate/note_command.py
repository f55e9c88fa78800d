"""`amqsidecar note`: notes on a group of failures."""

from typing import Annotated

import typer

from amqsidecar.cli.opened import opened_schedule
from amqsidecar.cli.operate.operations_command import usage_errors
from amqsidecar.cli.options import (
    FilterDestination,
    FilterGroup,
    FilterNumber,
    Output,
    OutputFormat,
    duration_ms,
)
from amqsidecar.cli.printing import print_json, print_line, say
from amqsidecar.cli.reading import canonical, configured
from amqsidecar.cli.user import cli_actor
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.errors import NothingFound
from amqsidecar.model.failure import GroupNote
from amqsidecar.model.schedule import RowFilter
from amqsidecar.operations.failures.find_group import the_group
from amqsidecar.operations.failures.former_groups import Place
from amqsidecar.operations.failures.notes import read_notes, write_note
from amqsidecar.operations.references import list_groups_of
from amqsidecar.operations.words import clock_time, one_line
from amqsidecar.schedule import Schedule


@configured
def note(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID] [TEXT]",
            help="Number of the group, or id of a message of it that waits; not with --group and "
            "--cause-group. Text of the note; without it the command only reads.",
        ),
    ] = None,
    *,
    group: FilterNumber = None,
    destination: FilterDestination = None,
    cause_group: FilterGroup = None,
    owner: Annotated[
        str | None, typer.Option(metavar="NAME", help='Owner of the group from now on; "" = none.')
    ] = None,
    snooze: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Hide the group on the first screen for this time, such as 8h, or until its "
            "next death; 0s = show it again.",
        ),
    ] = None,
    mute: Annotated[
        bool | None,
        typer.Option(
            "--mute/--unmute",
            help="Hide the group on the first screen until more messages die of it than now.",
        ),
    ] = None,
    merge_into: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help="Make the group a part of another one of its destination, by number or text; "
            '"" = separate the group that --cause-group names whole.',
        ),
    ] = None,
    config: Config,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Write a note on a group of failures, and print its notes.

    The latest is first; it names the owner of the group, its snooze and its mute.

    \b
    JSON: [{"destination", "cause_group", "at_ms", "author", "text", "owner", "snoozed_until_ms",
    "muted_deaths", "merged_into"}]
    """  # noqa: D301 - the backspace makes the library keep the lines
    reference, text = _read_words(words or [], is_named=not (group is None and cause_group is None))
    if [reference, group, cause_group].count(None) != 2:
        raise typer.BadParameter("give the group: ID, --group N, or --cause-group TEXT")
    name = canonical(destination, "--destination")
    snooze_ms = None if snooze is None else duration_ms(snooze, "--snooze", least_ms=0)
    is_written = (text, owner, snooze, mute, merge_into) != (None,) * 5
    with opened_schedule(config, read_only=not is_written) as store, usage_errors():
        if reference is not None:
            name, cause_group = _find_place(store, reference)
        place = the_group(store, RowFilter(destination=name), part=cause_group, number=group)
        if merge_into:
            rows = RowFilter(destination=place[0])
            _, merge_into = the_group(store, rows, part=merge_into)
        elif merge_into == "" and cause_group:
            place = place[0], cause_group
        if is_written:
            write_note(
                store,
                place,
                text or "",
                cli_actor(),
                SystemClock().now_ms(),
                owner=owner,
                snooze_ms=snooze_ms,
                is_muted=mute,
                merge_into=merge_into,
            )
        notes = read_notes(store, place)
    if output is OutputFormat.JSON:
        print_json(notes)
        return
    _print_notes(notes)


def _read_words(words: list[str], *, is_named: bool) -> tuple[str | None, str | None]:
    """Return the id and the text; an option names the group in place of the id."""
    if len(words) > (1 if is_named else 2):
        raise typer.BadParameter('give the text as one argument, in quotes: note ID "TEXT"')
    given = dict(enumerate(words, start=1 if is_named else 0))
    return given.get(0), given.get(1)


def _find_place(store: Schedule, reference: str) -> Place:
    places = list_groups_of(store, reference, store.state())
    if len(places) != 1:
        many = "several groups" if places else "no group, and no message that waits"
        raise NothingFound(f"{reference} names {many}: give --group N, as `groups` prints it")
    return places[0]


def _print_notes(notes: list[GroupNote]) -> None:
    if not notes:
        say("no notes on this group")
    for one in notes:
        print_line(f"{clock_time(one.at_ms)}  {one_line(one.author)}: {one_line(one.text)}")
        if one.merged_into:
            print_line(f"  {one_line(one.cause_group)} is a part of {one_line(one.merged_into)}")
    if notes and notes[0].owner:
        print_line(f"owner: {one_line(notes[0].owner)}")
    if notes and notes[0].snoozed_until_ms:
        until = clock_time(notes[0].snoozed_until_ms)
        print_line(f"snoozed until {until}, or until the next death of it")
    if notes and notes[0].muted_deaths is not None:
        print_line(f"muted until clearly more than {notes[0].muted_deaths} an hour die of it")

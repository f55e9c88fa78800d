"""Options of the commands that act on waiting messages: selection, reason and pace."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from amqsidecar.cli.options import (
    INT_MAX,
    Chosen,
    FilterContains,
    FilterProperty,
    Output,
    OutputFormat,
    Reason,
    duration_ms,
)
from amqsidecar.cli.reading import read_selection
from amqsidecar.cli.times import next_time_ms
from amqsidecar.model.operation import CAREFUL, OperationPace, Selection
from amqsidecar.operations.select import IDS_MAX


@dataclass(frozen=True, kw_only=True)
class Asked(Chosen):
    """The values of the options; each command has the options that apply to it."""

    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Row numbers or redelivery ids.")
    ] = None
    ids_from: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV or Parquet with a column redelivery_id: the messages of these ids.",
        ),
    ] = None
    one_per_message_id: Annotated[
        bool,
        typer.Option(
            "--one-per-message-id",
            help="Of the selected messages with the same message id only the first, such as one of "
            "the copies for several subscriptions.",
        ),
    ] = False
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=IDS_MAX,
            help="Exactly N of the selected messages, the oldest first.",
        ),
    ] = None
    to: Annotated[
        str, typer.Option(metavar="NAME", help="Destination, such as queue://orders.fixed.")
    ] = ""
    until: Annotated[
        str,
        typer.Option(
            metavar="EVENT",
            help="Until this event outside is reported (`amqsidecar event`), such as invoice-4711.",
        ),
    ] = ""
    at_most: Annotated[
        str, typer.Option(metavar="TIME", help="The longest wait for the event.")
    ] = "1d"
    properties: FilterProperty = None
    contains: FilterContains = ""
    everything: Annotated[
        bool, typer.Option("--all", help="Select everything; not with another filter.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the effect without changing anything.")
    ] = False
    reason: Reason = ""
    detach: Annotated[
        bool, typer.Option("--detach", help="The running service does it; return at once.")
    ] = False
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="The running service does it, not before 06:00 (the next one, UTC) or "
            "2026-11-01T06:00:00+01:00.",
        ),
    ] = None
    pace: Annotated[
        float | None, typer.Option(metavar="N", help="Maximum messages per second.")
    ] = None
    probe: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=INT_MAX,
            help="Send this number first; continue if few of them come back.",
        ),
    ] = None
    ramp: Annotated[
        bool,
        typer.Option(
            "--ramp",
            help="Continue in portions, each twice the size of the one before and judged the same "
            "way.",
        ),
    ] = False
    stop_share: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Stop when more than this share comes back, such as 0.1.",
        ),
    ] = None
    window: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time after a send in which a message may come back [default: 60s].",
        ),
    ] = None
    careful: Annotated[
        bool,
        typer.Option(
            "--careful",
            help="Same as --probe 50 --ramp --stop-share 0.1 --pace 20; other options override.",
        ),
    ] = False
    output: Output = OutputFormat.TEXT


WAITING = ("until", "at_most")
"""Options about an event outside; for holding."""

JUDGED = ("probe", "ramp", "stop_share", "window", "careful")
"""Options about returns; for commands that send."""


def read_chosen(asked: Asked, now_ms: int) -> Selection:
    """Return which messages the options name; too little or too much of them leaves with 2."""
    chosen = read_selection(asked, now_ms)
    has_filter = chosen != Selection() or asked.group is not None
    if asked.ids and (has_filter or asked.everything):
        raise typer.BadParameter("give ids or a filter, not both")
    if not (asked.ids or has_filter or asked.everything or asked.limit):
        raise typer.BadParameter(
            "select messages: ids, --destination, --group, --cause, --older-than, --limit, or --all"
        )
    if has_filter and asked.everything:
        raise typer.BadParameter("--all excludes other filters")
    return chosen


def read_pace(asked: Asked, now_ms: int) -> OperationPace:
    """Return how carefully the options want it done."""
    window = asked.window
    said = {
        "probe": asked.probe,
        "per_second": asked.pace,
        "ramp": asked.ramp or None,
        "stop_share": asked.stop_share,
        "begin_at_ms": next_time_ms(asked.at, "--at", now_ms),
        "window_ms": None if window is None else duration_ms(window, "--window", least_ms=1),
    }
    return msgspec.structs.replace(
        CAREFUL if asked.careful else OperationPace(),
        **{name: value for name, value in said.items() if value is not None},
    )

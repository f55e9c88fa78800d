"""`amqsidecar journal verify`: is the journal whole?"""

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from amqsidecar.cli.journal.options import JournalPath, open_journal
from amqsidecar.cli.opened import opened_schedule
from amqsidecar.cli.options import Output, OutputFormat
from amqsidecar.cli.printing import print_json, print_line, say
from amqsidecar.cli.reading import configured
from amqsidecar.config.schema import Config

if TYPE_CHECKING:
    from amqsidecar.journals.verify import JournalFacts

EXIT_FAULTS: Final = 78

OfStore = Annotated[
    bool,
    typer.Option(
        "--store/--no-store",
        help="Also compare with the configured store. Without a configured journal only --path "
        "is checked.",
    ),
]


@configured
def verify(
    config: Config,
    path: JournalPath = None,
    store: OfStore | None = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Check that all events are in the journal, each once.

    Compares them with the store, and reads every file with its checksums. Exit codes: 0 whole; 78
    something is missing, differs, or is damaged: one line names it with its file.

    \b
    JSON: {"streams": [{"stream", "files", "first", "last", "events"}], "faults": [text],
    "remarks": [text], "compared": events that were compared with the store's}
    """  # noqa: D301 - the backspace makes the library keep the lines
    folder = open_journal(path, config)
    from amqsidecar.journals.verify import verify_against, verify_files  # noqa: PLC0415 - an extra

    if store if store is not None else path is None:
        with opened_schedule(config) as schedule:
            facts = verify_against(folder, schedule, keeps_all=config.journal.keep_days == 0)
    else:
        facts = verify_files(folder)
    if output is OutputFormat.JSON:
        streams = [
            {
                **{name: getattr(one, name) for name in ("stream", "files", "first", "last")},
                "events": sum(one.rows.values()),
            }
            for one in facts.streams
        ]
        print_json({**msgspec.structs.asdict(facts), "streams": streams})
    else:
        _print(facts)
    raise typer.Exit(EXIT_FAULTS if facts.faults else 0)


def _print(facts: "JournalFacts") -> None:
    for stream in facts.streams:
        print_line(
            f"stream {stream.stream}: segments {stream.first} to {stream.last} in {stream.files} "
            f"files, {sum(stream.rows.values())} events"
        )
    if facts.compared:
        print_line(f"{facts.compared} events compared with the store")
    for remark in facts.remarks:
        say(f"note: {remark}")
    for fault in facts.faults:
        say(f"fault: {fault}")
    if facts.faults:
        print_line(f"{len(facts.faults)} faults")
    else:
        print_line("whole" if facts.streams else "nothing to verify there")

"""Options `journal.*`: the history as files for analysis."""

from typing import Annotated

from pydantic import BeforeValidator

from amqsidecar.config.option import Section, StrictBool, StrictInt, Texts, option


def _checked_journal_path(value: object) -> str:
    if value in (None, ""):
        return ""
    if not isinstance(value, str):
        raise ValueError("expected a folder or a URL such as s3://bucket/journal")  # noqa: TRY004 - pydantic wants it
    scheme, separator, rest = value.partition("://")
    if separator and (not scheme or not rest.strip("/")):
        raise ValueError("expected a URL such as s3://bucket/journal")
    if separator and "@" in rest.partition("/")[0]:
        raise ValueError("leave credentials out; they come from the object store's own settings")
    return value


class JournalOptions(Section):
    """The history as files for analysis."""

    path: Annotated[str, BeforeValidator(_checked_journal_path)] = option(
        "",
        "Folder of the journal (`journal.md`), or a URL of an object store such as "
        "`s3://bucket/journal`, which needs the package of fsspec for it, such as `s3fs`; empty = "
        'no journal. Needs `pip install "amqsidecar[journal]"`. A relative path in a '
        "configuration file starts at that file's folder. Sidecars may share a journal; those that "
        "share a store need the same journal.",
        why="needs an operator's decision on space",
    )
    name: str = option(
        "",
        "What the column `sidecar` says; empty = the store's instance.",
        pattern=r"^[A-Za-z0-9_.-]{0,64}$",
    )
    cause_text: StrictBool = option(
        False,
        "Whether the journal holds what the broker says of a death word by word, in the column "
        "`cause`. Without it there are only groups of causes, without numbers, ids and names.",
        why="exception texts quote customers' data",
    )
    properties: Texts = option(
        (),
        "Application properties that history and journal hold of each dead letter, as text of at "
        "most 1,000 characters; exact names. No others are, and bodies never are.",
        why="properties may be personal data",
    )
    segment_events: StrictInt = option(
        50_000,
        "A segment is written when so many events wait for it.",
        why="some megabytes, which is little memory and no tiny file",
        unit="events",
        ge=1,
        le=1_000_000,
    )
    segment_s: StrictInt = option(
        300,
        "A segment is written when its oldest event is so old, however few there are.",
        why="fresh enough for reports, and less than 300 files a day",
        unit="seconds",
        ge=1,
        le=86_400,
    )
    keep_days: StrictInt = option(
        0,
        "Files of the journal whose events are all older are removed; 0 = none ever is.",
        why="nobody should lose a history without having said so",
        unit="days",
        ge=0,
        le=36_500,
    )

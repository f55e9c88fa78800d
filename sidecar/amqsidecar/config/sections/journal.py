"""Options `journal.*` and `history.*`: what is kept about messages, and how long."""

from typing import Annotated

from pydantic import BeforeValidator

from amqsidecar.config.option import Section, StrictBool, StrictInt, Texts, option


class HistoryOptions(Section):
    """How long `show` has the history of a message."""

    keep_days: StrictInt = option(
        30,
        "Events older than this are removed from the store.",
        unit="days",
        ge=1,
        le=36_500,
    )
    max_events: StrictInt = option(
        1_000_000,
        "Maximum events kept; the oldest are removed first.",
        why="some hundred megabytes",
        unit="events",
        ge=1000,
    )


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
        "`s3://bucket/journal`, which needs its package of fsspec, such as `s3fs`; empty = no "
        'journal. Needs `pip install "amqsidecar[journal]"`. Sidecars that share a store need '
        "the same journal.",
    )
    name: str = option(
        "",
        "Value of the column `sidecar`; empty = the store's instance.",
        pattern=r"^[A-Za-z0-9_.-]{0,64}$",
    )
    cause_text: StrictBool = option(
        False,
        "Whether the journal records the broker's full text for a death, which may contain "
        "personal data, in the column `cause`. Otherwise it has only cause groups.",
    )
    properties: Texts = option(
        (),
        "Exact names of application properties that history and journal record of each dead "
        "letter, up to 1,000 characters each. Other properties and bodies are never recorded.",
    )
    segment_events: StrictInt = option(
        50_000,
        "Maximum events of a segment.",
        why="some megabytes: little memory, and no tiny files",
        unit="events",
        ge=1,
        le=1_000_000,
    )
    segment_s: StrictInt = option(
        300,
        "Maximum age of a segment's oldest event.",
        why="fresh enough for reports, and less than 300 files a day",
        unit="seconds",
        ge=1,
        le=86_400,
    )
    keep_days: StrictInt = option(
        0,
        "Files whose events are all older than this are removed; 0 = never.",
        unit="days",
        ge=0,
        le=36_500,
    )

"""Options `log.*`: the log on standard error, and the audit."""

from enum import StrEnum

from amqsidecar.config.option import Section, StrictInt, option


class LogLevel(StrEnum):
    """The least important line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a log line looks."""

    JSON = "json"
    TEXT = "text"


class LogOptions(Section):
    """The log on standard error."""

    level: LogLevel = option(LogLevel.INFO, "Minimum level of the lines that are written.")
    format: LogFormat = option(
        LogFormat.JSON,
        "`json` for collectors, `text` for people.",
    )
    audit: str = option(
        "stderr",
        "Where the audit is written (`console.md`): `stderr`, `stdout`, or the path of a file, to "
        "which commands append as well. With a stream, a command writes to that of the service in "
        "its container, else to its own standard error.",
        min_length=1,
    )
    audit_days: StrictInt = option(
        0,
        "If `log.audit` is a file: days that are kept. Services begin a file each day (UTC), name "
        "the one before `FILE.2026-11-28`, and remove older ones with their next line; 0 = you "
        "rotate it.",
        unit="days",
        ge=0,
        le=36_500,
    )

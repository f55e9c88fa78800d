"""Options `log.*`: the log on standard error, and the audit."""

from enum import StrEnum

from amqsidecar.config.option import Section, option


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

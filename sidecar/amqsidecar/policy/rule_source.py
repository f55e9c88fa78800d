"""Where a rule stands."""

from dataclasses import dataclass

from amqsidecar.model.decision import WrittenLine


@dataclass(frozen=True, slots=True)
class RuleSource:
    """File and line of a rule."""

    path: str = "(defaults)"
    line: int | None = None

    def __str__(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


def written_line(text: str, source: RuleSource) -> WrittenLine:
    """Return a line that orders a discard.

    Raises:
        ValueError: the source is that of defaults: nobody wrote the line.
    """
    return WrittenLine(text, str(source))


def parse_source(text: str) -> RuleSource:
    """Return the place that a text names, such as `sidecar.yaml:12`."""
    path, _, line = text.rpartition(":")
    return RuleSource(path, int(line)) if path and line.isdigit() else RuleSource(text)


DEFAULTS = RuleSource()

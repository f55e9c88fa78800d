"""Where a rule stands."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuleSource:
    """File and line of a rule.

    Attributes:
        path: file name as the operator wrote it; `(defaults)` for defaults.
        line: 1-based; None where there is no line.
    """

    path: str = "(defaults)"
    line: int | None = None

    def __str__(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


DEFAULTS = RuleSource()

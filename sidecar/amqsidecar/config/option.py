"""How options are declared, and the types that several sections share.

A validator raises ValueError with a sentence on the expected value; `problems` reports conflicts
between options and names the option to change.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from amqsidecar.model.destination import parse_pattern

KeyedProblem = tuple[str, str]
"""The dotted key of an option, and its problem."""


def option(
    default: Any,
    help_text: str,
    *,
    why: str = "",
    unit: str = "",
    **constraints: Any,
) -> Any:
    """Declare an option.

    Args:
        default: value unless it is set.
        help_text: one or more sentences for operators.
        why: where the default comes from; "" = it speaks for itself.
        unit: of a number.
        constraints: of pydantic's `Field`, such as `ge`.
    """
    extra: dict[str, Any] = {"why": why, "unit": unit}
    return Field(default, description=help_text, json_schema_extra=extra, **constraints)


def section(kind: type["Section"], help_text: str) -> Any:
    """Declare a group of options."""
    return Field(default_factory=kind, description=help_text)


class Section(BaseModel):
    """Base of all groups of options: frozen, unknown keys are errors, numbers are not guessed."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
        validate_default=False,
        allow_inf_nan=False,
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield problems of combinations of options that are each valid."""
        yield from ()


StrictInt = Annotated[int, Field(strict=True)]
StrictBool = Annotated[bool, Field(strict=True)]


def as_texts(value: object) -> object:
    """Accept one text as a list of one, and null as an empty list."""
    if isinstance(value, str):
        return (value,) if value else ()
    return () if value is None else value


Texts = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(as_texts, json_schema_input_type=str | list[str]),
]


def each_text(check: Callable[[str], object]) -> BeforeValidator:
    """Return the validator of one text or a list; `check` raises ValueError for a wrong one."""

    def checked(value: object) -> object:
        texts = as_texts(value)
        for text in texts if isinstance(texts, tuple | list) else ():
            check(str(text))
        return texts

    return BeforeValidator(checked, json_schema_input_type=str | list[str])


DestinationPatterns = Annotated[tuple[str, ...], each_text(parse_pattern)]
"""Such as `orders.>` or topic://news.*."""


def _as_path(value: object) -> object:
    return None if value == "" else value


OptionalPath = Annotated[Path | None, BeforeValidator(_as_path, json_schema_input_type=str | None)]


def _as_entries(value: object) -> object:
    if value is None or isinstance(value, Mapping):
        return value or {}
    raise ValueError("expected a mapping with `entries`, `default_entry`, or both")


# Why no type of its content: the YAML reader's mappings know their lines.
Entries = Annotated[
    Mapping[str, object], PlainValidator(_as_entries, json_schema_input_type=dict[str, Any])
]

"""Templates: escaped always, with everything of strangers made visible, and nothing undefined."""

from collections.abc import Sequence
from datetime import UTC, datetime

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from amqsidecar.http.console import svg
from amqsidecar.model.cause import given_reason, root_reason
from amqsidecar.model.cause_groups import split_stack
from amqsidecar.model.operation import lacks_sends
from amqsidecar.model.shown import shown
from amqsidecar.operations.charts import Zoom
from amqsidecar.operations.failures.groups import Group
from amqsidecar.operations.words import due, many, size, span


class Exact(str):
    """A text for the value of a form's field, which must return unchanged; escaped, too."""

    __slots__ = ()


def _final(value: object) -> object:
    """Return the text of a value in a template, before escaping."""
    if isinstance(value, str) and not isinstance(value, (Markup, Exact)):
        return shown(value)
    return value


def number(count: float) -> str:
    """Return a number for people.

    Example:
        >>> number(1234567), number(0.5)
        ('1,234,567', '0.5')
    """
    return f"{count:,}"


def percent(share: float) -> str:
    """Return a share of one.

    Example:
        >>> percent(0.254)
        '25 %'
    """
    return f"{share * 100:.0f} %"


def moment(at_ms: int) -> datetime | None:
    """Return a time; None = it lies beyond the calendar."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def iso(at_ms: int) -> str:
    """Return a time for machines; "" = it lies beyond the calendar.

    Example:
        >>> iso(1_700_000_000_123)
        '2023-11-14T22:13:20.123Z'
    """
    found = moment(at_ms)
    return "" if found is None else f"{found:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def utc(at_ms: int, now_ms: int | None = None) -> str:
    """Return a time in UTC; without the day where that is today's.

    Example:
        >>> utc(1_700_000_000_123), utc(1_700_000_000_123, 1_700_000_100_000)
        ('2023-11-14 22:13:20', '22:13:20')
    """
    found = moment(at_ms)
    if found is None:
        return f"{at_ms} ms"
    now = None if now_ms is None else moment(now_ms)
    is_today = now is not None and now.date() == found.date()
    return f"{found:%H:%M:%S}" if is_today else f"{found:%Y-%m-%d %H:%M:%S}"


def some_states(groups: Sequence[Group]) -> list[str]:
    """Return the states that any message of these groups is in."""
    states = ("waiting", "held", "parked", "exhausted")
    return [state for state in states if any(getattr(group, state) for group in groups)]


def make_environment(templates: str | None = None) -> Environment:
    """Return the environment of all templates, including one more package's."""
    packages = ["amqsidecar.http.console", *([] if templates is None else [templates])]
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_final,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number,
        percent=percent,
        iso=iso,
        utc=utc,
        span=span,
        due=due,
        size=size,
        exact=Exact,
        given_reason=given_reason,
        root_reason=root_reason,
        without_stack=lambda group: split_stack(group)[0],
        stack_hash=lambda group: split_stack(group)[1],
        lacks_sends=lacks_sends,
    )
    environment.globals.update(many=many, draw=svg.draw, zooms=[*Zoom], some_states=some_states)
    return environment

"""Reads the table of rules out of a YAML policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from amqsidecar.plugin import (
    DEFAULT_WAIT_MS,
    WAIT_MAX_MS,
    Destination,
    JavaRegex,
    JavaRegexError,
    MessageEdit,
    OptionReader,
    PropertyEdit,
    RedeliveryPolicy,
    RuleSource,
    compile_java_regex,
    lock_of,
    parse_destination,
    read_options,
)

REGEX_TIMEOUT_MS: Final = 50
"""How long one comparison with a regular expression may take; then the message is parked."""

RULES_MAX: Final = 1_000
"""Rules of one table."""

EDITED_MAX: Final = 20
"""Properties that one rule removes or sets."""

_NAME_MAX: Final = 100
_COUNT_MAX, _MS_MAX = 2**31 - 1, 2**53
_PATTERNS = ("queue", "topic", "temp_queue", "temp_topic")


class RuleAction(StrEnum):
    """Actions without options of their own."""

    EXHAUST = "exhaust"
    PARK = "park"
    DISCARD = "discard"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class TextTest:
    """A condition on a text.

    Attributes:
        values: one of which it must be; () = the expression decides.
        expression: that it must match in full; None = the values decide.
        is_absent: there must be no text.
    """

    values: tuple[str, ...] = ()
    expression: JavaRegex | None = None
    is_absent: bool = False

    def holds(self, text: str | None) -> bool:
        """Return whether a text fulfils it.

        Raises:
            JavaRegexTimeout: the expression takes too long.
        """
        if text is None or self.is_absent:
            return text is None and self.is_absent
        return text in self.values if self.expression is None else self.expression.matches(text)


@dataclass(frozen=True, slots=True)
class Redelivery:
    """Redeliver by a policy of the rule's own.

    Attributes:
        policy: delays, and how often at most.
        within_ms: no redelivery is later than this after the first death; None = no such limit.
        until: the event outside that it waits for, with names of properties in braces; "" = none.
        longest_ms: the longest wait for it.
    """

    policy: RedeliveryPolicy
    within_ms: int | None
    until: str
    longest_ms: int


@dataclass(frozen=True, slots=True)
class Redirection:
    """Send to another destination."""

    to: Destination
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRule:
    """One row of the table; it matches where all of its conditions hold.

    Attributes:
        title: names it in decisions.
        destinations: the pattern; () = all destinations.
        cause_classes: one of which the cause must name, with or without its package; () = any.
        cause: on the whole text of the cause.
        jms_type: on JMSType.
        properties, headers: on these, by name.
        least_count, most_count: redeliveries so far.
        least_age_ms, most_age_ms: since the first death.
        expired: whether it must have died of its time to live; it must not unless this is true.
        duplicate: whether the cause must name it a duplicate; that of a store must not unless true.
        outcome: what to do.
        edit: of what is re-sent; None = it stays as it is.
    """

    title: str
    destinations: tuple[Destination, ...] = ()
    cause_classes: tuple[str, ...] = ()
    cause: TextTest | None = None
    jms_type: TextTest | None = None
    properties: Mapping[str, TextTest] = field(default_factory=dict)
    headers: Mapping[str, TextTest] = field(default_factory=dict)
    least_count: int = 0
    most_count: int = _COUNT_MAX
    least_age_ms: int = 0
    most_age_ms: int = _MS_MAX
    expired: bool = False
    duplicate: bool = False
    outcome: RuleAction | Redelivery | Redirection
    edit: MessageEdit | None = None
    source: RuleSource


@dataclass(frozen=True, slots=True)
class RuleTable:
    """The checked options of one use of the plugin."""

    rules: tuple[TableRule, ...] = field(compare=False)
    written: Mapping[str, object]

    def to_mapping(self) -> Mapping[str, object]:
        """Return its options as a YAML policy writes them."""
        return self.written


def read_table(reader: OptionReader) -> RuleTable:
    """Return the table that options write."""
    rows = reader.mappings("rules")
    if not 0 < len(rows) <= RULES_MAX:
        reader.fail("rules", f"expected 1 to {RULES_MAX} rules, found {len(rows)}")
    rules = tuple(_read_rule(row, number) for number, row in enumerate(rows, start=1))
    return RuleTable(rules, {"rules": _plain(reader.written("rules"))})


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, str) else value


def _read_rule(row: OptionReader, number: int) -> TableRule:
    name = row.text("name", "")
    outcome = _outcome(row)
    rule = TableRule(
        title=f'rule "{name}"' if name else f"rule {number}",
        destinations=_destinations(row),
        cause_classes=row.texts("cause_class"),
        cause=_cause(row),
        jms_type=_text_test(row, "jms_type", row.written("jms_type"), is_given="jms_type" in row),
        properties=_text_tests(row, "properties"),
        headers=_text_tests(row, "headers"),
        least_count=row.integer("least_redelivery_count", 0, least=0, most=_COUNT_MAX),
        most_count=row.integer("most_redelivery_count", _COUNT_MAX, least=0, most=_COUNT_MAX),
        least_age_ms=row.integer("least_age_ms", 0, least=0, most=_MS_MAX),
        most_age_ms=row.integer("most_age_ms", _MS_MAX, least=0, most=_MS_MAX),
        expired=row.boolean("expired", default=False),
        duplicate=row.boolean("duplicate", default=False),
        outcome=outcome,
        edit=_edit(row, outcome),
        source=row.source,
    )
    row.finish()
    return rule


def _edit(row: OptionReader, outcome: RuleAction | Redelivery | Redirection) -> MessageEdit | None:
    removed, values = row.texts("remove_properties"), row.written("set_properties") or {}
    if not isinstance(values, Mapping) or not all(isinstance(one, str) for one in values.values()):
        row.fail("set_properties", f"expected names with texts in quotes, found {values!r}")
        return None
    if not removed and not values:
        return None
    names = [*removed, *map(str, values)]
    if isinstance(outcome, RuleAction) and outcome is not RuleAction.CONTINUE:
        row.fail("remove_properties, set_properties", f"{outcome} re-sends nothing")
    if len(names) > EDITED_MAX:
        row.fail("remove_properties, set_properties", f"expected at most {EDITED_MAX} names")
    for name in names:
        if not name or len(name) > _NAME_MAX or names.count(name) > 1:
            what = f"expected each name once, of 1 to {_NAME_MAX} characters, found {name[:40]!r}"
            row.fail("remove_properties, set_properties", what)
        elif (why := lock_of(name)) is not None:
            row.fail("remove_properties, set_properties", f"{name} can't be changed: {why}")
    return MessageEdit(
        set_properties=tuple(
            PropertyEdit(name=str(name), value=str(text)) for name, text in values.items()
        ),
        remove_properties=removed,
    )


def _destinations(row: OptionReader) -> tuple[Destination, ...]:
    if any(key in row for key in _PATTERNS):
        return row.pattern()
    for key in _PATTERNS:
        row.written(key)
    return ()


def _cause(row: OptionReader) -> TextTest | None:
    if "cause_matches" not in row:
        row.written("cause_matches")
        return None
    # Why the frame: a cause is searched, not compared in full; it may have many lines.
    return _expression(row, "cause_matches", row.text("cause_matches", ""), "(?s:.*?)(?:{})(?s:.*)")


def _expression(row: OptionReader, key: str, text: str, frame: str = "{}") -> TextTest:
    try:
        compile_java_regex(text)
        compiled = compile_java_regex(frame.replace("{}", text), timeout_ms=REGEX_TIMEOUT_MS)
    except JavaRegexError as error:
        row.fail(key, str(error))
        return TextTest()
    return TextTest(expression=compiled)


def _text_tests(row: OptionReader, key: str) -> dict[str, TextTest]:
    written = row.written(key)
    if written is None:
        return {}
    if not isinstance(written, Mapping):
        row.fail(key, f"expected a mapping from names to values, found {written!r}")
        return {}
    found = {}
    for name, value in written.items():
        test = _text_test(row, f"{key}.{name}", value, is_given=True)
        if test is not None:
            found[str(name)] = test
    return found


def _text_test(row: OptionReader, key: str, value: object, *, is_given: bool) -> TextTest | None:
    if not is_given:
        return None
    if value is None:
        return TextTest(is_absent=True)
    if isinstance(value, Mapping):
        text = value.get("matches")
        if len(value) == 1 and isinstance(text, str):
            return _expression(row, key, text)
    else:
        values = [value] if isinstance(value, str) else value
        if isinstance(values, Sequence) and values and all(isinstance(one, str) for one in values):
            return TextTest(values=tuple(map(str, values)))
    row.fail(
        key,
        "expected a text in quotes, a list of texts, `matches` with a regular expression, or null "
        f"for none, found {value!r}",
    )
    return None


def _outcome(row: OptionReader) -> RuleAction | Redelivery | Redirection:
    given = [key for key in ("action", "redeliver", "redirect") if key in row]
    redeliver, redirect = row.mapping("redeliver"), row.mapping("redirect")
    action = row.text("action", "")
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        row.fail("action, redeliver, redirect", f"expected exactly one of these, found {found}")
    elif redeliver is not None:
        policy = read_options(RedeliveryPolicy, redeliver, source=redeliver.source)
        within_ms = redeliver.limit("within_ms", None, most=_MS_MAX)
        until = redeliver.text("until", "")
        longest_ms = redeliver.integer("longest_ms", DEFAULT_WAIT_MS, least=0, most=WAIT_MAX_MS)
        redeliver.finish()
        if policy.maximum_redeliveries is None and within_ms is None:
            row.fail("redeliver", "expected maximum_redeliveries, within_ms or both to end it")
        return Redelivery(policy, within_ms, until, longest_ms)
    elif redirect is not None:
        to = redirect.text("to", "")
        delay_ms = redirect.integer("delay_ms", 0, least=0, most=_MS_MAX)
        redirect.finish()
        try:
            return Redirection(parse_destination(to), delay_ms)
        except ValueError as error:
            row.fail("redirect", f"to: {error}")
    elif action in tuple(RuleAction):
        return RuleAction(action)
    else:
        row.fail("action", f"expected one of {', '.join(RuleAction)}, found {action!r}")
    return RuleAction.CONTINUE

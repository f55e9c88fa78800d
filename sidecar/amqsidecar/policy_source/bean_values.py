"""Values of the beans of an `activemq.xml`, as the broker takes them; problems are collected."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from amqsidecar.model.destination import Destination, DestinationKind, parse_destination, queue
from amqsidecar.policy.option_table import Notation, broker_name
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy_source.spring_beans import CONSTRUCTOR_ARGUMENT, Bean, BeanReader, Value
from amqsidecar.policy_source.xml_file import whole_number

DESTINATION_KINDS = {
    "queue": DestinationKind.QUEUE,
    "topic": DestinationKind.TOPIC,
    "tempQueue": DestinationKind.TEMP_QUEUE,
    "tempTopic": DestinationKind.TEMP_TOPIC,
}
DESTINATION_NAMES = frozenset({*DESTINATION_KINDS, "destination"})
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_HEXADECIMAL = re.compile(r"-?(?:0[xX]|#)[0-9a-fA-F]+", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|NaN", re.ASCII)
_XBEAN_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_SPRING_BOOLEANS = _XBEAN_BOOLEANS | {"on": True, "yes": True, "off": False, "no": False}


class BeanValues(Notation):
    """Reads attributes and child elements of one bean; a name may be in snake case.

    Attributes:
        beans: reads the beans that this one holds.
        bean: this one.
        source: where it stands.
    """

    def __init__(self, beans: BeanReader, bean: Bean) -> None:
        self.beans = beans
        self.bean = bean
        self.source = bean.source

    def warn(self, what: str) -> None:
        """Note a warning at the place of the bean."""
        self.beans.definitions.warn(self.source, what)

    def of(self, name: str) -> "list[BeanValues]":
        """Return the beans that a property holds."""
        value = self.bean.values.get(name)
        found = self.beans.beans_of(value) if value else ()
        return [BeanValues(self.beans, one) for one in found]

    def destinations(self) -> tuple[Destination, ...]:
        """Return the pattern of an entry.

        Quirk (Classic 5.x): attributes are applied in alphabetical order and the last one wins, so
        topic wins over queue; a child element is applied after all attributes.
        """
        bean = self.bean
        names = [name for name in bean.values if name in DESTINATION_NAMES]
        if not bean.is_spring:
            names.sort(key=lambda name: (not bean.values[name].is_attribute, name))
        if not names:
            self.beans.problem(
                bean.source,
                f"{bean.kind} has no destination (queue, topic, tempQueue, tempTopic or "
                "destination): the broker fails to start",
            )
            return (queue(">"),)
        winner = names[-1]
        if len(names) > 1:
            self.warn(f"{bean.kind} has {' and '.join(names)}: the broker takes {winner} only")
        value = bean.values[winner]
        if winner == "destination":
            return self.destination_of(value) or (queue(">"),)
        kind = DESTINATION_KINDS[winner]
        if winner in ("tempQueue", "tempTopic"):
            if not self.flag(winner, default=True):
                self.warn(
                    f'{winner}="false" selects every {kind.value} all the same, as in the broker; '
                    "remove the attribute to select none",
                )
            return (Destination(kind, ">"),)
        return self.named(kind, self.beans.text_of(value) or "", value.source)

    def destination_of(self, value: Value) -> tuple[Destination, ...]:
        """Return the destinations that a property holds as beans; empty = a problem is noted."""
        text = self.beans.text_of(value)
        kinds = ", ".join(f"<{kind} physicalName=…>" for kind in DESTINATION_KINDS)
        if text is not None and not text.startswith("#"):
            self.beans.problem(
                value.source,
                f'{self.bean.kind}: a destination can\'t be written as text ("{text}"), the broker '
                f"fails to start; write one of {kinds} inside",
            )
            return ()
        found = self.beans.beans_of(value)
        if len(found) != 1 or found[0].kind not in DESTINATION_KINDS:
            self.beans.problem(value.source, f"{self.bean.kind}: expected one of {kinds}")
            return ()
        return BeanValues(self.beans, found[0]).own_destinations()

    def own_destinations(self) -> tuple[Destination, ...]:
        """Return the destinations that a bean such as `<queue physicalName="A"/>` is."""
        self.check_names(frozenset({"physicalName", CONSTRUCTOR_ARGUMENT}))
        name = self.given("physicalName") or self.given(CONSTRUCTOR_ARGUMENT)
        return self.named(DESTINATION_KINDS[self.bean.kind], name or "", self.source)

    def named(
        self, kind: DestinationKind, text: str, source: RuleSource
    ) -> tuple[Destination, ...]:
        """Return the destinations of a physical name, which may be a composite.

        Source: org.apache.activemq.command.ActiveMQDestination, setPhysicalName.
        """
        name = text.strip().split("?", 1)[0]
        if "," in name:
            parts = [part.strip() for part in name.split(",")]
            return tuple(
                dict.fromkeys(parse_destination(part, kind) for part in parts if part)
            ) or (Destination(kind, name),)
        if not name:
            self.beans.problem(source, f"{kind.value} has an empty name; the broker fails to start")
            return (Destination(kind, ">"),)
        if any(name.startswith(f"{other.value}://") for other in DestinationKind):
            self.beans.definitions.warn(
                source,
                f'{kind.value}="{name}" is taken literally by the broker, prefix included, and '
                f'matches nothing that clients use; write {kind.value}="{name.split("://", 1)[1]}"',
            )
        return (Destination(kind, name),)

    def listed(self, names: tuple[str, ...], kind: str) -> "Iterator[BeanValues]":
        """Yield the beans of a kind that properties of these names hold; others are problems."""
        for name in names:
            for found in self.of(name):
                if found.bean.kind == kind:
                    yield found
                else:
                    self.beans.problem(
                        found.source, f"{name}: expected <{kind}>, found <{found.bean.kind}>"
                    )

    def only(self, name: str, kinds: set[str]) -> "BeanValues | None":
        """Return the one bean of these kinds that a property holds; None = it holds none."""
        value = self.bean.values.get(name)
        if value is None:
            return None
        found = self.beans.beans_of(value)
        names = " or ".join(f"<{kind}>" for kind in sorted(kinds))
        if value.text is None and any(child.kind not in kinds for child in found):
            wrong = ", ".join(f"<{child.kind}>" for child in found if child.kind not in kinds)
            self.beans.problem(
                value.source,
                f"<{name}> is only the property; inside it stands {names}, found {wrong}",
            )
            return None
        if len(found) > 1:
            self.beans.problem(value.source, f"{name}: expected one {names}, found {len(found)}")
        if not found and value.text is not None and value.text.strip() == "":
            self.beans.problem(value.source, f"<{name}> is empty; inside it stands {names}")
        return BeanValues(self.beans, found[0]) if found else None

    def check_names(self, known: frozenset[str]) -> None:
        """Note a problem for each attribute or child element that the broker doesn't know."""
        kind = self.bean.kind
        for name, value in self.bean.values.items():
            if name not in known and name != CONSTRUCTOR_ARGUMENT:
                self.beans.problem(
                    value.source, f"{kind} has no attribute {name}{_suggest(name, known)}"
                )
        for name, source in self.bean.strays:
            self.beans.problem(
                source, f"<{name}> can't stand inside <{kind}>{_suggest(name, known)}"
            )

    def given(self, name: str) -> str | None:
        """Return a text; None = it is not given."""
        value = self.bean.values.get(name)
        return None if value is None else self.beans.text_of(value)

    def _typed(self, key: str, expected: str) -> str | None:
        """Return the text of a number or boolean; None = it is not given, or a problem is noted.

        Why no placeholder in an attribute of an xbean element: the schema is checked before it is
        filled in.
        """
        name = broker_name(key)
        value = self.bean.values.get(name)
        if value is not None and value.is_attribute and "{" in (value.text or ""):
            what = f"{expected}: the broker's schema takes no placeholder here; use a <bean>"
            self._refuse(key, value.text or "", what)
            return None
        return self.given(name)

    def flag(self, key: str, default: bool | None) -> bool | None:
        """Return true or false, in the spellings that the broker takes."""
        text = self._typed(key, "true or false")
        if text is None:
            return default
        is_spring = self.bean.is_spring
        spellings = _SPRING_BOOLEANS if is_spring else _XBEAN_BOOLEANS
        value = spellings.get(text.strip().lower() if is_spring else text.strip())
        if value is None:
            self._refuse(key, text, "true or false")
            return default
        return value

    def integer(self, key: str, default: int, *, least: int, most: int) -> int:
        """Return a whole number that fits into as many bits as the bounds."""
        text = self._typed(key, "a whole number")
        if text is None:
            return default
        bits = max(most, -least - 1).bit_length() + 1
        if _INTEGER.fullmatch(text.strip()):
            value = whole_number(text, bits)
        elif self.bean.is_spring and _HEXADECIMAL.fullmatch(text.strip()):
            digits = text.strip().lower().replace("#", "0x").replace("0x", "")
            value = whole_number(digits, bits, base=16)
        else:
            self._refuse(key, text, "a whole number without a unit")
            return default
        if value is None:
            self._refuse(key, text, f"a number that fits into {bits} bits")
            return default
        return value

    def number(self, key: str, default: float) -> float:
        """Return a decimal number."""
        text = self._typed(key, "a number")
        if text is None:
            return default
        if not _DOUBLE.fullmatch(text.strip()):
            self._refuse(key, text, "a number such as 2 or 1.5")
            return default
        return float(text)

    def text(self, key: str, default: str) -> str:
        """Return a text, or the default where none is given."""
        text = self.given(broker_name(key))
        return default if text is None else text

    def _refuse(self, key: str, text: str, expected: str) -> None:
        bean, name = self.bean, broker_name(key)
        self.beans.problem(
            bean.values[name].source, f'{bean.kind} {name}="{text}": expected {expected}'
        )


def _suggest(name: str, known: frozenset[str]) -> str:
    close = get_close_matches(name, sorted(known - {CONSTRUCTOR_ARGUMENT}), 1, 0.6)
    return f"; did you mean {close[0]}?" if close else ""

"""The beans of an `activemq.xml`, whether written as xbean elements or as Spring `<bean>`.

`<redeliveryPlugin fallbackToDeadLetter="false"/>` and `<bean class="…RedeliveryPlugin"><property
name="fallbackToDeadLetter" value="false"/></bean>` are the same `Bean` here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lxml import etree

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.policy_source.xml_file import expand_spring, line_of, local_name, namespace

_SPRING = "http://www.springframework.org/schema/"
_P_NAMESPACE = "http://www.springframework.org/schema/p"
_CONTAINERS = {"list", "set", "array"}
_MAX_DEPTH = 32
# Bound: ten times what the largest files in the field have; a few lists that refer to each other
# hold any number.
_MAX_BEANS = 50_000
_REGION_POLICY = "org.apache.activemq.broker.region.policy."
_VIRTUAL = "org.apache.activemq.broker.region.virtual."
_KIND_BY_CLASS = {
    "org.apache.activemq.broker.BrokerService": "broker",
    "org.apache.activemq.xbean.XBeanBrokerService": "broker",
    "org.apache.activemq.broker.util.RedeliveryPlugin": "redeliveryPlugin",
    "org.apache.activemq.plugin.DiscardingDLQBrokerPlugin": "discardingDLQBrokerPlugin",
    "org.apache.activemq.RedeliveryPolicy": "redeliveryPolicy",
    _REGION_POLICY + "RedeliveryPolicyMap": "redeliveryPolicyMap",
    _REGION_POLICY + "PolicyMap": "policyMap",
    _REGION_POLICY + "PolicyEntry": "policyEntry",
    _REGION_POLICY + "SharedDeadLetterStrategy": "sharedDeadLetterStrategy",
    _REGION_POLICY + "IndividualDeadLetterStrategy": "individualDeadLetterStrategy",
    _REGION_POLICY + "DiscardingDeadLetterStrategy": "discarding",
    _VIRTUAL + "VirtualDestinationInterceptor": "virtualDestinationInterceptor",
    _VIRTUAL + "CompositeQueue": "compositeQueue",
    _VIRTUAL + "CompositeTopic": "compositeTopic",
    _VIRTUAL + "FilteredDestination": "filteredDestination",
    _VIRTUAL + "VirtualTopic": "virtualTopic",
    _VIRTUAL + "MirroredQueue": "mirroredQueue",
    "org.apache.activemq.command.ActiveMQQueue": "queue",
    "org.apache.activemq.command.ActiveMQTopic": "topic",
    "org.apache.activemq.command.ActiveMQTempQueue": "tempQueue",
    "org.apache.activemq.command.ActiveMQTempTopic": "tempTopic",
}
CONSTRUCTOR_ARGUMENT = "(constructor argument)"
"""Name under which a bean's first constructor argument stands among its values."""


@dataclass(slots=True)
class Value:
    """The value of a property of a bean.

    Attributes:
        text: as written, placeholders included; None where beans were given.
        line: 1-based.
        is_attribute: whether it stands in an attribute of an xbean element.
    """

    text: str | None
    line: int
    is_attribute: bool = False
    beans: list["Bean"] = field(default_factory=list)


@dataclass(slots=True)
class Bean:
    """One bean.

    Attributes:
        kind: the xbean element's name; the class name where there is no such element.
        line: 1-based.
        is_spring: written as `<bean>`, so that Spring's own spellings of values hold.
        values: by property name, in file order.
        strays: child elements that are no property, with their line.
    """

    kind: str
    line: int
    is_spring: bool
    values: dict[str, Value] = field(default_factory=dict)
    strays: list[tuple[str, int]] = field(default_factory=list)


class BeanReader:
    """Turns elements into beans; collects problems instead of stopping at the first."""

    def __init__(
        self,
        root: etree._Element,
        path: str,
        environment: Mapping[str, str],
        wrappers: Mapping[str, frozenset[str]],
    ) -> None:
        """Prepare a file.

        Args:
            root: the file's root element.
            path: file name for messages.
            environment: where placeholders are looked up.
            wrappers: kind of bean to the names of child elements that are properties.
        """
        self.problems: list[Problem] = []
        self._bean_count = 0
        self._path = path
        self._environment = environment
        self._wrappers = wrappers
        self._imports = [
            str(element.get("resource", ""))
            for element in root.iter()
            if local_name(element) == "import" and namespace(element).startswith(_SPRING)
        ]
        self._by_id: dict[str, etree._Element] = {}
        for element in root.iter():
            for name in (element.get("id"), element.get("name")):
                if name is not None and (name == element.get("id") or _is_bean(element)):
                    self._by_id.setdefault(name, element)

    def problem(self, line: int, what: str) -> None:
        """Note a problem at a line of the file."""
        self.problems.append(Problem(f"{self._path}:{line}", what))

    def read(self, element: etree._Element, depth: int = 0) -> Bean:
        """Return the bean that an element stands for."""
        if depth > _MAX_DEPTH:
            self.problem(line_of(element), "beans refer to each other in a circle")
            return Bean("", line_of(element), is_spring=False)
        if _is_bean(element):
            return self._read_spring(element, depth)
        return self._read_xbean(element, depth)

    def text_of(self, value: Value) -> str | None:
        """Return the text of a property with its placeholders filled in; None = it has beans."""
        if value.text is None or "${" not in value.text:
            return value.text
        expanded, missing = expand_spring(value.text, self._environment)
        for name in missing:
            self.problem(
                value.line,
                f"placeholder ${{{name}}} can't be filled in: set an environment variable of that "
                f"name, or write a default as ${{{name}:value}}",
            )
        return None if missing else expanded

    def beans_of(self, value: Value) -> list[Bean]:
        """Return the beans of a property, also where an attribute refers to them by `#id`."""
        text = self.text_of(value)
        if text is None:
            return value.beans
        names = [name.removeprefix("#") for name in text.replace(",", " ").split()]
        return [bean for name in names for bean in self._referred(name, value.line, 1)]

    def _read_xbean(self, element: etree._Element, depth: int) -> Bean:
        bean = Bean(local_name(element), line_of(element), is_spring=False)
        wrappers = self._wrappers.get(bean.kind, frozenset())
        for name, text in element.attrib.items():
            if name != "id" and not str(name).startswith("{"):
                bean.values[str(name)] = Value(str(text), bean.line, is_attribute=True)
        for child in element:
            name = local_name(child)
            if name in wrappers:
                bean.values.pop(name, None)
                bean.values[name] = self._content(child, depth)
            elif namespace(child).startswith(_SPRING) and name == "property":
                self._read_property(bean, child, depth)
            else:
                bean.strays.append((name, line_of(child)))
        return bean

    def _read_spring(self, element: etree._Element, depth: int) -> Bean:
        class_name = str(element.get("class", "")).strip()
        bean = Bean(_KIND_BY_CLASS.get(class_name, class_name), line_of(element), is_spring=True)
        if class_name not in _KIND_BY_CLASS:
            return bean
        for name, text in element.attrib.items():
            if not str(name).startswith(f"{{{_P_NAMESPACE}}}"):
                continue
            short = etree.QName(str(name)).localname
            if short.endswith("-ref"):
                bean.values[short.removesuffix("-ref")] = Value("#" + str(text), bean.line)
            else:
                bean.values[short] = Value(str(text), bean.line)
        for child in element:
            if local_name(child) in ("property", "constructor-arg"):
                self._read_property(bean, child, depth)
        return bean

    def _read_property(self, bean: Bean, element: etree._Element, depth: int) -> None:
        name = str(element.get("name", ""))
        if local_name(element) == "constructor-arg":
            name = CONSTRUCTOR_ARGUMENT
        line = line_of(element)
        bean.values.pop(name, None)
        if element.get("value") is not None:
            bean.values[name] = Value(str(element.get("value")), line)
        elif element.get("ref") is not None:
            bean.values[name] = Value("#" + str(element.get("ref")), line)
        else:
            bean.values[name] = self._content(element, depth)

    def _content(self, element: etree._Element, depth: int) -> Value:
        line = line_of(element)
        children = list(element)
        if not children or all(local_name(child) == "value" for child in children):
            return Value(str((children[0] if children else element).text or ""), line)
        beans = [bean for child in children for bean in self._beans(child, depth + 1)]
        return Value(None, line, beans=beans)

    def _beans(self, element: etree._Element, depth: int) -> Iterator[Bean]:
        self._bean_count += 1
        if self._bean_count > _MAX_BEANS:
            what = f"more than {_MAX_BEANS} beans, counting each that another one refers to"
            raise ConfigError([Problem(f"{self._path}:{line_of(element)}", what)])
        name = local_name(element)
        if depth > _MAX_DEPTH:
            self.problem(line_of(element), "beans refer to each other in a circle")
        elif name in _CONTAINERS:
            for child in element:
                yield from self._beans(child, depth + 1)
        elif name == "ref":
            target = element.get("bean") or element.get("local") or ""
            yield from self._referred(str(target), line_of(element), depth)
        elif name not in ("null", "value"):
            yield self.read(element, depth + 1)

    def _referred(self, name: str, line: int, depth: int) -> Iterator[Bean]:
        target = self._by_id.get(name)
        if target is None:
            hint = f"; it may be in an imported file ({', '.join(self._imports)}), which isn't read"
            self.problem(
                line, f"refers to #{name}, but no bean has that id" + hint * bool(self._imports)
            )
            return
        yield from self._beans(target, depth + 1)


def _is_bean(element: etree._Element) -> bool:
    return local_name(element) == "bean"

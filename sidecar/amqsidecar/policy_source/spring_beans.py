"""The beans of an `activemq.xml`, whether written as xbean elements or as Spring `<bean>`.

`<redeliveryPlugin fallbackToDeadLetter="false"/>` and `<bean class="…RedeliveryPlugin"><property
name="fallbackToDeadLetter" value="false"/></bean>` are the same `Bean` here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lxml import etree

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy_source.bean_definitions import SPRING, BeanDefinitions
from amqsidecar.policy_source.xml_file import local_name, namespace

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
        is_attribute: whether it stands in an attribute of an xbean element.
    """

    text: str | None
    source: RuleSource
    is_attribute: bool = False
    beans: list["Bean"] = field(default_factory=list)


@dataclass(slots=True)
class Bean:
    """One bean.

    Attributes:
        kind: the xbean element's name; the class name where there is no such element.
        is_spring: written as `<bean>`, so that Spring's own spellings of values hold.
        strays: child elements that are no property, with their place.
    """

    kind: str
    source: RuleSource
    is_spring: bool
    values: dict[str, Value] = field(default_factory=dict)
    strays: list[tuple[str, RuleSource]] = field(default_factory=list)


class BeanReader:
    """Turns elements into beans; collects problems instead of stopping at the first."""

    def __init__(
        self, definitions: BeanDefinitions, wrappers: Mapping[str, frozenset[str]]
    ) -> None:
        self.definitions = definitions
        self.problem = definitions.problem
        self._bean_count = 0
        self._wrappers = wrappers

    def read(self, element: etree._Element, depth: int = 0) -> Bean:
        """Return the bean that an element stands for."""
        source = self.definitions.source_of(element)
        if depth > _MAX_DEPTH:
            self.problem(source, "beans refer to each other in a circle")
            return Bean("", source, is_spring=False)
        is_spring = local_name(element) == "bean"
        bean = (self._read_spring if is_spring else self._read_xbean)(element, source, depth)
        for name, text, place in self.definitions.overrides_of(element):
            bean.values.pop(name, None)
            bean.values[name] = Value(text, place)
        return bean

    def text_of(self, value: Value) -> str | None:
        """Return the text of a property with its placeholders filled in; None = it has beans."""
        return None if value.text is None else self.definitions.expand(value.text, value.source)

    def beans_of(self, value: Value) -> list[Bean]:
        """Return the beans of a property, also where an attribute refers to them by `#id`."""
        if value.text is None:
            return value.beans
        names = (self.text_of(value) or "").replace(",", " ").split()
        return [
            bean
            for name in names
            for bean in self._referred(name.removeprefix("#"), value.source, 1)
        ]

    def _read_xbean(self, element: etree._Element, source: RuleSource, depth: int) -> Bean:
        bean = Bean(local_name(element), source, is_spring=False)
        wrappers = self._wrappers.get(bean.kind, frozenset())
        for name, text in element.attrib.items():
            if name != "id" and not str(name).startswith("{"):
                bean.values[str(name)] = Value(str(text), source, is_attribute=True)
        for child in element:
            name = local_name(child)
            if name in wrappers:
                bean.values.pop(name, None)
                bean.values[name] = self._content(child, depth)
            elif namespace(child).startswith(SPRING) and name == "property":
                self._read_property(bean, child, depth)
            else:
                bean.strays.append((name, self.definitions.source_of(child)))
        return bean

    def _read_spring(self, element: etree._Element, source: RuleSource, depth: int) -> Bean:
        class_name = str(element.get("class", "")).strip()
        bean = Bean(_KIND_BY_CLASS.get(class_name, class_name), source, is_spring=True)
        parent = element.get("parent")
        target = None if parent is None else self.definitions.find(str(parent), source)
        if target is not None:
            inherited = self.read(target, depth + 1)
            bean.kind = bean.kind or inherited.kind
            bean.values |= inherited.values
        if bean.kind not in _KIND_BY_CLASS.values():
            return bean
        for name in ("factory-method", "factory-bean"):
            if element.get(name) is not None:
                self.problem(source, f"{bean.kind} is made by a {name}, which is not read")
        parent_element = element.getparent()
        # Quirk (Classic 5.x, 6.x): directly inside an xbean element these attributes are ignored.
        is_ignored = parent_element is not None and not namespace(parent_element).startswith(SPRING)
        for key, text in element.attrib.items():
            if not str(key).startswith(f"{{{_P_NAMESPACE}}}"):
                continue
            if is_ignored:
                self.definitions.warnings.append(
                    f"{source}: the broker ignores the attributes p:… of a <bean> that stands "
                    "directly inside an xbean element: use <property>"
                )
                break
            short = etree.QName(str(key)).localname
            if short.endswith("-ref"):
                bean.values[short.removesuffix("-ref")] = Value("#" + str(text), source)
            else:
                bean.values[short] = Value(str(text), source)
        for child in element:
            if local_name(child) in ("property", "constructor-arg"):
                self._read_property(bean, child, depth)
        return bean

    def _read_property(self, bean: Bean, element: etree._Element, depth: int) -> None:
        name = str(element.get("name", ""))
        if local_name(element) == "constructor-arg":
            name = CONSTRUCTOR_ARGUMENT
        source = self.definitions.source_of(element)
        inherited = bean.values.pop(name, None)
        if element.get("value") is not None:
            bean.values[name] = Value(str(element.get("value")), source)
        elif element.get("ref") is not None:
            bean.values[name] = Value("#" + str(element.get("ref")), source)
        else:
            value = bean.values[name] = self._content(element, depth)
            if inherited and any(child.get("merge") == "true" for child in element):
                value.beans = [*self.beans_of(inherited), *value.beans]

    def _content(self, element: etree._Element, depth: int) -> Value:
        source = self.definitions.source_of(element)
        children = list(element)
        if not children or all(local_name(child) == "value" for child in children):
            return Value(str((children[0] if children else element).text or ""), source)
        beans = [bean for child in children for bean in self._beans(child, depth + 1)]
        return Value(None, source, beans=beans)

    def _beans(self, element: etree._Element, depth: int) -> Iterator[Bean]:
        self._bean_count += 1
        source = self.definitions.source_of(element)
        if self._bean_count > _MAX_BEANS:
            what = f"more than {_MAX_BEANS} beans, counting each that another one refers to"
            raise ConfigError([Problem(str(source), what)])
        name = local_name(element)
        if depth > _MAX_DEPTH:
            self.problem(source, "beans refer to each other in a circle")
        elif name in _CONTAINERS:
            for child in element:
                yield from self._beans(child, depth + 1)
        elif name == "ref":
            target = element.get("bean") or element.get("local") or ""
            yield from self._referred(str(target), source, depth)
        elif name not in ("null", "value"):
            yield self.read(element, depth + 1)

    def _referred(self, name: str, source: RuleSource, depth: int) -> Iterator[Bean]:
        target = self.definitions.find(name, source)
        if target is not None:
            yield from self._beans(target, depth + 1)

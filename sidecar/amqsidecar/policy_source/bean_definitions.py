"""The beans that an `activemq.xml` and its imports define, and the properties that fill them in.

Source: Spring's XmlBeanDefinitionReader, PropertyPlaceholderConfigurer, PropertyOverrideConfigurer.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import dirname, join
from typing import Final

from lxml import etree

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy_source.properties_file import read_properties
from amqsidecar.policy_source.xml_file import ReadFile, line_of, local_name, namespace, read_xml

SPRING: Final = "http://www.springframework.org/schema/"
_CONFIG: Final = "org.springframework.beans.factory.config."
_FILE_FIRST: Final = _CONFIG + "PropertyPlaceholderConfigurer"
_ENVIRONMENT_FIRST: Final = (
    "org.springframework.context.support.PropertySourcesPlaceholderConfigurer"
)
_OVERRIDE: Final = _CONFIG + "PropertyOverrideConfigurer"
_MAX_FILES: Final = 64
_PLACEHOLDER: Final = re.compile(r"\$\{([^{}]*)\}")
_NAME_BREAKS: Final = re.compile(r"[,;\s]+")
_MAX_EXPANSIONS: Final = 16


@dataclass(slots=True)
class _Properties:
    """The properties that a configurer reads."""

    source: RuleSource
    values: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    is_environment_first: bool = False
    keeps_unknown: bool = False


class BeanDefinitions:
    """The named elements of a file and of its imports; the last of a name counts.

    Attributes:
        warnings: for the operator, one sentence each, with place.
    """

    def __init__(
        self,
        root: etree._Element,
        path: str,
        environment: Mapping[str, str],
        read_file: ReadFile | None,
    ) -> None:
        """Read the imports and the configurers."""
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.roots: list[etree._Element] = []
        self._paths: dict[etree._Element, str] = {}
        self._environment = environment
        self._read_file = read_file
        self._by_name: dict[str, etree._Element] = {}
        self._aliases: dict[str, str] = {}
        self._names: dict[etree._Element, list[str]] = {}
        self._unread: list[tuple[str, RuleSource, frozenset[str]]] = []
        self._define(root, path, "")
        elements = [one for each in self.roots for one in each.iter("*")]
        self._configurers = [self._configurer(one) for one in elements if _is_configurer(one)]
        self._overrides = [self._properties(one) for one in elements if _class(one) == _OVERRIDE]

    def problem(self, source: RuleSource, what: str) -> None:
        """Note a problem at a place."""
        self.problems.append(Problem(str(source), what))

    def warn(self, source: RuleSource, what: str) -> None:
        """Note a warning at a place."""
        self.warnings.append(f"{source}: {what}")

    def source_of(self, element: etree._Element) -> RuleSource:
        """Return where an element begins."""
        path = self._paths[element.getroottree().getroot()]
        return RuleSource(path, line_of(element))

    def find(self, name: str, source: RuleSource) -> etree._Element | None:
        """Return the element that defines a bean; None = a problem is noted at the place."""
        for _ in self._aliases:
            name = self._aliases.get(name, name)
        found = self._by_name.get(name)
        for resource, place, before in self._unread:
            if found is None:
                what = f"no bean has that id; it may be in the imported file {resource} ({place})"
            elif name in before:
                what = f"the imported file {resource} ({place}) may define that bean again"
            else:
                continue
            self.problem(
                source,
                f"refers to #{name}: {what}, which can't be read: put that file beside this file",
            )
            return None
        if found is None:
            self.problem(source, f"refers to #{name}, but no bean has that id")
        return found

    def unread_imports(self) -> list[str]:
        """Return the imported files that can't be read."""
        return [resource for resource, _, _ in self._unread]

    def overrides_of(self, element: etree._Element) -> Iterator[tuple[str, str, RuleSource]]:
        """Yield the properties of a bean that a PropertyOverrideConfigurer sets: name and text."""
        names = self._names.get(element, [])
        for properties in self._overrides:
            for key, text in properties.values.items():
                bean, _, name = key.partition(".")
                if bean in names:
                    yield name, text, properties.source
            for file in properties.unread if names else ():
                self.problem(
                    properties.source,
                    f"{file} may override the bean {names[0]} and can't be read: put that file "
                    "beside this file",
                )

    def expand(self, text: str, source: RuleSource) -> str | None:
        """Return a text with its placeholders filled in; None = a problem is noted."""
        if "#{" in text:
            self.problem(
                source, f"{text} is an expression (SpEL), which is not read: write its value"
            )
            return None
        for _ in range(_MAX_EXPANSIONS):
            is_whole = True

            def fill(found: re.Match[str]) -> str:
                nonlocal is_whole
                value = self._value_of(found[1], source)
                is_whole &= value is not None
                return found[0] if value is None else value

            before, text = text, _PLACEHOLDER.sub(fill, text)
            if not is_whole:
                return None
            if text == before or "${" not in text:
                return text
        self.problem(source, f"placeholders refer to each other without end: {text}")
        return None

    def _value_of(self, placeholder: str, source: RuleSource) -> str | None:
        """Return the text in place of a placeholder; None = a problem is noted."""
        name, has_default, default = placeholder.partition(":")
        name = name.strip()
        for one in self._configurers:
            own, outer = one.values.get(name), find_variable(name, self._environment)
            first, second = (outer, own) if one.is_environment_first else (own, outer)
            value = first if first is not None else second
            if value is not None:
                return value
            if one.unread:
                self.problem(
                    source,
                    f"placeholder ${{{name}}} may be in {one.unread[0]} ({one.source}), which "
                    "can't be read: put that file beside this file, or set the environment "
                    f"variable {variable_of(name)}",
                )
                return None
            if has_default:
                return default
            if not one.keeps_unknown:
                self.problem(
                    source,
                    f"placeholder ${{{name}}} can't be filled in: set the environment variable "
                    f"{variable_of(name)}, or write a default as ${{{name}:value}}",
                )
                return None
        self.warnings.append(
            f"{source}: ${{{placeholder}}} stays as it is written, as in the broker: no "
            "PropertyPlaceholderConfigurer of the file fills it in"
        )
        return f"${{{placeholder}}}"

    # Files

    def _define(self, root: etree._Element, path: str, folder: str) -> None:
        self.roots.append(root)
        self._paths[root] = path
        own: set[str] = set()
        for element in root if local_name(root) == "beans" else (root,):
            if namespace(element).startswith(SPRING) and local_name(element) == "import":
                self._import(element, folder)
            elif namespace(element).startswith(SPRING) and local_name(element) == "alias":
                self._aliases[str(element.get("alias"))] = str(element.get("name"))
            else:
                for name in self._names_in(element):
                    if name in own:
                        self.problem(
                            self.source_of(element),
                            f"the name {name} is used twice here: the broker fails to start",
                        )
                    own.add(name)
                    self._aliases.pop(name, None)
                    self._by_name[name] = element

    def _names_in(self, element: etree._Element) -> list[str]:
        written = [element.get("id"), *_NAME_BREAKS.split(str(element.get("name", "")))]
        if local_name(element) != "bean":
            written = written[:1]
        names = self._names[element] = [str(name) for name in written if name]
        return names

    def _import(self, element: etree._Element, folder: str) -> None:
        resource = str(element.get("resource", ""))
        href = self._href(resource, folder)
        try:
            if len(self.roots) >= _MAX_FILES:
                raise OSError
            data = self._bytes_of(href)
        except OSError:
            place = self.source_of(element)
            self._unread.append((resource, place, frozenset(self._by_name)))
            return
        try:
            path = join(dirname(self._paths[self.roots[0]]), href)
            self._define(read_xml(path, data), path, dirname(href))
        except ConfigError as error:
            self.problems.extend(error.problems)

    def _href(self, resource: str, folder: str) -> str:
        """Return a path relative to the first file; it lies in the broker's `conf`."""
        text = re.sub(r"\$\{activemq\.conf\}/?", "", resource)
        text = _PLACEHOLDER.sub(
            lambda found: find_variable(found[1], self._environment) or found[0], text
        )
        if text.startswith("file:"):
            return text.removeprefix("file:").removeprefix("//")
        return text if text != resource else join(folder, text)

    def _bytes_of(self, href: str) -> bytes:
        if self._read_file is None or ":" in href or "${" in href:
            raise OSError
        return self._read_file(href)

    # Properties

    def _configurer(self, element: etree._Element) -> _Properties:
        found = self._properties(element)
        mode = _plain(element, "systemPropertiesModeName")
        is_file_first = _class(element) == _FILE_FIRST and mode != "SYSTEM_PROPERTIES_MODE_OVERRIDE"
        found.is_environment_first = not is_file_first
        unknown = "ignoreUnresolvablePlaceholders", "ignore-unresolvable"
        found.keeps_unknown = any(_plain(element, name) == "true" for name in unknown)
        return found

    def _properties(self, element: etree._Element) -> _Properties:
        found = _Properties(self.source_of(element))
        for child in element:
            if child.get("name") == "properties":
                self._add_properties(found, child)
        # Why last: values in a file override values written in place.
        for child in element:
            if child.get("name") in ("location", "locations"):
                self._add_files(found, _texts(child))
        self._add_files(found, str(element.get("location", "")).split(","))
        return found

    def _add_properties(self, found: _Properties, element: etree._Element) -> None:
        """Add the properties written in place, or in the `<util:properties>` of an attribute."""
        for one in element.iter("{*}prop"):
            found.values[str(one.get("key"))] = (one.text or "").strip()
        for one in element.iter("{*}value"):
            found.values |= read_properties(one.text or "")
        if element.get("value") is not None:
            found.values |= read_properties(str(element.get("value")))
        target = self._by_name.get(str(element.get("ref")))
        if target is not None and target is not element:
            self._add_properties(found, target)
            self._add_files(found, str(target.get("location", "")).split(","))

    def _add_files(self, found: _Properties, resources: Sequence[str]) -> None:
        for resource in filter(None, map(str.strip, resources)):
            try:
                data = self._bytes_of(self._href(resource, ""))
            except OSError:
                found.unread.append(resource)
            else:
                found.values |= read_properties(data.decode("latin-1"))


def variable_of(name: str) -> str:
    """Return the environment variable that works for a placeholder in every shell."""
    return re.sub(r"[.-]", "_", name).upper()


def find_variable(name: str, environment: Mapping[str, str]) -> str | None:
    """Return the value of a placeholder out of the environment, by its name or `variable_of`."""
    for spelling in (name, re.sub(r"[.-]", "_", name), variable_of(name)):
        if spelling in environment:
            return environment[spelling]
    return None


def _class(element: etree._Element) -> str:
    return str(element.get("class", "")).strip() if local_name(element) == "bean" else ""


def _is_configurer(element: etree._Element) -> bool:
    is_short = local_name(element) == "property-placeholder"
    return is_short or _class(element) in (_FILE_FIRST, _ENVIRONMENT_FIRST)


def _plain(element: etree._Element, name: str) -> str:
    """Return the text of a property or an attribute; empty = it is not given."""
    for child in element:
        if child.get("name") == name:
            return next(iter(_texts(child)), "")
    return str(element.get(name, ""))


def _texts(element: etree._Element) -> list[str]:
    """Return the texts that a property holds, as an attribute or as values."""
    if element.get("value") is not None:
        return str(element.get("value")).split(",")
    return [text for one in element.iter("{*}value") for text in (one.text or "").split(",")]

"""Reads the address settings of a `broker.xml`.

Source: org.apache.activemq.artemis.core.deployers.impl.FileConfigurationParser,
parseAddressSettings, parseWildcardConfiguration; org.apache.activemq.artemis.utils.XMLUtil.
"""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches

from lxml import etree

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.policy.artemis_rules import (
    AddressSettingEntry,
    AddressSettings,
    ArtemisRules,
    WildcardSyntax,
)
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy_source.artemis_warnings import list_warnings
from amqsidecar.policy_source.xml_file import (
    ReadFile,
    line_of,
    local_name,
    namespace,
    read_xml,
    whole_number,
)

_XINCLUDE = "http://www.w3.org/2001/XInclude"
_XML_BASE = "{http://www.w3.org/XML/1998/namespace}base"
_MAX_INCLUDES = 64
_MAX_EXPANSIONS = 1000
_JAVA_BLANKS = "".join(chr(code) for code in range(33))
_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)", re.ASCII
)
_HEX_DOUBLE = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?", re.ASCII
)
_SPECIAL_NAMES = {
    "redelivery-delay": "redelivery_delay_ms",
    "max-redelivery-delay": "max_redelivery_delay_ms",
    "expiry-delay": "expiry_delay_ms",
    "min-expiry-delay": "min_expiry_delay_ms",
    "max-expiry-delay": "max_expiry_delay_ms",
}
_FIELDS = {
    _name: _SPECIAL_NAMES.get(_name, _name.replace("-", "_"))
    for _name in (
        *_SPECIAL_NAMES,
        "max-delivery-attempts",
        "redelivery-delay-multiplier",
        "redelivery-collision-avoidance-factor",
        "dead-letter-address",
        "auto-create-dead-letter-resources",
        "dead-letter-queue-prefix",
        "dead-letter-queue-suffix",
        "expiry-address",
        "auto-create-expiry-resources",
        "expiry-queue-prefix",
        "expiry-queue-suffix",
        "no-expiry",
        "send-to-dla-on-no-route",
    )
}
_TYPES = {field.name: str(field.type).split(" ")[0] for field in fields(AddressSettings)}


def read_broker_xml(
    path: str,
    data: bytes,
    environment: Mapping[str, str],
    read_included: ReadFile | None = None,
) -> ArtemisRules:
    """Return the address settings of a `broker.xml`.

    Args:
        path: file name for messages and rule sources.
        data: the file's bytes.
        environment: where `${name}` is looked up; the broker asks Java's system properties first.
        read_included: reads what `xi:include` names; None = includes are refused.

    Raises:
        ConfigError: with every problem found; also where the broker refuses to start.
    """
    reader = _BrokerXml(path, environment, read_included)
    rules = reader.read(read_xml(path, data))
    problems = list(reader.problems)
    warnings: tuple[str, ...] = ()
    try:
        warnings = list_warnings(rules)
    except ConfigError as error:
        problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return replace(rules, warnings=(*rules.warnings, *warnings))


class _BrokerXml:
    def __init__(
        self, path: str, environment: Mapping[str, str], read_included: ReadFile | None
    ) -> None:
        self._path = path
        self._environment = environment
        self._read_included = read_included
        self._include_count = 0
        self._warnings: list[str] = []
        self.problems: list[Problem] = []

    def read(self, root: etree._Element) -> ArtemisRules:
        self._include(root)
        return ArtemisRules(
            entries=tuple(self._entries(root)),
            wildcards=self._wildcards(root),
            literal_match_markers=self._markers(root),
            warnings=tuple(dict.fromkeys(self._warnings + self._general_warnings(root))),
            source=RuleSource(self._path),
        )

    def _place(self, element: etree._Element) -> RuleSource:
        path = next(
            (
                str(ancestor.get(_XML_BASE))
                for ancestor in (element, *element.iterancestors())
                if ancestor.get(_XML_BASE) is not None
            ),
            self._path,
        )
        return RuleSource(path, line_of(element))

    def _problem(self, element: etree._Element, what: str) -> None:
        self.problems.append(Problem(str(self._place(element)), what))

    def _warn(self, element: etree._Element, what: str) -> None:
        self._warnings.append(f"{self._place(element)}: {what}")

    def _include(self, root: etree._Element) -> None:
        """Replace each `xi:include` by the root element of the file that it names."""
        for element in list(root.iter(f"{{{_XINCLUDE}}}include")):
            href = self._expand(element, str(element.get("href", ""))).removeprefix("file:")
            self._include_count += 1
            if self._include_count > _MAX_INCLUDES:
                self._problem(element, f"more than {_MAX_INCLUDES} files are included")
                return
            if self._read_included is None or "://" in href or element.get("xpointer"):
                self._problem(
                    element, f"xi:include of {href!r} is not supported here; put the text itself"
                )
                continue
            try:
                included = read_xml(href, self._read_included(href))
            except OSError as error:
                self._problem(element, f"included file {href!r} can't be read: {error.strerror}")
                continue
            except ConfigError as error:
                self.problems.extend(error.problems)
                continue
            included.set(_XML_BASE, href)
            parent = element.getparent()
            if parent is not None:
                parent.replace(element, included)
                self._include(included)

    def _entries(self, root: etree._Element) -> list[AddressSettingEntry]:
        found = _named(root, "address-settings")
        for extra in found[1:]:
            self._warn(extra, "a second <address-settings> is ignored, as in the broker")
        entries: dict[str, AddressSettingEntry] = {}
        for element in _named(found[0], "address-setting") if found else ():
            entry = self._entry(element)
            if entry is None:
                continue
            first = entries.setdefault(entry.match, entry)
            if first is not entry:
                self._warn(
                    element,
                    f'a second address-setting match="{entry.match}" is ignored, as in the broker; '
                    f"the first one stands at {first.source}",
                )
        return list(entries.values())

    def _entry(self, element: etree._Element) -> AddressSettingEntry | None:
        match = element.get("match")
        if match is None:
            self._problem(element, "address-setting has no attribute match")
            return None
        values: dict[str, object] = {}
        for child in element:
            name = local_name(child).lower()
            if name in _FIELDS:
                values[_FIELDS[name]] = self._value(child, name)
            else:
                self._warn_about_unknown(child, name)
        settings = AddressSettings(**values)  # type: ignore[arg-type]
        return AddressSettingEntry(
            match=self._expand(element, str(match)), settings=settings, source=self._place(element)
        )

    def _warn_about_unknown(self, child: etree._Element, name: str) -> None:
        if name.startswith(("redelivery", "max-delivery", "max-redelivery", "dead-letter")):
            close = get_close_matches(name, _FIELDS, 1)
            hint = f"; did you mean <{close[0]}>?" if close else ""
            self._warn(child, f"<{name}> is no setting and the broker ignores it{hint}")

    def _value(self, element: etree._Element, name: str) -> object:
        text = self._text(element)
        kind = _TYPES[_FIELDS[name]]
        if kind == "str":
            return text
        if kind == "bool":
            return text.lower() == "true"
        if kind == "float":
            return self._double(element, name, text)
        bits = 32 if name == "max-delivery-attempts" else 64
        return self._integer(element, name, text, bits)

    def _integer(self, element: etree._Element, name: str, text: str, bits: int) -> int | None:
        if not _INTEGER.fullmatch(text):
            self._problem(
                element, f"<{name}>{text}</{name}>: expected a whole number without a unit"
            )
            return None
        value = whole_number(text, bits)
        if value is None:
            self._problem(element, f"<{name}>{text}</{name}>: does not fit into {bits} bits")
            return None
        return value

    def _double(self, element: etree._Element, name: str, text: str) -> float | None:
        if _DOUBLE.fullmatch(text):
            value = float(text.rstrip("fFdD") if text[-1] in "fFdD" else text)
        elif _HEX_DOUBLE.fullmatch(text):
            value = float.fromhex(text.rstrip("fFdD"))
        else:
            self._problem(element, f"<{name}>{text}</{name}>: expected a number such as 2 or 1.5")
            return None
        if name == "redelivery-collision-avoidance-factor" and not 0.0 <= value <= 1.0:
            self._problem(element, f"<{name}>{text}</{name}>: expected a number from 0 to 1")
            return None
        return value

    def _text(self, element: etree._Element) -> str:
        text = "".join(str(part) for part in element.itertext())
        return self._expand(element, text).strip(_JAVA_BLANKS)

    def _expand(self, element: etree._Element, text: str) -> str:
        """Fill in `${name}` and `${name:default}`; an unknown name becomes empty.

        Source: XMLUtil.replaceSystemPropsInString.
        """
        for _ in range(_MAX_EXPANSIONS):
            start = text.find("${")
            end = text.find("}", start) + 1
            if start < 0 or end <= 0:
                return text
            placeholder = text[start:end]
            name, has_default, default = placeholder[2:-1].partition(":")
            value = self._environment.get(name.strip())
            if value is None:
                value = default.strip()
                if not has_default:
                    self._warn(
                        element,
                        f"{placeholder} is not in the environment and has no default: it is "
                        "empty, as in a broker without that Java system property",
                    )
            text = text.replace(placeholder, value)
        self._problem(element, "placeholders refer to each other without end")
        return ""

    def _wildcards(self, root: etree._Element) -> WildcardSyntax:
        found = _named(root, "wildcard-addresses")
        if not found:
            return WildcardSyntax()
        default = WildcardSyntax()
        characters = []
        for name, character in (
            ("delimiter", default.delimiter),
            ("single-word", default.single_word),
            ("any-words", default.any_words),
        ):
            elements = _named(found[0], name)
            text = self._text(elements[0]) if elements else character
            if not text:
                self._problem(elements[0], f"<{name}> of wildcard-addresses is empty")
            elif len(text) > 1:
                self._warn(elements[0], f"only the first character of <{name}>{text} counts")
            characters.append(text[:1] or character)
        return WildcardSyntax(
            delimiter=characters[0], single_word=characters[1], any_words=characters[2]
        )

    def _markers(self, root: etree._Element) -> str | None:
        found = _named(root, "literal-match-markers")
        if not found:
            return None
        text = self._text(found[0])
        if len(text) != 2:
            self._problem(
                found[0], f"<literal-match-markers>{text}: expected exactly two characters"
            )
            return None
        return text

    def _general_warnings(self, root: etree._Element) -> list[str]:
        return [
            f"{self._place(element)}: uuid-namespace is not applied here: settings of addresses "
            "that are named by a UUID are looked up without it"
            for element in _named(root, "uuid-namespace")
            if self._text(element)
        ]


def _named(element: etree._Element, name: str) -> list[etree._Element]:
    """Return the descendants of that name, in any namespace but XInclude's."""
    return [
        found
        for found in element.iter(f"{{*}}{name}")
        if found is not element and namespace(found) != _XINCLUDE
    ]

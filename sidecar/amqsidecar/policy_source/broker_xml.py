"""Reads the address settings of a `broker.xml`.

Source: org.apache.activemq.artemis.core.deployers.impl.FileConfigurationParser,
parseAddressSettings, parseWildcardConfiguration; org.apache.activemq.artemis.utils.XMLUtil.
"""

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from posixpath import dirname, join

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

_CORE = "urn:activemq:core"
_XINCLUDE = "http://www.w3.org/2001/XInclude"
_FILE = "{urn:amqsidecar}file"
"""Attribute of the root of an included file that names the file."""
_MAX_INCLUDES = 64
_MAX_EXPANSIONS = 1000
ENDLESS = "placeholders refer to each other without end"
_JAVA_BLANKS = "".join(chr(code) for code in range(33))
_INTEGER = re.compile(r"[+-]?\d+")
# Why neither a suffix nor infinity: the broker's schema or its parser refuses them.
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|NaN", re.ASCII)
_BOOLEANS = {"true": True, "false": False, "1": False, "0": False}
"""Quirk (Artemis 2.x): its schema takes 1, its parser reads it as false."""
_OTHER_NAMES = """
address-full-policy auto-create-addresses auto-create-jms-queues auto-create-jms-topics
auto-create-queues auto-delete-addresses auto-delete-addresses-delay
auto-delete-addresses-skip-usage-check auto-delete-created-queues auto-delete-jms-queues
auto-delete-jms-topics auto-delete-queues auto-delete-queues-delay
auto-delete-queues-message-count auto-delete-queues-skip-usage-check config-delete-addresses
config-delete-diverts config-delete-queues default-address-routing-type
default-consumer-window-size default-consumers-before-dispatch default-delay-before-dispatch
default-exclusive-queue default-group-buckets default-group-first-key default-group-rebalance
default-group-rebalance-pause-dispatch default-last-value-key default-last-value-queue
default-max-consumers default-non-destructive default-purge-on-no-consumers
default-queue-routing-type default-ring-size disk-full-policy enable-ingress-timestamp
enable-metrics id-cache-size initial-queue-buffer-size last-value-queue
management-browse-page-size management-message-attribute-size-limit max-read-page-bytes
max-read-page-messages max-size-bytes max-size-bytes-reject-threshold max-size-messages
message-counter-history-day-limit page-full-policy page-limit-bytes page-limit-messages
page-max-cache-size page-size-bytes prefetch-page-bytes prefetch-page-messages
redistribution-delay retroactive-message-count slow-consumer-check-period slow-consumer-policy
slow-consumer-threshold slow-consumer-threshold-measurement-unit
"""
"""Source: artemis-configuration.xsd of 2.44 to 2.57, without `SETTINGS`."""
_OTHERS = frozenset(_OTHER_NAMES.split())
_ACTING = ("redelivery", "max-delivery", "max-redelivery", "dead-letter", "expiry", "no-expiry")
"""Beginnings of the names of settings that act on dead letters."""
_SPECIAL_NAMES = {
    "redelivery-delay": "redelivery_delay_ms",
    "max-redelivery-delay": "max_redelivery_delay_ms",
    "expiry-delay": "expiry_delay_ms",
    "min-expiry-delay": "min_expiry_delay_ms",
    "max-expiry-delay": "max_expiry_delay_ms",
}
SETTINGS = {
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
"""The field of each element."""
SETTING_TYPES = {field.name: str(field.type).split(" ")[0] for field in fields(AddressSettings)}


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
        read_included: reads the files of `xi:include`; None = includes are refused.

    Raises:
        ConfigError: with every problem found; also where the broker refuses to start.
    """
    reader = _BrokerXml(path, environment, read_included)
    rules = reader.read(data)
    problems = list(reader.problems)
    warnings: tuple[str, ...] = ()
    try:
        warnings = list_warnings(rules)
    except ConfigError as error:
        problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return replace(rules, warnings=(*rules.warnings, *warnings))


def fill_placeholders(
    text: str, environment: Mapping[str, str], warn: Callable[[str], None]
) -> str | None:
    """Fill in `${name}` and `${name:default}`; an unknown name becomes empty, with a warning.

    Returns None where placeholders refer to each other without end. Source:
    XMLUtil.replaceSystemPropsInString.
    """
    for _ in range(_MAX_EXPANSIONS):
        start = text.find("${")
        end = text.find("}", start) + 1
        if start < 0 or end <= 0:
            return text
        placeholder = text[start:end]
        name, has_default, default = placeholder[2:-1].partition(":")
        value = environment.get(name.strip())
        if value is None:
            value = default.strip()
            if not has_default:
                warn(
                    f"{placeholder} is not in the environment and has no default: it is "
                    "empty, as in a broker without that Java system property"
                )
        text = text.replace(placeholder, value)
    return None


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

    def read(self, data: bytes) -> ArtemisRules:
        if data.startswith(codecs.BOM_UTF8):
            what = "begins with a byte order mark, so the broker fails to start: save it without"
            self.problems.append(Problem(f"{self._path}:1", what))
        # Why so: the broker reads UTF-8 whatever the file declares.
        text = data.decode("utf-8-sig", "replace").encode()
        root = read_xml(self._path, text, encoding="utf-8", resolver=_Includes(self))
        self._include(root)
        core = next(iter(_named(root, "core")), None)
        if core is None:
            self._warnings.append(
                f"{self._path}:1: has no <core> without a prefix inside its root element, so the "
                "broker takes no setting from it"
            )
            return ArtemisRules(warnings=tuple(self._warnings), source=RuleSource(self._path))
        self._check_namespace(core)
        return ArtemisRules(
            entries=tuple(self._entries(core)),
            wildcards=self._wildcards(core),
            literal_match_markers=self._markers(core),
            warnings=tuple(dict.fromkeys(self._warnings + self._general_warnings(core))),
            source=RuleSource(self._path),
        )

    def included(self, href: str) -> bytes:
        """Return an included file, with its own includes as the broker sees them.

        Raises:
            OSError: it can't be read.
        """
        self._include_count += 1
        if self._include_count > _MAX_INCLUDES:
            raise OSError(f"more than {_MAX_INCLUDES} files are included")
        if self._read_included is None or "://" in href:
            raise OSError("only files are read")
        try:
            root = read_xml(join(dirname(self._path), href), self._read_included(href))
        except ConfigError as error:
            self.problems.extend(error.problems)
            raise OSError("it is no XML") from error
        root.set(_FILE, href)
        self._expand_includes(root)
        return etree.tostring(root)

    def _expand_includes(self, root: etree._Element) -> None:
        for element in root.iter(f"{{{_XINCLUDE}}}include"):
            href = self._expand(element, str(element.get("href", ""))).removeprefix("file:")
            element.set("href", href)

    def _include(self, root: etree._Element) -> None:
        """Replace each `xi:include`, as XML Inclusions 1.0 says."""
        self._expand_includes(root)
        try:
            root.getroottree().xinclude()
        except etree.XIncludeError as error:
            what = f"xi:include fails: {error}; put the included file beside this file"
            self.problems.append(Problem(self._path, what))

    def _check_namespace(self, element: etree._Element) -> None:
        if namespace(element) != _CORE:
            self._problem(
                element,
                f'<{local_name(element)}> has not the namespace "{_CORE}", so the broker fails to '
                "start",
            )

    def _place(self, element: etree._Element) -> RuleSource:
        files = (one.get(_FILE) for one in (element, *element.iterancestors()))
        return RuleSource(str(next(filter(None, files), self._path)), line_of(element))

    def _problem(self, element: etree._Element, what: str) -> None:
        self.problems.append(Problem(str(self._place(element)), what))

    def _warn(self, element: etree._Element, what: str) -> None:
        self._warnings.append(f"{self._place(element)}: {what}")

    def _entries(self, core: etree._Element) -> list[AddressSettingEntry]:
        for element in core.iter(f"{{{_CORE}}}*"):
            if element.prefix and local_name(element) in (*SETTINGS, "address-setting"):
                self._warn(
                    element,
                    f"the broker ignores <{element.prefix}:{local_name(element)}>: it has a prefix",
                )
        found = _named(core, "address-settings")
        for extra in found[1:]:
            self._problem(extra, "a second <address-settings>: the broker fails to start")
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
        for name in map(str, element.attrib):
            if name != "match" and not name.startswith("{"):
                what = f"address-setting has no attribute {name}: the broker fails to start"
                self._problem(element, what)
        match = element.get("match")
        if match is None:
            self._problem(element, "address-setting has no attribute match")
            return None
        values: dict[str, object] = {}
        for child in element:
            name = local_name(child)
            if child.prefix:
                continue
            self._check_namespace(child)
            if name not in SETTINGS:
                self._note_unknown(child, name)
            elif SETTINGS[name] in values:
                self._problem(child, f"a second <{name}>: the broker fails to start")
            else:
                values[SETTINGS[name]] = self._value(child, name)
        settings = AddressSettings(**values)  # type: ignore[arg-type]
        return AddressSettingEntry(
            match=self._expand(element, str(match)), settings=settings, source=self._place(element)
        )

    def _note_unknown(self, child: etree._Element, name: str) -> None:
        if name.lower().startswith(_ACTING):
            close = get_close_matches(name.lower(), SETTINGS, 1)
            hint = f"; did you mean <{close[0]}>?" if close else ""
            self._problem(child, f"<{name}> is no setting, so the broker fails to start{hint}")
        elif name not in _OTHERS:
            what = f"<{name}> is not known here: a broker whose schema lacks it fails to start"
            self._warn(child, what)

    def _value(self, element: etree._Element, name: str) -> object:
        text = self._text(element)
        kind = SETTING_TYPES[SETTINGS[name]]
        if kind == "str":
            return text
        if kind == "bool":
            if text not in _BOOLEANS:
                self._problem(element, f"<{name}>{text}</{name}>: expected true or false")
            return _BOOLEANS.get(text)
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
        if not _DOUBLE.fullmatch(text):
            self._problem(element, f"<{name}>{text}</{name}>: expected a number such as 2 or 1.5")
            return None
        value = float(text)
        if name == "redelivery-collision-avoidance-factor" and not 0.0 <= value <= 1.0:
            self._problem(element, f"<{name}>{text}</{name}>: expected a number from 0 to 1")
            return None
        return value

    def _text(self, element: etree._Element) -> str:
        text = "".join(str(part) for part in element.itertext())
        return self._expand(element, text).strip(_JAVA_BLANKS)

    def _expand(self, element: etree._Element, text: str) -> str:
        filled = fill_placeholders(text, self._environment, lambda what: self._warn(element, what))
        if filled is None:
            self._problem(element, ENDLESS)
        return filled or ""

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


class _Includes(etree.Resolver):
    """Reads included files for the parser."""

    def __init__(self, reader: _BrokerXml) -> None:
        self._reader = reader

    def resolve(  # type: ignore[override] # the stubs lack the context
        self, system_url: str, public_id: str, context: object
    ) -> object:
        try:
            content = self._reader.included(system_url)
        except OSError:
            # Why another: where nothing is returned, the parser reads the file itself.
            return self.resolve_filename("", context)  # type: ignore[attr-defined]
        return self.resolve_string(content, context, base_url=system_url)


def _named(element: etree._Element, name: str) -> list[etree._Element]:
    """Return the descendants of that name; the broker ignores elements with a prefix."""
    found = element.iter(f"{{*}}{name}")
    return [one for one in found if one is not element and one.prefix is None]

"""Address settings of an address: matching, order and merging, as Artemis does it.

Rules of this module:
- an entry applies to an address, never to a queue: both keys are cut at `::`;
- the exact entry comes first, then the literal one, then the wild ones by `_compare`;
- each later entry only fills what is still unset; defaults are applied after merging.

Where the broker's comparison leaves two wild matches equal, the broker takes them in the iteration
order of two java.util.HashMap objects. That order is a function of the texts alone, so
`_java_hash_map_order` computes it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from functools import cmp_to_key, lru_cache
from itertools import takewhile
from typing import Any

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.policy.artemis_rules import (
    AddressSettingEntry,
    AddressSettings,
    ArtemisRules,
    WildcardSyntax,
)
from amqsidecar.policy.java_regex.java_regex import (
    JavaRegexError,
    JavaRegexTimeout,
    compile_java_regex,
)

_FIELDS = tuple(field.name for field in fields(AddressSettings))
_DECIDING = (
    "max_delivery_attempts",
    "redelivery_delay_ms",
    "dead_letter_address",
    "expiry_address",
)
_ESCAPE = "\\"
_LINE_ENDS = "\n\r\u0085\u2028\u2029"
_REGEX_OPERATORS = frozenset("\\^$.|?*+()[]{}")
_MEMO_SIZE = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSettings:
    """The settings that act on one address, merged, and the broker's defaults for the rest.

    Attributes:
        address: the address that was looked up, without `::queue`.
        max_delivery_attempts: 0 and negative = unlimited.
        redelivery_delay_ms: acts only above 0.
        max_redelivery_delay_ms: the cap; ten times the delay unless written.
        dead_letter_address: None = none; "" = an empty element, with the same fate.
        expiry_address: as above.
        decided_by: name of a field to the entry that set it; a field with its default is absent.
        is_live: the broker's own settings filled what the rules leave unset; False = nobody asked
            the broker, and its defaults are assumed.

    Source: org.apache.activemq.artemis.core.settings.impl.AddressSettings (its getters).
    """

    address: str
    max_delivery_attempts: int = 10
    redelivery_delay_ms: int = 0
    redelivery_delay_multiplier: float = 1.0
    redelivery_collision_avoidance_factor: float = 0.0
    max_redelivery_delay_ms: int
    dead_letter_address: str | None = None
    auto_create_dead_letter_resources: bool = False
    dead_letter_queue_prefix: str = "DLQ."
    dead_letter_queue_suffix: str = ""
    expiry_address: str | None = None
    auto_create_expiry_resources: bool = False
    expiry_queue_prefix: str = "EXP."
    expiry_queue_suffix: str = ""
    expiry_delay_ms: int = -1
    min_expiry_delay_ms: int = -1
    max_expiry_delay_ms: int = -1
    no_expiry: bool = False
    send_to_dla_on_no_route: bool = False
    decided_by: Mapping[str, AddressSettingEntry]
    is_live: bool = False

    @property
    def assumed(self) -> str:
        """The settings about dead letters that have an assumed default; "" = none."""
        if self.is_live:
            return ""
        return ", ".join(xml_name(name) for name in _DECIDING if name not in self.decided_by)

    @property
    def dead_letter_queue(self) -> str | None:
        """The queue that the broker creates on the dead-letter address; None = it creates none."""
        if not self.auto_create_dead_letter_resources:
            return None
        return _created_queue(
            self.dead_letter_address,
            f"{self.dead_letter_queue_prefix}{self.address}{self.dead_letter_queue_suffix}",
        )

    def rule(self, *names: str) -> str:
        """Return the sources of the named fields, for operators: match, value, file and line.

        Example:
            `address-setting match="orders.#" max-delivery-attempts=3 (broker.xml:41)`
        """
        texts: dict[int, list[str]] = {}
        sources: dict[int, AddressSettingEntry] = {}
        defaults = []
        for name in names:
            text = f"{xml_name(name)}={_text(getattr(self, name))}"
            entry = self.decided_by.get(name)
            if entry is None:
                defaults.append(text)
            else:
                texts.setdefault(id(entry), []).append(text)
                sources[id(entry)] = entry
        parts = [
            f'address-setting match="{sources[key].match}" {" ".join(values)}'
            f" ({sources[key].source})"
            for key, values in texts.items()
        ]
        if defaults:
            parts.append(f"broker default {' '.join(defaults)}")
        return "; ".join(parts)


class CompiledAddressSettings:
    """Finds the settings of an address; pure, and the same answer for the same address."""

    def __init__(
        self,
        exact: Mapping[str, AddressSettingEntry],
        literal: Mapping[str, AddressSettingEntry],
        wild: Sequence["_WildMatch"],
        syntax: WildcardSyntax,
        live: Mapping[str, AddressSettingEntry],
    ) -> None:
        self._live = live
        self._exact = exact
        self._literal = literal
        self._delimiter = syntax.delimiter
        self._by_first_words: dict[tuple[str, ...], list[_WildMatch]] = {}
        for match in wild:
            self._by_first_words.setdefault(match.first_words, []).append(match)
        self._longest = max(map(len, self._by_first_words), default=0)
        self._syntax = syntax
        self.effective: Callable[[str], EffectiveSettings] = lru_cache(_MEMO_SIZE)(self._effective)
        """Return the settings of an address or fully qualified queue name; memoised, bounded."""

    @classmethod
    def of_broker(cls, live: Mapping[str, AddressSettingEntry]) -> "CompiledAddressSettings":
        """Return the lookup of a broker's own settings, by address."""
        return cls({}, {}, (), WildcardSyntax(), live)

    def over(self, live: Mapping[str, AddressSettingEntry]) -> "CompiledAddressSettings":
        """Return these settings with a broker's own, by address, below them."""
        compiled = copy(self)
        compiled._live = live  # noqa: SLF001 - of the same class
        compiled.effective = lru_cache(_MEMO_SIZE)(compiled._effective)  # noqa: SLF001 - as above
        return compiled

    def entries_of(self, address: str) -> list[AddressSettingEntry]:
        """Return the entries that match an address, most specific first.

        Source: org.apache.activemq.artemis.core.settings.impl.HierarchicalObjectRepository,
        getMatches.
        """
        address = _address_of(address)
        found = [table[address] for table in (self._exact, self._literal) if address in table]
        words = tuple(address.split(self._delimiter, self._longest)[: self._longest])
        wild = [
            candidate
            for count in range(len(words) + 1)
            for candidate in self._by_first_words.get(words[:count], ())
            if candidate.matches(address)
        ]
        if len(wild) > 1:
            wild.sort(key=lambda candidate: candidate.hash_map_rank)
            wild.sort(key=cmp_to_key(self._compare))
        found.extend(candidate.entry for candidate in wild)
        return found

    def _compare(self, one: "_WildMatch", other: "_WildMatch") -> int:
        return _compare(one.match, other.match, self._syntax)

    def _effective(self, address: str) -> EffectiveSettings:
        values: dict[str, Any] = {}
        decided_by: dict[str, AddressSettingEntry] = {}
        live = self._live.get(_address_of(address))
        for entry in (*self.entries_of(address), *(() if live is None else (live,))):
            for name in _FIELDS:
                value = getattr(entry.settings, name)
                if value is not None and name not in values:
                    values[name] = value
                    decided_by[name] = entry
        ten_delays_ms = _wrap_int64(values.get("redelivery_delay_ms", 0) * 10)
        return EffectiveSettings(
            address=_address_of(address),
            **({"max_redelivery_delay_ms": ten_delays_ms} | values),
            decided_by=decided_by,
            is_live=live is not None,
        )


def compile_address_settings(rules: ArtemisRules) -> CompiledAddressSettings:
    """Return the lookup of a set of address settings.

    Raises:
        ConfigError: with every match that the broker refuses at its start.

    Source: org.apache.activemq.artemis.core.settings.impl.HierarchicalObjectRepository, addMatch;
    ActiveMQServerImpl, AddressSettingsMatchModifier.
    """
    problems: list[Problem] = []
    exact: dict[str, AddressSettingEntry] = {}
    literal: dict[str, AddressSettingEntry] = {}
    wild: dict[str, AddressSettingEntry] = {}
    matchers: dict[str, Callable[[str], bool]] = {}
    first_entries: dict[str, AddressSettingEntry] = {}
    for entry in rules.entries:
        first_entries.setdefault(entry.match, entry)
    for text in _java_hash_map_order(first_entries):
        entry = first_entries[text]
        try:
            match, is_literal = _strip_markers(text, rules.literal_match_markers)
            match = _address_of(match)
            matchers[match] = _compile_match(match, rules.wildcards)
        except ValueError as error:
            problems.append(Problem(str(entry.source), f'address-setting match="{text}": {error}'))
            continue
        if is_literal:
            literal[match] = entry
        elif _is_wild(match, rules.wildcards):
            wild[match] = entry
        else:
            exact[match] = entry
    if problems:
        raise ConfigError(sorted(problems, key=lambda problem: problem.where))
    return CompiledAddressSettings(
        exact,
        literal,
        [
            _WildMatch(
                match, wild[match], matchers[match], _first_words(match, rules.wildcards), rank
            )
            for rank, match in enumerate(_java_hash_map_order(wild))
        ],
        rules.wildcards,
        rules.live,
    )


@dataclass(frozen=True, slots=True)
class _WildMatch:
    match: str
    entry: AddressSettingEntry
    matches: Callable[[str], bool]
    first_words: tuple[str, ...]
    hash_map_rank: int


def _created_queue(target: str | None, name: str) -> str | None:
    # Quirk (Artemis): a fully qualified dead-letter address names the queue itself.
    return (target.split("::", 1)[1] if "::" in target else name) if target else None


def _wrap_int64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def _address_of(name: str) -> str:
    return name.split("::", 1)[0]


def _strip_markers(match: str, markers: str | None) -> tuple[str, bool]:
    if markers is None:
        return match, False
    if not match:
        raise ValueError("an empty match is refused by the broker when literal-match-markers is on")
    if match[0] != markers[0] or match[-1] != markers[1]:
        return match, False
    if len(match) < 2:
        raise ValueError(f"nothing stands between the literal match markers {markers}")
    return match[1:-1], True


def _is_wild(match: str, syntax: WildcardSyntax) -> bool:
    """Return whether a match holds a wildcard character without a backslash before it.

    Source: org.apache.activemq.artemis.core.config.WildcardConfiguration, isWild.
    """
    special = (syntax.single_word, syntax.any_words)
    return any(
        character in special and (index == 0 or match[index - 1] != _ESCAPE)
        for index, character in enumerate(match)
    )


def _compile_match(match: str, syntax: WildcardSyntax) -> Callable[[str], bool]:
    """Return a predicate on addresses; ValueError where the broker refuses to start.

    Source: org.apache.activemq.artemis.core.settings.impl.Match, constructor and verify.
    """
    if syntax.any_words in match[:-1]:
        raise ValueError(
            f"{syntax.any_words} (any words) may only be the last character of a match; "
            "the broker refuses to start with it"
        )
    if _is_plain(match, syntax):
        return _plain_matcher(match, syntax)
    return _regex_matcher(match, syntax)


def _is_plain(match: str, syntax: WildcardSyntax) -> bool:
    """Return whether nothing in a match can act as a live regular expression."""
    special = {syntax.delimiter, syntax.single_word, syntax.any_words}
    if len(special) < 3 or special & (_REGEX_OPERATORS - {".", "*", "+"} | set("QE" + _LINE_ENDS)):
        return False
    if syntax.single_word == "." or syntax.any_words in ".+":
        return False
    text = match.replace(syntax.single_word, "").replace(syntax.any_words, "")
    return not set(text) & (_REGEX_OPERATORS - {".", "$"})


def _plain_matcher(match: str, syntax: WildcardSyntax) -> Callable[[str], bool]:
    delimiter = syntax.delimiter
    if match == syntax.any_words:
        return lambda address: not any(end in address for end in _LINE_ENDS)
    has_tail = match.endswith(syntax.any_words)
    if has_tail:
        match = match.removesuffix(syntax.any_words).removesuffix(delimiter)
    words = [_word_matcher(word, syntax.single_word) for word in match.split(delimiter)]
    count = len(words)

    def matches(address: str) -> bool:
        parts = address.split(delimiter, count)
        if len(parts) > count:
            tail = parts.pop()
            if not has_tail or not tail or any(end in tail for end in _LINE_ENDS):
                return False
        if len(parts) < count:
            return False
        # Why no generator: a thousand settings ask this a million times.
        for word, part in zip(words, parts, strict=True):  # noqa: SIM110
            if not word(part):
                return False
        return True

    return matches


def _word_matcher(word: str, single_word: str) -> Callable[[str], bool]:
    if single_word not in word:
        return word.__eq__
    if word == single_word:
        return bool
    pieces = word.split(single_word)

    def matches(text: str) -> bool:
        first, *middle, last = pieces
        if not text.startswith(first) or not text.endswith(last):
            return False
        position = len(first)
        for piece in middle:
            position = text.find(piece, position + 1)
            if position < 0:
                return False
            position += len(piece)
        return len(text) - len(last) > position

    return matches


def _regex_matcher(match: str, syntax: WildcardSyntax) -> Callable[[str], bool]:
    wildcards = (syntax.single_word, syntax.any_words)
    if match == syntax.any_words:
        text = ".*"
    else:
        delimiter = f"\\Q{syntax.delimiter}\\E"
        text = match.replace(syntax.delimiter + syntax.any_words, syntax.any_words)
        text = text.replace(".", "\\.")
        if "$" not in wildcards:
            text = text.replace("$", "\\$")
        text = text.replace(syntax.single_word, f"[^{delimiter}]+")
        text = text.replace(syntax.any_words, f"({delimiter}.+)*")
    try:
        compiled = compile_java_regex(text + "$")
    except JavaRegexError as error:
        raise ValueError(
            f"the broker reads it as the regular expression {text}$, which can't be used: {error}"
        ) from error

    def matches(address: str) -> bool:
        try:
            return compiled.matches(address)
        except JavaRegexTimeout:
            # Why: a wild match that hangs the broker must not hang the sidecar; it counts as none.
            return False

    return matches


def _first_words(match: str, syntax: WildcardSyntax) -> tuple[str, ...]:
    """Return the words that every address of a match begins with; empty = nothing is known."""
    if not _is_plain(match, syntax) or match == syntax.any_words:
        return ()
    if match.endswith(syntax.any_words):
        match = match.removesuffix(syntax.any_words).removesuffix(syntax.delimiter)
    words = match.split(syntax.delimiter)
    return tuple(takewhile(lambda word: syntax.single_word not in word, words))


def _compare(one: str, other: str, syntax: WildcardSyntax) -> int:
    """Return a negative number where `one` is the more specific match.

    Source: HierarchicalObjectRepository.MatchComparator, compare.
    """
    any_words, single_word = syntax.any_words, syntax.single_word
    if (any_words in one) != (any_words in other):
        return 1 if any_words in one else -1
    if any_words in one:
        return _java_length(other) - _java_length(one)
    left_words, right_words = (_java_split(text, syntax.delimiter) for text in (one, other))
    for index, left in enumerate(left_words):
        if index >= len(right_words):
            return -1
        right = right_words[index]
        if (left == single_word) != (right == single_word):
            return 1 if left == single_word else -1
    return _java_length(one) - _java_length(other)


def _java_split(text: str, delimiter: str) -> list[str]:
    """Split as java.lang.String.split does: empty words at the end are dropped."""
    words = text.split(delimiter)
    while len(words) > 1 and not words[-1]:
        words.pop()
    return [] if words == [""] and text else words


def _java_length(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)


def _java_hash_map_order(texts: Iterable[str]) -> list[str]:
    """Return texts in the iteration order of a java.util.HashMap filled with them in this order."""
    texts = list(texts)
    capacity = 16
    while len(texts) > capacity * 3 // 4:
        capacity *= 2
    return sorted(texts, key=lambda text: _java_hash(text) & (capacity - 1))


def _java_hash(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for index in range(0, len(units), 2):
        code = (code * 31 + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return code ^ code >> 16


def xml_name(name: str) -> str:
    """Return the element's name of a field in a `broker.xml`."""
    return name.removesuffix("_ms").replace("_", "-")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return '"' + value + '"' if isinstance(value, str) else str(value)

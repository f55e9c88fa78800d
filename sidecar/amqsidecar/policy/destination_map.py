"""The entry of a destination map for a destination, exactly as the broker chooses it.

Three steps, as in the broker: a tree finds the entries that may match, each entry's own filter has
the last word, and a comparison of the matching entries picks one. The broker's comparison is not an
order: for some pairs each pattern "is more general" than the other, and three patterns can beat
each other in a circle. There the broker's choice hangs on identity hash codes, that is on chance,
per start. Here such a choice is always: most literal segments, then a pattern without `>` at its
end, then most segments, then by text as in the broker, then the entry that stands first in the
file; `list_ambiguities` names every such case.

Source: org.apache.activemq.filter.DestinationMap, DestinationMapNode, DestinationFilter;
org.apache.activemq.command.ActiveMQDestination.compare.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Generic, TypeVar

from amqsidecar.model.destination import Destination, DestinationKind

V = TypeVar("V")

MEMO_SIZE = 8192
"""Destinations whose entry is remembered by one map."""

MAX_LISTED_PAIRS = 1000
MAX_LISTED_CIRCLES = 100
"""Pairs, and circles of three, that `list_ambiguities` names before it stops looking for more."""

_ATTRIBUTES = {
    DestinationKind.QUEUE: "queue",
    DestinationKind.TOPIC: "topic",
    DestinationKind.TEMP_QUEUE: "tempQueue",
    DestinationKind.TEMP_TOPIC: "tempTopic",
}


def describe_pattern(destinations: Sequence[Destination]) -> str:
    """Return the attribute that an operator would write for a pattern.

    Example:
        >>> from amqsidecar.model.destination import queue
        >>> describe_pattern([queue("A.>"), queue("B")])
        'queue="A.>,B"'
    """
    return f'{_ATTRIBUTES[destinations[0].kind]}="{_composite_text(destinations)}"'


def _composite_text(destinations: Sequence[Destination]) -> str:
    own_kind = destinations[0].kind
    return ",".join(part.name if part.kind == own_kind else str(part) for part in destinations)


@dataclass(frozen=True, slots=True)
class _Part:
    """One destination of an entry, taken apart."""

    destination: Destination
    segments: tuple[str, ...]
    min_extra: int | None

    @property
    def is_literal(self) -> bool:
        return self.min_extra is None and "*" not in self.segments


def _take_apart(destination: Destination) -> _Part:
    segments = destination.name.split(".")
    if segments[-1] != ">":
        return _Part(destination, tuple(segments), None)
    tail = 0
    while segments and segments[-1] == ">":
        segments.pop()
        tail += 1
    # Quirk (Classic 5.x): the tree doesn't descend below `A.>` for `A` itself, so `A.>.>` matches
    # `A.B` but not `A`, though the filter of both is the same.
    return _Part(destination, tuple(segments), 0 if tail == 1 or not segments else 1)


def _segment_overlap(left: str, right: str) -> str | None:
    if right in (left, "*"):
        return left
    return right if left == "*" else None


def _overlap(left: _Part, right: _Part) -> _Part | None:
    """Return the pattern of the destinations that both match; None = there is none."""
    if left.destination.kind != right.destination.kind:
        return None
    short, long = sorted((left, right), key=lambda part: len(part.segments))
    missing = len(long.segments) - len(short.segments)
    extra: int | None
    if short.min_extra is None:
        if missing or (long.min_extra or 0) > 0:
            return None
        extra = None
    elif long.min_extra is None:
        if missing < short.min_extra:
            return None
        extra = None
    else:
        extra = max(long.min_extra, short.min_extra - missing)
    merged = []
    for index, segment in enumerate(long.segments):
        other = short.segments[index] if index < len(short.segments) else "*"
        common = _segment_overlap(segment, other)
        if common is None:
            return None
        merged.append(common)
    name = ".".join(merged if extra is None else [*merged, ">"])
    return _Part(Destination(left.destination.kind, name), tuple(merged), extra)


def have_overlap(left: Destination, right: Destination) -> bool:
    """Return whether a destination may match both patterns."""
    return _overlap(_take_apart(left), _take_apart(right)) is not None


def _borrowed_parts(parts: Sequence[_Part]) -> Iterator[_Part]:
    """Yield the matches of a composite that none of its parts has alone.

    Quirk (Classic 5.x): the tree finds an entry by any part, and the filter may accept it by
    another. So `A.>.>,>.X` matches `A`: the tree finds it by `>.X`, which it takes for `>`, and the
    filter of `A.>.>` matches.
    """
    for filtering, finding in product(parts, parts):
        segments = finding.destination.name.split(".")
        if filtering.min_extra != 1 or ">" not in segments[:-1]:
            continue
        found = _Part(finding.destination, tuple(segments[: segments.index(">")]), 1)
        common = _overlap(_Part(filtering.destination, filtering.segments, None), found)
        if common is not None:
            yield common


class _Pattern:
    """An entry's destination as `ActiveMQDestination.compare` sees it."""

    __slots__ = (
        "destination",
        "is_composite",
        "is_pattern",
        "parts",
        "rank",
        "segments",
        "sort_key",
    )

    def __init__(self, destinations: Sequence[Destination], index: int) -> None:
        self.is_composite = len(destinations) > 1
        self.destination = Destination(destinations[0].kind, _composite_text(destinations))
        text = self.destination.name
        # Quirk (Classic 5.x): any `*` or `>` in the name makes it a pattern for the comparison,
        # also inside a segment, where it matches only itself. A composite is never a pattern.
        self.is_pattern = not self.is_composite and ("*" in text or ">" in text)
        self.segments = text.split(".")
        # Why: Java compares UTF-16 code units; big-endian bytes sort the same way.
        self.sort_key = text.encode("utf-16-be", "surrogatepass")
        self.parts = tuple(_take_apart(part) for part in destinations)
        literal_count = max(sum(segment != "*" for segment in part.segments) for part in self.parts)
        is_open = all(part.min_extra is not None for part in self.parts)
        segment_count = max(len(part.segments) for part in self.parts)
        self.rank = (-literal_count, is_open, -segment_count, self.sort_key, index)
        if self.is_composite:
            self.parts += tuple(_borrowed_parts(self.parts))

    @property
    def is_exact(self) -> bool:
        """Whether it can match nothing but its own text, and then comes before all others."""
        return not self.is_composite and self.parts[0].is_literal

    def covers(self, other: "_Pattern") -> bool:
        """Whether this pattern's filter matches the text of the other one.

        Source: PrefixDestinationFilter, WildcardDestinationFilter, SimpleDestinationFilter.
        """
        part, theirs = self.parts[0], other.segments
        if part.min_extra is not None:
            # Quirk (Classic 5.x): under a `>` pattern a `*` in the *other* text matches anything.
            return len(theirs) >= len(part.segments) and all(
                "*" in (mine, their) or mine == their
                for mine, their in zip(part.segments, theirs, strict=False)
            )
        if part.is_literal:
            return self.destination == other.destination and not other.is_composite
        return len(theirs) == len(part.segments) and all(
            mine in ("*", their) for mine, their in zip(part.segments, theirs, strict=True)
        )


def _compare(left: _Pattern, right: _Pattern) -> int:
    """Return below 0 when the broker puts `left` first, above 0 when `right`; not antisymmetric.

    Source: ActiveMQDestination.compare.
    """
    if left.destination.kind != right.destination.kind:
        return -1 if left.destination.is_queue else 1
    if left.is_pattern and right.is_pattern and left.sort_key == right.sort_key:
        return 0
    if left.is_pattern and left.covers(right):
        return 1
    if right.is_pattern and right.covers(left):
        return -1
    if left.sort_key == right.sort_key:
        return 0
    return -1 if left.sort_key < right.sort_key else 1


def _beats(left: _Pattern, right: _Pattern) -> bool:
    """Whether `left` comes first whichever of the two the broker looks at first."""
    return _compare(left, right) < 0 < _compare(right, left)


@dataclass(slots=True)
class _Node:
    children: dict[str, "_Node"] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    opens: list[int] = field(default_factory=list)
    opens_below: list[int] = field(default_factory=list)

    def values_with_extra(self, min_extra: int) -> Iterator[int]:
        """Yield values at or below this node that match at least `min_extra` more segments."""
        if not min_extra:
            yield from self.ends
        yield from self.opens
        yield from self.opens_below
        for child in self.children.values():
            yield from child.values_with_extra(0)


class _Trees:
    """The patterns with wildcards, by kind and segment."""

    def __init__(self) -> None:
        self._roots: dict[DestinationKind, _Node] = {}

    def add(self, part: _Part, index: int) -> None:
        node = self._roots.setdefault(part.destination.kind, _Node())
        for segment in part.segments:
            node = node.children.setdefault(segment, _Node())
        if part.min_extra is None:
            node.ends.append(index)
        elif part.min_extra == 0:
            node.opens.append(index)
        else:
            node.opens_below.append(index)

    def find(self, destination: Destination) -> set[int]:
        """Return the indexes of the patterns that match a concrete destination."""
        return self._walk(destination.kind, destination.name.split("."), None, concrete=True)

    def find_overlapping(self, part: _Part) -> set[int]:
        """Return the indexes of the patterns that share at least one destination with `part`."""
        return self._walk(part.destination.kind, part.segments, part.min_extra, concrete=False)

    def _walk(
        self,
        kind: DestinationKind,
        segments: Sequence[str],
        min_extra: int | None,
        *,
        concrete: bool,
    ) -> set[int]:
        found: set[int] = set()
        root = self._roots.get(kind)
        pending = [] if root is None else [(root, 0)]
        while pending:
            node, depth = pending.pop()
            if depth == len(segments):
                if min_extra is None:
                    found.update(node.ends)
                    found.update(node.opens)
                else:
                    found.update(node.values_with_extra(min_extra))
                continue
            found.update(node.opens)
            found.update(node.opens_below)
            segment = segments[depth]
            if segment == "*" and not concrete:
                pending.extend((child, depth + 1) for child in node.children.values())
                continue
            for name in {segment, "*"}:
                child = node.children.get(name)
                if child is not None:
                    pending.append((child, depth + 1))
        return found


class DestinationMap(Generic[V]):
    """Patterns with a value each; `find` returns the value that acts on a destination.

    Cost of `find`: one look-up for a destination seen lately; otherwise proportional to the number
    of segments and of patterns that match it, not to the number of patterns.
    """

    def __init__(self, entries: Sequence[tuple[Sequence[Destination], V]]) -> None:
        self._values = [value for _, value in entries]
        self._patterns = [
            _Pattern(destinations, index) for index, (destinations, _) in enumerate(entries)
        ]
        self._exact: dict[Destination, int] = {}
        self._literal_parts: dict[Destination, list[int]] = {}
        self._trees = _Trees()
        for index, pattern in enumerate(self._patterns):
            for part in pattern.parts:
                if not part.is_literal:
                    self._trees.add(part, index)
                elif pattern.is_composite:
                    self._literal_parts.setdefault(part.destination, []).append(index)
                else:
                    self._exact.setdefault(part.destination, index)
        self.find = lru_cache(maxsize=MEMO_SIZE)(self._find)
        """Return the value of the entry that wins for a concrete destination; None = no entry."""

    def _find(self, destination: Destination) -> V | None:
        index = self.find_index(destination)
        return None if index is None else self._values[index]

    def find_index(self, destination: Destination) -> int | None:
        """Return the position of the entry that wins; None = no entry matches.

        Source: DestinationMap.chooseValue.
        """
        exact = self._exact.get(destination)
        if exact is not None:
            return exact
        matching = self._trees.find(destination)
        matching.update(self._literal_parts.get(destination, ()))
        return self._choose(matching) if matching else None

    def _choose(self, indexes: set[int]) -> int:
        patterns = self._patterns
        pending = iter(indexes)
        best = next(pending)
        for index in pending:
            if not _beats(patterns[best], patterns[index]):
                best = index
        if all(_beats(patterns[best], patterns[index]) for index in indexes if index != best):
            return best
        unbeaten = [
            index
            for index in indexes
            if not any(
                _beats(patterns[other], patterns[index]) for other in indexes if other != index
            )
        ]
        return min(unbeaten or indexes, key=lambda index: patterns[index].rank)


def list_ambiguities(patterns: Sequence[Sequence[Destination]]) -> tuple[tuple[int, ...], ...]:
    """Return the groups of entries between which the broker chooses by chance.

    Returns:
        Groups of two or three positions, ascending. For every destination whose entry the broker
        picks by chance, a group of matching entries is among them, unless there are more groups
        than anybody would read (`MAX_LISTED_PAIRS`, `MAX_LISTED_CIRCLES`).
    """
    compiled = [_Pattern(destinations, index) for index, destinations in enumerate(patterns)]
    exact: dict[Destination, int] = {}
    pairs: set[tuple[int, ...]] = set()
    trees = _Trees()
    open_indexes = []
    for index, pattern in enumerate(compiled):
        if pattern.is_exact:
            first = exact.setdefault(pattern.destination, index)
            if first != index:
                pairs.add((first, index))
        else:
            open_indexes.append(index)
            for part in pattern.parts:
                trees.add(part, index)
    beats: dict[int, set[int]] = {index: set() for index in open_indexes}
    for index in open_indexes:
        if len(pairs) >= MAX_LISTED_PAIRS:
            break
        pattern = compiled[index]
        overlapping = {
            other
            for part in pattern.parts
            for other in trees.find_overlapping(part)
            if other > index
        }
        for other in overlapping:
            if _beats(pattern, compiled[other]):
                beats[index].add(other)
            elif _beats(compiled[other], pattern):
                beats[other].add(index)
            elif not _is_decided_by_exact(pattern, compiled[other], exact):
                pairs.add((index, other))
    return (*sorted(pairs)[:MAX_LISTED_PAIRS], *_find_circles(compiled, beats))


def _is_decided_by_exact(left: _Pattern, right: _Pattern, exact: dict[Destination, int]) -> bool:
    for mine, theirs in product(left.parts, right.parts):
        common = _overlap(mine, theirs)
        if common is None:
            continue
        if not common.is_literal or common.destination not in exact:
            return False
    return True


def _find_circles(
    compiled: Sequence[_Pattern], beats: dict[int, set[int]]
) -> tuple[tuple[int, ...], ...]:
    """Return triples that beat each other in a circle and match a common destination."""
    circles: set[tuple[int, ...]] = set()
    beaten_by: dict[int, set[int]] = {index: set() for index in beats}
    for winner, losers in beats.items():
        for loser in losers:
            beaten_by[loser].add(winner)
    for first, losers in beats.items():
        for second in losers:
            for third in beats[second] & beaten_by[first]:
                triple = tuple(sorted((first, second, third)))
                if triple not in circles and _have_common_destination(
                    [compiled[index] for index in triple]
                ):
                    circles.add(triple)
                    if len(circles) >= MAX_LISTED_CIRCLES:
                        return tuple(sorted(circles))
    return tuple(sorted(circles))


def _have_common_destination(patterns: Sequence[_Pattern]) -> bool:
    for parts in product(*(pattern.parts for pattern in patterns)):
        common: _Part | None = parts[0]
        for part in parts[1:]:
            common = common and _overlap(common, part)
        if common is not None:
            return True
    return False

"""Groups of similar texts of causes.

Two causes may differ only in a word that is neither a number nor quoted, such as a customer's name.
Two texts are similar if they name the same classes in the same order and their Jaccard index
(shared words / all words of both) is at least a threshold. A group is a connected component of the
graph of similar texts.

There are few texts, so the index is computed, not estimated. Pairs that can't reach the threshold
are skipped (prefix filtering).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from amqsidecar.model.cause import cause_classes

_BETWEEN_WORDS = re.compile(r"[\s*.,;:=!?|()\[\]{}<>\"'…/-]+")
_ROUNDING = 1e-9


def similar_causes(first_ms: Mapping[str, int], threshold: float) -> dict[str, str]:
    """Return the group of each text: the text of its component that was seen first.

    Among texts that were first seen at the same time the first in alphabetical order counts.

    Args:
        first_ms: by text, when it was first seen, in milliseconds since the epoch.
        threshold: share of words, between 0 and 1.
    """
    by_classes: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for text in sorted(first_ms, key=lambda one: (first_ms[one], one)):
        by_classes[cause_classes(text)].append(text)
    groups: dict[str, str] = {}
    for texts in by_classes.values():
        groups |= _hanging_together(texts, threshold)
    return groups


def _hanging_together(texts: Sequence[str], threshold: float) -> dict[str, str]:
    """Return the first text that each text hangs together with."""
    first = list(range(len(texts)))

    def first_of(place: int) -> int:
        while first[place] != place:
            first[place] = first[first[place]]
            place = first[place]
        return place

    for one, other in _similar_pairs([_words(text) for text in texts], threshold):
        ours, theirs = sorted((first_of(one), first_of(other)))
        first[theirs] = ours
    return {text: texts[first_of(place)] for place, text in enumerate(texts)}


def _words(text: str) -> frozenset[str]:
    for name in cause_classes(text):
        text = text.replace(name, " ")
    # Two texts of classes alone are similar, too: both have the empty word.
    return frozenset(filter(None, _BETWEEN_WORDS.split(text.lower()))) or frozenset({""})


def _similar_pairs(texts: Sequence[frozenset[str]], threshold: float) -> Iterator[tuple[int, int]]:
    """Yield each pair of places whose sets of words are similar.

    Similar sets share at least one of their rarest words, since the threshold limits the words
    that each may lack of the other.
    """
    counts = Counter(word for words in texts for word in words)
    places_by_word: dict[str, list[int]] = defaultdict(list)
    for place, words in enumerate(texts):
        rarest_first = sorted(words, key=lambda word: (counts[word], word))
        least_shared = ceil(threshold * len(words) - _ROUNDING)
        telling = rarest_first[: len(words) - least_shared + 1]
        for other in {other for word in telling for other in places_by_word[word]}:
            shared = len(words & texts[other])
            if shared >= threshold * (len(words) + len(texts[other]) - shared) - _ROUNDING:
                yield place, other
        for word in telling:
            places_by_word[word].append(place)

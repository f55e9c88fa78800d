"""Which texts of causes are one group, though they are not equal.

What a text says without a number or a quote, such as the name of a customer, is not cut from it.
Two texts are similar where they name the same classes in the same order, and their words are the
same up to a part: shared words / all words of both (the Jaccard index) is at least a threshold.
Groups are what hangs together by similar pairs.

There are few texts, so the index is computed, not estimated; pairs that can't reach the threshold
are not looked at (prefix filtering).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from amqsidecar.model.cause import cause_classes

_BETWEEN_WORDS = re.compile(r"[\s*.,;:=!?|()\[\]{}<>\"'…/-]+")
_ROUNDING = 1e-9


def similar_causes(first_ms: Mapping[str, int], threshold: float) -> dict[str, str]:
    """Return the group of each text: of the similar ones the oldest, of those the first by letters.

    Args:
        first_ms: when each text was first seen.
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

    Sets that are have one of their rarest words in common: each can lack so many words of the
    other at most.
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

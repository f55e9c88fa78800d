"""Groups of deaths at each destination, learned from the texts of their causes.

Failures at one place of the code are one group: a note with a stack hash names that place, and its
words are an example. Without a stack, texts of one class are one group if they differ only in a
word that varies: `VALUES_MIN` different words were seen in its place. `*` stands for such words, so
that the text is a template for later texts and for earlier ones.

Learning only generalises: deaths that share a group share it for ever, and the key of a former
group leads to its replacement. Only these keys are stored: a store's keys, added in the order of
their first deaths, give the same groups again.
"""

import re
from typing import Final

from amqsidecar.model.cause import cause_group

VALUES_MIN: Final = 5
"""Number of different words in one place of a text that shows that the place holds values."""

TEXTS_MAX: Final = 200
"""Maximum texts and templates of one class at one destination; beyond, `ANY_TEXT` covers all."""

ANY_TEXT: Final = "(any text)"
"""The words of the group of all texts of a class that has too many of them."""

BYTES_MAX: Final = 16 * 1024 * 1024
"""Approximate maximum memory, of stack hashes as much again. The oldest destinations go first."""

STACKS_MAX: Final = 10_000
"""Maximum stack hashes; the latest are kept."""

FOUND_MAX: Final = 1_000
"""Maximum cached answers; learning clears the cache."""

STACK: Final = "stack"
"""Name of the field that holds a stack hash; the last one of a group."""

_CONSTANTS_MIN = 2
_MERGES_MAX = 20
_TEXT_BYTES = 300
_HEAD = re.compile(r"(?:[\w$]+\.)+[\w$]+(?=:|$)")
_WORD = re.compile(r"[^ ()\[\]{}<>\"',;:!?*…]*\w")
_CLASS = re.compile(r"Caused|by|.*(?:Exception|Error)")


class CauseGroups:
    """The patterns learned for all destinations; belongs to one thread.

    Attributes:
        merged: by destination and key the key of the group that a person merged it into.
        size_bytes: the memory of texts and the names of their destinations, about.
    """

    def __init__(self) -> None:
        self.merged: dict[tuple[str, str], str] = {}
        self.size_bytes = self._stack_bytes = 0
        self._stacks: dict[tuple[str, str], str] = {}
        self._found: dict[tuple[str, str], str] = {}
        self._texts: dict[str, dict[tuple[str, str], _Texts]] = {}

    def add(self, destination: str, group: str) -> str:
        """Learn a group; return the key of the group that it belongs to.

        Args:
            destination: where it died.
            group: by `failure.failure_cause`, with the fields of `failure.group_with` if any.
        """
        known = self._found.get((destination, group))
        if known is not None:
            return self._merge(destination, known)
        words, fields = _parts(group)
        if f"{STACK}=" in fields:
            key = destination, fields
            if key not in self._stacks:
                self._stacks[key] = group
                self._stack_bytes += _stack_bytes(key, group)
            while len(self._stacks) > STACKS_MAX or self._stack_bytes > BYTES_MAX:
                oldest = next(iter(self._stacks))
                self._stack_bytes -= _stack_bytes(oldest, self._stacks.pop(oldest))
            return self.find(destination, group)
        if not words.startswith("("):
            texts = self._texts.setdefault(destination, {})
            if not texts:
                self.size_bytes += len(destination)
            learned = texts.setdefault((_head(words), fields), _Texts())
            before = learned.size_bytes
            learned.add(words)
            if learned.size_bytes != before:
                self._found.clear()
                self._take_room(destination, learned.size_bytes - before)
        if len(self._found) >= FOUND_MAX:
            self._found.clear()
        found = self._found[destination, group] = self._cover(destination, group)
        return self._merge(destination, found)

    def find(self, destination: str, group: str) -> str:
        """Return the key of the group that a group belongs to by now; learn nothing."""
        return self._merge(destination, self._cover(destination, group))

    def _cover(self, destination: str, group: str) -> str:
        words, fields = _parts(group)
        if f"{STACK}=" in fields:
            return self._stacks.get((destination, fields), group)
        learned = self._texts.get(destination, {}).get((_head(words), fields))
        return group if learned is None else learned.find(words) + fields

    def _merge(self, destination: str, group: str) -> str:
        for _ in range(_MERGES_MAX):
            further = self.merged.get((destination, group))
            if further is None:
                break
            group = further
        return group

    def _take_room(self, destination: str, size_bytes: int) -> None:
        self._texts[destination] = self._texts.pop(destination)
        self.size_bytes += size_bytes
        while self.size_bytes > BYTES_MAX and len(self._texts) > 1:
            name = next(iter(self._texts))
            gone = self._texts.pop(name)
            self.size_bytes -= len(name) + sum(one.size_bytes for one in gone.values())


def _stack_bytes(key: tuple[str, str], group: str) -> int:
    return _TEXT_BYTES + sum(map(len, key)) + len(group)


def split_stack(group: str) -> tuple[str, str]:
    """Return a group as people read it, and its stack hash; "" = it has none."""
    words, _, stack = group.partition(f" [{STACK}=")
    return words, stack.removesuffix("]")


def own_group(group: str) -> str:
    """Return a group as today's `cause_group` names it; its fields stay."""
    words, fields = _parts(group)
    return (words if words.startswith("(") else cause_group(words)) + fields


class _Texts:
    """The patterns learned from the texts of one class at one destination."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._texts: dict[str, None] = {}
        self._templates: dict[str, list[str]] = {}
        self._words: dict[str, set[str]] = {}

    def find(self, text: str) -> str:
        """Return the template that covers a text, else the text."""
        # Why one pass: an earlier template that covers a later one covers all that this covers.
        for template, pieces in self._templates.items():
            if template != text and _covers(pieces, text):
                text = template
        return text

    def add(self, text: str) -> None:
        """Learn a text; does nothing if a template covers it."""
        if text in self._texts or text in self._templates or self.find(text) != text:
            return
        if text.endswith(ANY_TEXT):
            self._texts.clear()
            self._words.clear()
            self._templates = {text: ["", ""]}
            self.size_bytes = _TEXT_BYTES
            return
        self.size_bytes += _TEXT_BYTES
        words = _words(text)
        ordinary = sum(_is_ordinary(one[0]) for one in words)
        if "*" in text and ordinary >= _CONSTANTS_MIN:
            pieces = text.split("*")
            self._templates[text] = pieces
            for covered in [one for one in self._texts if _covers(pieces, one)]:
                del self._texts[covered]
        else:
            self._texts[text] = None
        for word in words:
            if ordinary - _is_ordinary(word[0]) >= _CONSTANTS_MIN:
                pattern = f"{text[: word.start()]}*{text[word.end() :]}"
                seen = self._words.setdefault(pattern, set())
                seen.add(word[0])
                self.size_bytes += _TEXT_BYTES
                if len(seen) >= VALUES_MIN:
                    self.add(pattern)
        if len(self._texts) + len(self._templates) > TEXTS_MAX:
            head = _head(text)
            self.add(f"{head}: {ANY_TEXT}" if head else ANY_TEXT)


def _parts(group: str) -> tuple[str, str]:
    """Return the words of a group, and its fields with their brackets; "" = it has none."""
    words, bracket, fields = group.partition(" [")
    return (words, bracket + fields) if fields.endswith("]") else (group, "")


def _head(words: str) -> str:
    """Return the class at the begin of a text; "" = there is none."""
    found = _HEAD.match(words)
    return found[0] if found else ""


def _words(text: str) -> list[re.Match[str]]:
    """Return the words of a text that may be values: all but classes."""
    return [
        one
        for one in _WORD.finditer(text, len(_head(text)))
        if not _CLASS.fullmatch(one[0])
        and not ("." in one[0] and text.startswith(":", one.end()))
        and "*" not in (text[one.start() - 1 : one.start()], text[one.end() : one.end() + 1])
    ]


def _is_ordinary(word: str) -> bool:
    return word.isalpha() and word.islower()


def _covers(pieces: list[str], text: str) -> bool:
    """Return whether a text is the pieces of a template with something in each place between."""
    at = len(pieces[0])
    if not text.startswith(pieces[0]):
        return False
    for piece in pieces[1:-1]:
        at = text.find(piece, at + 1)
        if at < 0:
            return False
        at += len(piece)
    return len(text) - len(pieces[-1]) > at and text.endswith(pieces[-1])

"""Reads untrusted YAML: bounded, and every fault has its line, if any.

ruamel.yaml raises Python's errors where a value does not fit its tag, and follows all aliases: nine
lines can hold more texts than fit into memory.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.constructor import ConstructorError, RoundTripConstructor, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

MAX_YAML_BYTES = 512 * 1024
"""Longer texts are refused: they take half a minute to read."""

VALUES_MAX = 300_000
"""A text of the longest allowed length has fewer without aliases."""

_DEPTH_MAX = 60
# Bound: above every limit of the options, and Python can still print it.
_NUMBER_BITS_MAX = 1000


class NotYaml(ValueError):
    """A text is not YAML that can be read.

    Attributes:
        line: 1-based; None = it has no single place.
        what: the fault, as the end of a sentence.
    """

    def __init__(self, line: int | None, what: str) -> None:
        self.line = line
        self.what = what
        super().__init__(what)


class _BoundedComposer(Composer):
    values_max = VALUES_MAX

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        self.warn_double_anchors = False
        self._depth = 0
        self._values = 0

    def compose_node(self, parent: Any, index: int) -> Any:
        self._values += 1
        if self._values > self.values_max:
            mark = self.parser.peek_event().start_mark
            what = f"it has more than {self.values_max} keys and values"
            raise ComposerError(None, None, what, mark)
        # Why not up to Python's own bound: there ruamel.yaml has worked for half a minute.
        if self._depth > _DEPTH_MAX:
            mark = self.parser.peek_event().start_mark
            raise ComposerError(None, None, "it is nested too deep", mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _composer_of(values_max: int) -> type[_BoundedComposer]:
    class Bounded(_BoundedComposer):
        pass

    Bounded.values_max = values_max
    return Bounded


class _CheckedConstructor:
    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)  # type: ignore[misc] # a mix-in
        except YAMLError:
            raise
        except Exception as error:
            raise ConstructorError(
                None, None, f"a value can't be read as its type: {error}", node.start_mark
            ) from error
        if isinstance(value, int) and value.bit_length() > _NUMBER_BITS_MAX:
            raise ConstructorError(None, None, "a number is too long", node.start_mark)
        return value

    def check_mapping_key(
        self, _node: Any, key_node: Any, mapping: Any, key: Any, _value: Any
    ) -> bool:
        """Refuse a key that is there twice, or is no scalar.

        Why not ruamel.yaml's: it prints both values, and to look for a key follows its aliases.
        """
        mark = key_node.start_mark
        if isinstance(key, tuple | Mapping):
            raise ConstructorError(None, None, "a key is neither text nor number", mark)
        if key in mapping:
            raise ConstructorError(None, None, f"duplicate key {str(key)[:100]!r}", mark)
        return True

    def check_set_key(self, node: Any, key_node: Any, setting: Any, key: Any) -> None:
        """Refuse the keys that `check_mapping_key` refuses."""
        self.check_mapping_key(node, key_node, setting, key, None)


class _SafeConstructor(_CheckedConstructor, SafeConstructor):
    pass


class _RoundTripConstructor(_CheckedConstructor, RoundTripConstructor):
    pass


def read_yaml_text(text: str, *, keeps_lines: bool, values_max: int = VALUES_MAX) -> object:
    """Return the value that a text of YAML holds.

    Args:
        text: one document.
        keeps_lines: mappings know the lines of their keys (attribute `lc`).
        values_max: keys, values, lists and mappings, which take the time to read it.

    Raises:
        NotYaml: it is none, or too long, nested too deep, or has aliases that lead to too much.
    """
    if len(text) > MAX_YAML_BYTES:
        raise NotYaml(None, f"longer than {MAX_YAML_BYTES} bytes; at most that many are read")
    yaml = YAML(typ="rt" if keeps_lines else "safe", pure=True)
    yaml.Composer = _composer_of(values_max)
    yaml.Constructor = _RoundTripConstructor if keeps_lines else _SafeConstructor
    try:
        value: object = yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        what = error.problem or error.context or "it can't be read"
        raise NotYaml(None if mark is None else mark.line + 1, str(what)) from error
    except YAMLError as error:
        raise NotYaml(None, str(error).partition("\n")[0]) from error
    except TypeError as error:  # of what is constructed late, such as !!omap
        raise NotYaml(None, f"a value can't be read as its type: {error}") from error
    _check_size(value)
    return value


def _check_size(value: object) -> None:
    """Follow all aliases, as a printer of the value will."""
    left = [value]
    for _ in range(VALUES_MAX):
        if not left:
            return
        one = left.pop()
        if isinstance(one, Mapping):
            left += one
            left += one.values()
        elif isinstance(one, Sequence | Set) and not isinstance(one, str | bytes):
            left += one
    raise NotYaml(None, "its aliases (*name) expand too far, or to themselves")

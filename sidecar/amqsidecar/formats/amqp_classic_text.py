"""Puts right the texts that Classic hands over in Java's own form of UTF-8; sans-IO.

Quirk (Classic): it keeps short texts of properties and MapMessages as Java writes them, a character
beyond U+FFFF as two surrogates of three bytes each and U+0000 as two bytes, and puts these bytes
into AMQP strings as they are. When such a message comes back it can't decode it, and keeps all of
it as the body of a BytesMessage.

Source: Java, DataInput, "Modified UTF-8"; ActiveMQ Classic, MarshallingSupport.unmarshalPrimitive.
"""

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp

_STRINGS = {0xA1: 2, 0xB1: 5}
"""Constructors of strings, and where their bytes begin."""
_MAPS = frozenset((0xC1, 0xD1))
_LISTS = frozenset((0xC0, 0xD0))
_ZERO = b"\xc0\x80"
# Why: each surrogate begins with it, and so do a few thousand Korean syllables.
_SURROGATE = b"\xed"
_REPLACEMENT = "\ufffd".encode()
# Bound: garbage nests without end.
_DEPTH_MAX = 32


def mended_section(section: bytes) -> bytes:
    """Return the bytes of one section or more with every text of its maps and lists in UTF-8.

    Sections of other bodies are the same bytes, and so is everything else that needs no mending.

    Raises:
        UndecodableMessage: a text can't be corrected, or there is no section.
    """
    if not any(mark in section for mark in (_ZERO, _SURROGATE, _REPLACEMENT)):
        return section
    mended = []
    at = 0
    while at < len(section):
        value_at = at + (3 if section[at + 1] == 0x53 else 10)
        after = amqp.skip(section, value_at)
        is_flat = section[value_at] not in _MAPS | _LISTS
        mended.append(
            section[at:after]
            if is_flat
            else section[at:value_at] + _mended(section[value_at:after], 0)
        )
        at = after
    return b"".join(mended)


def _mended(element: bytes, depth: int) -> bytes:
    if depth > _DEPTH_MAX:
        raise UndecodableMessage("its values are nested too deep")
    constructor = element[0]
    if constructor in _STRINGS:
        return _mended_string(element)
    if constructor in _MAPS:
        items = amqp.items(element)
        # Quirk (Classic 6.3.1): it reads names as UTF-8, and drops the bytes it can't read.
        if any(_REPLACEMENT in name for name in items[::2]):
            raise UndecodableMessage("the broker could not read one of its names")
        make = amqp.make_map
    elif constructor in _LISTS:
        items = amqp.items(element)
        make = amqp.make_list
    else:
        return element
    mended = [_mended(item, depth + 1) for item in items]
    # Why from 3 on: a list or map is a section without its descriptor.
    return element if mended == items else make(amqp.VALUE, mended)[3:]


def _mended_string(element: bytes) -> bytes:
    encoded = element[_STRINGS[element[0]] :]
    try:
        encoded.decode()
    except UnicodeDecodeError:
        return amqp.string(_from_java(encoded))
    return element


def _from_java(encoded: bytes) -> str:
    try:
        # Why UTF-16: there two surrogates are one character.
        halves = encoded.replace(_ZERO, b"\0").decode("utf-8", "surrogatepass")
        return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise UndecodableMessage("it contains a text that is not UTF-8") from None

"""Reads untrusted XML: no entities, no network, bounded."""

from collections.abc import Callable
from posixpath import basename
from xml.parsers import expat

from lxml import etree

from amqsidecar.errors import ConfigError, Problem

ReadFile = Callable[[str], bytes]
"""Returns the bytes of a file that a configuration names; raises OSError."""

MAX_FILE_BYTES = 8 * 1024 * 1024
"""Larger files are refused; the largest configurations seen in the field are a few hundred KiB."""

_DIGITS_MAX = 1000
_DOCTYPE = "has a DOCTYPE, which is refused (it can pull in other files); remove that line"


def read_xml(
    path: str, data: bytes, *, encoding: str | None = None, resolver: etree.Resolver | None = None
) -> etree._Element:
    """Return the root element of an XML file.

    Args:
        path: file name for messages.
        data: the file's bytes.
        encoding: of the bytes, overriding the file's declaration; None = as declared.
        resolver: reads included files; None = nothing can be read.

    Raises:
        ConfigError: too large, not well-formed (every error with its line), or with a DOCTYPE.
    """
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(
            [Problem(path, f"is longer than {MAX_FILE_BYTES} bytes; at most that many are read")]
        )
    if b"<!DOCTYPE" in data:
        line = data[: data.index(b"<!DOCTYPE")].count(b"\n") + 1
        raise ConfigError([Problem(f"{path}:{line}", _DOCTYPE)])
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        encoding=encoding,
    )
    if resolver is not None:
        parser.resolvers.add(resolver)
    try:
        root = etree.fromstring(data, parser, base_url=basename(path))
    except etree.XMLSyntaxError as error:
        raise ConfigError(
            [
                Problem(f"{path}:{entry.line}", f"is not well-formed XML: {entry.message}")
                for entry in parser.error_log
            ]
            or [Problem(f"{path}:{error.lineno or 1}", f"is not well-formed XML: {error.msg}")]
        ) from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise ConfigError([Problem(f"{path}:1", _DOCTYPE)])
    _correct_lines(root, data)
    return root


def _correct_lines(root: etree._Element, data: bytes) -> None:
    """Give each element the line of its `<`; libxml2 gives the line where its start tag ends."""
    lines: list[int] = []
    parser = expat.ParserCreate()

    def note(_name: str, _attributes: object) -> None:
        lines.append(parser.CurrentLineNumber)

    parser.StartElementHandler = note
    try:
        parser.Parse(data, True)
    except expat.ExpatError:
        return  # Why: an encoding that only lxml knows; its lines are good enough then.
    elements = list(root.iter("*"))
    if len(elements) == len(lines):
        for element, line in zip(elements, lines, strict=True):
            element.sourceline = line  # type: ignore[assignment] # the stubs say "..."


def local_name(element: etree._Element) -> str:
    """Return the name of an element without its namespace."""
    return etree.QName(element).localname


def namespace(element: etree._Element) -> str:
    """Return the namespace of an element; empty = none."""
    return etree.QName(element).namespace or ""


def line_of(element: etree._Element) -> int:
    """Return the line that an element begins on, 1-based."""
    line: object = element.sourceline
    return line if isinstance(line, int) else 1


def whole_number(text: str, bits: int, *, base: int = 10) -> int | None:
    """Return the number that digits write; None = it does not fit into this number of bits."""
    # Bound: Python refuses to read thousands of digits.
    value = int(text, base) if len(text) <= _DIGITS_MAX else 2**bits
    return value if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None

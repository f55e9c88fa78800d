"""Unpacked sizes of a Parquet file's pages, from the page headers: a footer may understate them.

Source: parquet.thrift (PageHeader), in Thrift's compact protocol.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

_UNPACKED_BYTES: Final = 64 << 20
_UNPACKED_RATIO: Final = 200
"""A column is read if it unpacks to at most this size, or to this many times its packed bytes."""

_WINDOW_BYTES: Final = 1 << 16
_HEADER_BYTES_MAX: Final = 1 << 20
_PAGE_UNPACKED, _PAGE_PACKED = 2, 3  # Fields of a page's header.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_VARINTS = (4, 5, 6)
_DEPTH_MAX: Final = 4
"""A header has statistics in a struct in it, and no lists."""


def unpacking_problem(footer: Any, file: BinaryIO) -> str | None:
    """Return why a Parquet file is not read: it would take too much memory, or is torn.

    Args:
        footer: its `pyarrow.parquet.FileMetaData`.
        file: read at any place; its position changes.
    """
    pages = _Pages(file)
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            packed = column.total_compressed_size
            offsets = (column.data_page_offset, column.dictionary_page_offset)
            start = min(offset for offset in offsets if offset)
            try:
                unpacked = sum(pages.unpacked(start, start + packed))
            except ValueError as error:
                return f"is torn or no Parquet file: {error}"
            if unpacked > max(_UNPACKED_BYTES, _UNPACKED_RATIO * packed):
                return (
                    f"its column {column.path_in_schema} would unpack {packed} bytes to "
                    f"{unpacked}: no sidecar writes that; move the file away"
                )
    return None


class _Pages:
    """Reads headers of pages; for a small file all at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._start, self._window = 0, b""

    def unpacked(self, at: int, end: int) -> Iterator[int]:
        """Yield the size of each page from one place in the file to another."""
        while at < end:
            unpacked, packed, header_bytes = self._header(at)
            yield unpacked
            at += header_bytes + packed

    def _header(self, at: int) -> tuple[int, int, int]:
        if not self._start <= at < self._start + len(self._window):
            self._read(at, _WINDOW_BYTES)
        try:
            return _sizes(self._window, at - self._start)
        except IndexError:
            # The window ended in it.
            self._read(at, _HEADER_BYTES_MAX)
        try:
            return _sizes(self._window, 0)
        except IndexError:
            raise ValueError(f"the header of a page at byte {at} is cut off") from None

    def _read(self, at: int, size: int) -> None:
        self._file.seek(at)
        self._start, self._window = at, self._file.read(size)


def _sizes(data: bytes, start: int) -> tuple[int, int, int]:
    """Return the bytes of an unpacked page, its packed size, and that of its header.

    Raises:
        IndexError: the data end in the header.
        ValueError: it is none.
    """
    header = _Compact(data, start)
    sizes = {_PAGE_UNPACKED: -1, _PAGE_PACKED: -1}
    for number, kind in header.fields():
        if number in sizes and kind in _VARINTS:
            sizes[number] = header.integer()
        else:
            header.skip(kind)
    if min(sizes.values()) < 0:
        raise ValueError("a page does not say its size")
    return sizes[_PAGE_UNPACKED], sizes[_PAGE_PACKED], header.at - start


class _Compact:
    """A struct in Thrift's compact protocol, read from a place on.

    Each method raises IndexError where the data end.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field; its value is read before the next is asked for."""
        number = 0
        while head := self._byte():
            delta = head >> 4
            number = number + delta if delta else self.integer()
            yield number, head & 15

    def integer(self) -> int:
        """Return a signed integer."""
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def skip(self, kind: int, depth: int = 0) -> None:
        """Step over a value.

        Raises:
            ValueError: there is no such type, or it is nested too deeply.
        """
        if kind in _VARINTS:
            self._varint()
        elif kind in (_BYTE, _DOUBLE, _BINARY):
            self._step({_BYTE: 1, _DOUBLE: 8}.get(kind) or self._varint())
        elif kind == _STRUCT and depth < _DEPTH_MAX:
            for _, field in self.fields():
                self.skip(field, depth + 1)
        elif kind not in (_TRUE, _FALSE):
            raise ValueError(f"the header of a page has a field of type {kind}")

    def _step(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise IndexError

    def _byte(self) -> int:
        self._step(1)
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80 or shift > 63:
                return value
            shift += 7

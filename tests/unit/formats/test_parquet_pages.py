"""Sizes of pages are read as the library reads them; a bad header is a problem and no fault."""

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.formats import parquet_pages
from amqsidecar.formats.parquet_pages import unpacking_problem


def written(**options: object) -> BytesIO:
    table = pa.table(
        {
            "n": pa.array(range(20_000), pa.int64()),
            "same": pa.repeat("a text that many share", 20_000),
            "unique": [f"{number:040}" for number in range(20_000)],
            "map": pa.array([[("k", "v")]] * 20_000, pa.map_(pa.string(), pa.string())),
        }
    )
    file = BytesIO()
    pq.write_table(table, file, row_group_size=6_000, data_page_size=4_096, **options)
    return file


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "none"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_unpack_to_what_an_honest_footer_says(
    compression: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(compression=compression, data_page_version=version, write_page_checksum=True)
    footer = pq.read_metadata(file)
    pages = parquet_pages._Pages(file)
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            start = column.dictionary_page_offset or column.data_page_offset
            sizes = list(pages.unpacked(start, start + column.total_compressed_size))
            # Why less: the footer counts the headers, too.
            headers = column.total_uncompressed_size - sum(sizes)
            assert len(sizes) * 10 < headers < len(sizes) * 200
    assert unpacking_problem(footer, file) is None
    monkeypatch.setattr(parquet_pages, "_UNPACKED_BYTES", 1)
    monkeypatch.setattr(parquet_pages, "_UNPACKED_RATIO", 0)
    assert "its column n would unpack" in str(unpacking_problem(footer, file))


FILE = written(compression="zstd").getvalue()
FOOTER = pq.read_metadata(BytesIO(FILE))


@given(st.data())
def test_a_damaged_file_is_a_problem_or_none(data: st.DataObject) -> None:
    damaged = bytearray(FILE[: data.draw(st.integers(0, len(FILE)))])
    for _ in range(data.draw(st.integers(0, 5))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    problem = unpacking_problem(FOOTER, BytesIO(bytes(damaged)))
    assert problem is None or "is torn" in problem or "would unpack" in problem


def test_a_file_that_ends_early_is_torn() -> None:
    assert str(unpacking_problem(FOOTER, BytesIO(FILE[:100]))).startswith("is torn")

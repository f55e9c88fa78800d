"""Which files of a journal count."""

import pytest

from amqsidecar.journal import (
    SegmentFile,
    current_files,
    gaps,
    segment_file,
    stream_folder,
    stream_of,
)


def names(*ranges: tuple[int, int]) -> list[str]:
    return [SegmentFile(*one).name for one in ranges]


def test_a_name_says_which_segments_are_in_a_file() -> None:
    assert SegmentFile(7, 7).name == "segment-7-7.parquet"
    assert segment_file("segment-11-20.parquet") == SegmentFile(11, 20)


@pytest.mark.parametrize(
    "name",
    [
        "segment-1.parquet",
        "segment-2-1.parquet",
        "segment-01-1.parquet",
        "segment-0-1.parquet",
        ".segment-1-1.parquet.sidecar",
        "segment-1-1.parquet.crc",
        "segment-1-\u0662.parquet",
        "part-0.parquet",
    ],
)
def test_other_names_are_no_files_of_segments(name: str) -> None:
    assert segment_file(name) is None
    assert current_files([name]) == []


def test_a_folder_says_which_stream_it_is_of() -> None:
    assert stream_of(stream_folder("a-b_1")) == "a-b_1"
    assert stream_of("stream=") is None
    assert stream_of("stream=a b") is None
    assert stream_of("_delta_log") is None


def test_of_files_that_overlap_the_larger_one_counts() -> None:
    listed = names((10, 10), (1, 10), (3, 3), (1, 1), (11, 11), (21, 30), (21, 21), (1, 100))
    assert current_files(listed) == [SegmentFile(1, 100)]
    listed.remove("segment-1-100.parquet")
    assert current_files(listed) == [SegmentFile(1, 10), SegmentFile(11, 11), SegmentFile(21, 30)]


def test_files_that_overlap_in_part_are_refused() -> None:
    with pytest.raises(ValueError, match=r"segment-1-5\.parquet and segment-4-8\.parquet overlap"):
        current_files(names((1, 5), (4, 8)))


def test_gaps_are_reported() -> None:
    files = current_files(names((3, 3), (4, 10), (12, 12), (20, 20)))
    assert gaps(files) == [(11, 11), (13, 19)]
    assert gaps([]) == []

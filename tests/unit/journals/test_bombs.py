"""A small file that unpacks to gigabytes is read in little memory, or refused by its pages."""

import re
import sys
from functools import cache
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from amqsidecar.cli.main import EXIT_CONFIG, EXIT_UNAVAILABLE
from amqsidecar.journal import Segment
from amqsidecar.journals.columns import table_of
from amqsidecar.journals.schema import SCHEMA
from amqsidecar.model.event import Received
from support.histories.journal_rows import filled
from support.machine.processes import run_program

ROWS = 18_000
CAUSE_BYTES = 16_000  # About as long as a kept cause may be: 288 MB in all, more than the peak.
PEAK_MAX_MIB = 250
FILE = "stream=s/segment-1-1.parquet"
# Why by itself: the peak of this process is that of all tests before.
RUN = """\
import sys
from amqsidecar.cli.main import run_command_line
code = run_command_line(sys.argv[1:])
print(open("/proc/self/status").read(), file=sys.stderr)
sys.exit(code)
"""


@cache
def written(*, has_dictionary: bool, in_properties: bool) -> bytes:
    """Return a file of the rows in one row group; without a dictionary each column is one page."""
    text = "x" * CAUSE_BYTES
    event = replace(
        filled(Received),
        cause=None if in_properties else text,
        properties={"large": text} if in_properties else None,
    )
    segment = Segment(stream="s", number=1, event_count=1)
    one = table_of(segment, [[event]], sidecar="s", cause_text=True)
    rows = one.take(pa.repeat(pa.scalar(0, pa.int64()), ROWS))
    position = SCHEMA.get_field_index("position")
    rows = rows.set_column(position, SCHEMA.field(position), pa.array(range(ROWS), pa.int32()))
    file = BytesIO()
    with pq.ParquetWriter(
        file, SCHEMA, compression="zstd", use_dictionary=has_dictionary, data_page_size=2**30
    ) as writer:
        writer.write_table(rows, row_group_size=ROWS)
    return file.getvalue()


def put(folder: Path, file: bytes) -> None:
    assert len(file) < 500_000
    (folder / FILE).parent.mkdir()
    (folder / FILE).write_bytes(file)


def run(command: str, folder: Path) -> tuple[int, str, float]:
    """Return exit code, standard error and peak of a command of `journal`, in MiB."""
    done = run_program([sys.executable, "-c", RUN, "journal", command, "--path", folder])
    peak = re.search(r"VmHWM:\s+(\d+) kB", done.stderr)
    assert peak is not None, done.stderr
    return done.returncode, done.stderr, int(peak[1]) / 1024


@pytest.mark.parametrize(
    ("command", "in_properties"),
    [
        ("verify", True),
        ("export", False),
        *(
            pytest.param(*more, marks=pytest.mark.proof)
            for more in (("verify", False), ("export", True))
        ),
    ],
)
def test_a_text_that_many_rows_share_is_in_memory_a_few_times(
    command: str, in_properties: bool, tmp_path: Path
) -> None:
    put(tmp_path, written(has_dictionary=True, in_properties=in_properties))
    code, _, peak = run(command, tmp_path)
    assert code == 0
    assert peak < PEAK_MAX_MIB


def varint(number: int, size: int) -> bytes:
    """Return a number as Thrift writes it, in this many bytes."""
    groups = [number << 1 >> 7 * place & 0x7F | 0x80 for place in range(size)]
    groups[-1] &= 0x7F
    return bytes(groups)


def lie(file: bytes) -> bytes:
    """Let the footer say that the column of causes unpacks to a kilobyte."""
    group = pq.read_metadata(BytesIO(file)).row_group(0)
    columns = [group.column(number) for number in range(20)]
    [cause] = [column for column in columns if column.path_in_schema == "cause"]
    truth = varint(cause.total_uncompressed_size, 5)
    assert file.count(truth) == 1
    return file.replace(truth, varint(1_000, 5))


@pytest.mark.parametrize(
    ("command", "lies"),
    [("verify", False), ("export", False), ("compact", False), ("verify", True)],
)
def test_a_page_of_hundreds_of_megabytes_is_refused_by_its_header(
    command: str, lies: bool, tmp_path: Path
) -> None:
    file = written(has_dictionary=False, in_properties=False)
    put(tmp_path, lie(file) if lies else file)
    code, told, peak = run(command, tmp_path)
    assert code == (EXIT_CONFIG if command == "verify" else EXIT_UNAVAILABLE)
    assert re.search(rf"{FILE}: its column cause would unpack \d+ bytes to 288\d+: ", told)
    assert peak < PEAK_MAX_MIB

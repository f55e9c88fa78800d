"""Sentences about gaps in the history of a report, for people who did not see the log."""

from collections.abc import Iterator

from amqsidecar.pipeline.sources.event_files import is_table
from amqsidecar.pipeline.sources.journal_files import cover, list_streams


def lacking_segments(path: str) -> Iterator[str]:
    """Yield the gaps of a journal; none of a table, where `ingest` leaves no gap unseen."""
    if is_table(path):
        return
    for stream, files in sorted(list_streams([path]).items()):
        _, gaps = cover(files, 1, max(file.last for file in files))
        for gap in gaps:
            if gap.first == 1:
                yield f"Stream {stream} is cut: its segments {gap} were removed before this run."
            else:
                yield (
                    f"Stream {stream} lacks segments {gap}: returns in them look like recoveries."
                )

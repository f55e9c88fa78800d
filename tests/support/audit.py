"""The lines of the audit, as they are written."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(record.getMessage()))


@contextmanager
def audited() -> Iterator[list[dict[str, Any]]]:
    """Collect the lines that this process writes while the block runs."""
    logger = logging.getLogger("amqsidecar.audit")
    before, handler = logger.level, _Lines()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield handler.lines
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)

"""What one test leaves behind is not there for the next one."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def without_audit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin with a process that has opened no audit."""
    handlers: list[logging.Handler] = []
    monkeypatch.setattr(logging.getLogger("amqsidecar.audit"), "handlers", handlers)
    yield
    for handler in handlers:
        handler.close()

"""What all end-to-end tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.real import ArtemisBroker
from support.sidecar.listener import ListenerProcess
from support.sidecar.logs import show_sidecar_logs

__all__ = ["show_sidecar_logs"]


@pytest.fixture
def listener(artemis: ArtemisBroker, tmp_path: Path) -> Iterator[ListenerProcess]:
    with ListenerProcess(tmp_path, artemis.ports["PORT"]) as started:
        yield started

"""The logs of sidecars, shown with the tests that fail while they run."""

from collections.abc import Iterator

import pytest

from support.sidecar.process import STARTED


@pytest.fixture(autouse=True)
def show_sidecar_logs() -> Iterator[None]:
    """Show with a failed test what sidecars logged during it."""
    before = {sidecar: len(sidecar.log()) for sidecar in STARTED}
    yield
    for sidecar in STARTED:
        print(f"{sidecar.log_path}:\n{sidecar.log()[before.get(sidecar, 0) :][-8000:]}")

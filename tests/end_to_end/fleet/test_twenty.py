"""Twenty sidecars, seventeen of them well: the first screen, and its memory."""

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from support.machine.ports import free_port
from support.sidecar.process import COMMAND
from support.waiting import eventually
from support.web.fleet import (
    FleetProcess,
    as_person,
    hung_sidecar,
    older_sidecar,
    prepared_sidecars,
)

pytestmark = pytest.mark.proof

LOOKS: Final = 200


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcess]:
    folder = tmp_path_factory.mktemp("twenty")
    with ExitStack() as stack:
        prepared = stack.enter_context(prepared_sidecars(folder, 17))
        urls = {f"prepared-{n}": url for n, url in enumerate(prepared)}
        urls["hung"] = stack.enter_context(hung_sidecar())
        urls["down"] = f"http://127.0.0.1:{free_port()}"
        urls["older"] = stack.enter_context(older_sidecar())
        yield stack.enter_context(FleetProcess(folder, urls, program=COMMAND))


def test_the_first_screen_is_quick_and_honest(fleet: FleetProcess) -> None:
    def states() -> dict[str, str]:
        with fleet.client(**as_person()) as client:
            found = client.get("/api/v1/overview").json()["sidecars"]
        return {one["seen"]["sidecar"]["name"]: one["state"] for one in found}

    eventually(lambda: "no answer yet" not in states().values(), what="all that can have answered")
    kept = states()
    assert (kept["hung"], kept["down"], kept["older"]) == ("unreachable", "unreachable", "well")
    assert Counter(kept.values())["unreachable"] == 2, kept
    took: list[float] = []
    chance = random.Random(46)
    for _ in range(LOOKS):
        # Many look for the first time: nothing is kept for them.
        person = as_person(f"person-{chance.randrange(LOOKS)}")
        with fleet.client(accept="text/html", **person) as client:
            client.get("/healthz")
            began = time.monotonic()
            answer = client.get("/")
            took.append((time.monotonic() - began) * 1000)
        assert answer.status_code == 200
    took.sort()
    sys.stdout.write(
        f"\nfirst screen over 20 sidecars, {LOOKS} looks: median {took[LOOKS // 2]:.0f} ms, "
        f"95th percentile {took[LOOKS * 95 // 100]:.0f} ms, longest {took[-1]:.0f} ms; "
        f"memory {fleet.memory_mib():.0f} MiB\n"
    )

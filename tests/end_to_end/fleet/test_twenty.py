"""Twenty sidecars, five of them on real brokers: the first screen, its memory, one approval."""

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final, NamedTuple

import pytest

from end_to_end.operators.test_exhausted import Site, make_broker
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
from support.web.site import GROUPS_HEADER, USER_HEADER

pytestmark = [pytest.mark.broker, pytest.mark.proof]

LOOKS: Final = 200
COUNT: Final = 5
BROKERS: Final = ("artemis", "artemis", "artemis", "classic", "classic")
BEHIND_THE_PROXY: Final = (
    "http.trusted_proxies=127.0.0.1",
    f"http.proxy_user_header={USER_HEADER}",
    f"http.proxy_groups_header={GROUPS_HEADER}",
    "http.operator_groups=operators",
)


class Fleet(NamedTuple):
    process: FleetProcess
    sites: dict[str, Site]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Sidecars of three Artemis and two Classic, twelve prepared ones, and three ill ones."""
    folder = tmp_path_factory.mktemp("twenty")
    with ExitStack() as stack:
        sites = {}
        for number, kind in enumerate(BROKERS):
            name = f"{kind}-{number}"
            (folder / name).mkdir()
            site = Site(stack.enter_context(make_broker(kind)), folder / name, name)
            site.sidecar.options += BEHIND_THE_PROXY
            stack.enter_context(site.sidecar).start()
            sites[name] = site
        urls = {name: site.address() for name, site in sites.items()}
        prepared = stack.enter_context(prepared_sidecars(folder, 12))
        urls |= {f"prepared-{n}": url for n, url in enumerate(prepared)}
        urls["hung"] = stack.enter_context(hung_sidecar())
        urls["down"] = f"http://127.0.0.1:{free_port()}"
        urls["older"] = stack.enter_context(older_sidecar())
        assert len(urls) == 20
        process = FleetProcess(folder, urls, program=COMMAND)
        yield Fleet(stack.enter_context(process), sites)


def test_the_first_screen_is_quick_and_honest(fleet: Fleet) -> None:
    def states() -> dict[str, str]:
        with fleet.process.client(**as_person()) as client:
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
        with fleet.process.client(accept="text/html", **person) as client:
            client.get("/healthz")
            began = time.monotonic()
            answer = client.get("/")
            took.append((time.monotonic() - began) * 1000)
        assert answer.status_code == 200
    took.sort()
    sys.stdout.write(
        f"\nfirst screen over 20 sidecars, {LOOKS} looks: median {took[LOOKS // 2]:.0f} ms, "
        f"95th percentile {took[LOOKS * 95 // 100]:.0f} ms, longest {took[-1]:.0f} ms; "
        f"memory {fleet.process.memory_mib():.0f} MiB\n"
    )


def test_a_cause_at_several_brokers_is_retried_by_each_of_their_sidecars(fleet: Fleet) -> None:
    for site in fleet.sites.values():
        site.exhaust(site.ours, COUNT)
    with fleet.process.client(**as_person("anna")) as client:
        groups = client.get("/api/v1/groups").json()["found"]
        causes = {
            group["cause_group"]
            for group in groups
            for place in group["places"]
            if place["sidecar"]["name"] in fleet.sites
        }
        token = {"X-CSRF-Token": client.get("/api/v1/session").json()["csrf"]}
        begun = []
        for cause in causes:
            asked = {"action": "retry", "cause_group": cause}
            found = client.get("/api/v1/preview", params=asked).json()["found"]
            approvals = [
                one["approval"]
                for one in found
                if one["approval"] and one["approval"]["sidecar"] in fleet.sites
            ]
            assert {one["expected"] for one in approvals} <= {COUNT}
            body = {"action": "retry", "approvals": approvals, "careful": False}
            begun += client.post("/api/v1/operations", json=body, headers=token).json()
    assert sorted(one["sidecar"]["name"] for one in begun) == sorted(fleet.sites)
    assert {one["value"]["actor"] for one in begun} == {"api:anna"}
    for site in fleet.sites.values():
        eventually(
            lambda site=site: len(site.peer.browse(site.ours)) == COUNT,  # type: ignore[misc]
            what=f"all of {site.ours} are back in their queue",
        )

"""What marked tests need of the machine; what is missing skips them, or fails them in CI.

`TESTS_MUST_RUN=1` in the environment turns each skip into a failure.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from support.deployment.helm import GO_PLACES, HELM
from support.deployment.image import TOOLS
from support.maven import cache_root
from support.stores import postgres_server

MUST_RUN: Final = "TESTS_MUST_RUN"
_REASON: Final = "needs "


class Need(NamedTuple):
    """A program that tests with a mark need.

    Attributes:
        words: its name for a person.
        is_there: returns whether the machine has it.
    """

    words: str
    is_there: Callable[[], bool]


def _has(*programs: str) -> bool:
    return all(shutil.which(one) for one in programs)


def _has_postgres() -> bool:
    with suppress(FileNotFoundError):
        return bool(postgres_server.program("initdb"))
    return False


def _has_helm() -> bool:
    places = os.pathsep.join([os.environ.get("PATH", ""), *GO_PLACES])
    is_cached = (cache_root() / f"helm-{HELM}").exists()
    return _has("helm") or is_cached or shutil.which("go", path=places) is not None


def _has_prometheus() -> bool:
    is_cached = (cache_root() / "prometheus").exists()
    return _has("prometheus", "promtool") or is_cached or _has("apt-get", "dpkg-deb")


NEEDS: Final[Mapping[str, Need]] = {
    "browser": Need("Chromium", lambda: _has("chromium")),
    "helm": Need("Go, which builds Helm", _has_helm),
    "image": Need("Buildah, Podman, runc and mmdebstrap", lambda: _has(*TOOLS)),
    "postgres": Need("PostgreSQL", _has_postgres),
    "prometheus": Need("Prometheus", _has_prometheus),
}
"""By mark."""


def missing(needs: Mapping[str, Need] = NEEDS) -> dict[str, str]:
    """Return why the tests of a mark can't run here, by mark; those that can are left out."""
    return {mark: _REASON + one.words for mark, one in needs.items() if not one.is_there()}


def summary(reasons: Iterable[str]) -> list[str]:
    """Return one line for each missing program, with the number of tests that were skipped.

    Args:
        reasons: of all skipped tests.
    """
    of_ours = [one.rpartition(_REASON)[2] for one in reasons if _REASON in one]
    return [
        f"skipped: {of_ours.count(words)} tests need {words}; deploy/prepare-machine installs it"
        for words in dict.fromkeys(of_ours)
        if any(words == one.words for one in NEEDS.values())
    ]

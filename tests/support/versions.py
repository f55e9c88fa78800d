"""The brokers that tests run against: one row a release.

A test names a family; the first release of a family is what it gets. An environment variable
chooses another one: `TEST_ARTEMIS=2.57.0`, `TEST_CLASSIC_5=5.19.1`, `TEST_CLASSIC_6=6.3.2`.
`make versions` runs the same tests on each release.
"""

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from amqsidecar.demo.maven import ARTEMIS as _ARTEMIS_OF_THE_DEMO
from amqsidecar.demo.maven import CLASSIC as _CLASSIC_OF_THE_DEMO

# Why: optional in the broker's own pom, needed to read an activemq.xml and to log.
_LOG4J: Final = "2.26.1"
_LOGGING: Final = (
    f"org.apache.logging.log4j:log4j-core:{_LOG4J}",
    f"org.apache.logging.log4j:log4j-slf4j2-impl:{_LOG4J}",
)


class Release(NamedTuple):
    """A release of a broker.

    Attributes:
        family: `classic_5`, `classic_6` or `artemis`; what a fixture is named after.
        libraries: coordinates of its modules; empty = its own distribution.
        wires: wires of its modules.
    """

    family: str
    version: str
    libraries: Sequence[str] = ()
    wires: Sequence[str] = ()

    def __str__(self) -> str:
        """Return its name for people, such as `Classic 6.3.1`."""
        return f"{'Artemis' if self.family == 'artemis' else 'Classic'} {self.version}"


def _classic(version: str, others: str, spring: str, /, *wires: str, **older: str) -> Sequence[str]:
    """Return the libraries of a Classic broker.

    Args:
        version: of the broker itself and its OpenWire.
        others: version of the modules beside them, where the broker's own can't be had.
        spring: version of Spring.
        wires: further modules.
        older: by module its version, where that of `others` can't be had.
    """
    modules = ("jaas", "kahadb-store", "openwire-legacy", "spring", *wires)
    versions = dict.fromkeys(("broker", "client"), version) | dict.fromkeys(modules, others)
    return (
        *(f"org.apache.activemq:activemq-{one}:{at}" for one, at in (versions | older).items()),
        f"org.springframework:spring-context:{spring}",
        "commons-logging:commons-logging:1.3.5",
        *_LOGGING,
        # Why: the distribution has them under lib/optional; STOMP shows advisories by them.
        "com.thoughtworks.xstream:xstream:1.4.21",
        "org.codehaus.jettison:jettison:1.5.4",
    )


def _artemis(version: str, *modules: str) -> Sequence[str]:
    names = ("server", *modules)
    return (*(f"org.apache.artemis:artemis-{name}:{version}" for name in names), *_LOGGING)


_CLASSIC_WIRES: Final = ("openwire", "stomp", "amqp")

RELEASES: Final = (
    Release("classic_5", _CLASSIC_OF_THE_DEMO, wires=_CLASSIC_WIRES),
    # Why without STOMP: its module can't be had.
    Release(
        "classic_5", "5.19.1", _classic("5.19.1", "5.19.1", "5.3.39", "amqp"), ("openwire", "amqp")
    ),
    # Why with older modules: those beside the broker and its OpenWire can't be had.
    Release(
        "classic_5", "5.19.7", _classic("5.19.7", "5.19.1", "5.3.39", "amqp"), ("openwire", "amqp")
    ),
    Release(
        "classic_6",
        "6.3.1",
        _classic("6.3.1", "6.3.1", "7.0.8", "stomp", "amqp", "console"),
        _CLASSIC_WIRES,
    ),
    # Why 6.2.7: of what is newer only the client can be had.
    Release(
        "classic_6",
        "6.2.7",
        _classic(
            *("6.2.7", "6.2.7", "6.2.18", "stomp", "amqp", "console"),
            jaas="6.1.8",
            spring="6.2.4",
            amqp="6.2.2",
            console="6.2.4",
        ),
        _CLASSIC_WIRES,
    ),
    Release(
        "classic_6",
        "6.3.2",
        _classic("6.3.2", "6.3.1", "7.0.8", "stomp", "amqp", "console"),
        _CLASSIC_WIRES,
    ),
    Release("artemis", _ARTEMIS_OF_THE_DEMO, wires=("core", "amqp", "stomp", "openwire")),
    # Why not 2.56.0: its AMQP module can't be had, and that of 2.55.0 does not start in its server.
    Release(
        "artemis",
        "2.55.0",
        _artemis("2.55.0", "amqp-protocol", "stomp-protocol"),
        ("core", "amqp", "stomp"),
    ),
    # Why without AMQP: of 2.57.0 only the server and the STOMP module can be had.
    Release("artemis", "2.57.0", _artemis("2.57.0", "stomp-protocol"), ("core", "stomp")),
)
"""The first of a family is what tests get, the last its newest."""


def release(family: str, version: str) -> Release:
    """Return the row of a release.

    Raises:
        ValueError: there is none.
    """
    known = [one for one in RELEASES if one.family == family]
    for one in known:
        if one.version == version:
            return one
    names = ", ".join(one.version for one in known)
    raise ValueError(f"{family} {version} is not in support/versions.py: take one of {names}")


def usual(family: str) -> Release:
    """Return the release of a family that tests get."""
    return next(one for one in RELEASES if one.family == family)


def newest(family: str, wire: str) -> Release:
    """Return the newest release of a family that speaks a wire."""
    return next(one for one in reversed(RELEASES) if one.family == family and wire in one.wires)


def classic(version: str) -> Release:
    """Return the row of a release of Classic.

    Raises:
        ValueError: there is none.
    """
    return release("classic_5" if version.startswith("5.") else "classic_6", version)


def _tested(family: str) -> Release:
    """Return what the environment chooses; without a choice the family's first release."""
    return release(family, os.environ.get(f"TEST_{family.upper()}", usual(family).version))


TESTED: Final = {family: _tested(family) for family in ("classic_5", "classic_6", "artemis")}
"""The release of each family that this run tests."""
NEWEST: Final = (newest("classic_6", "openwire"), newest("artemis", "amqp"))
"""What some tests of `make test` run on, so that it meets the usual and the newest releases."""
CLASSIC_5: Final = TESTED["classic_5"].version
CLASSIC_6: Final = TESTED["classic_6"].version
ARTEMIS: Final = TESTED["artemis"].version

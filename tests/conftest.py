"""Options, marks, and real brokers that are started once per session, on first use."""

import asyncio
import gc
import inspect
import logging
import os
import re
import uuid
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import structlog
from hypothesis import HealthCheck, settings

from amqsidecar.runtime.process import prepare_structs
from support import needs
from support.brokers.real import STARTED_BROKERS, ArtemisBroker, Broker, ClassicBroker
from support.scheduling import rank_of, scheduler_for
from support.stores.postgres_server import PostgresServer
from support.tier import at_length
from support.timing import VARIABLE, Timing
from support.versions import CLASSIC_5, CLASSIC_6

# Why: collecting leaves almost no garbage, and looking for it takes a seventh of the time.
gc.disable()

BROKER_FIXTURES = {"classic_5", "classic_6", "artemis", "classic", "broker"}
POSTGRES_FIXTURES = {"postgres", "postgres_url"}

# Why no deadline: how long an example takes says nothing on a machine that is busy with brokers.
# Why by chance, and more of them, only at length: what must pass for every change fails by nothing
# but that change, and has the same examples each time.
settings.register_profile(
    "amqsidecar",
    deadline=None,
    max_examples=at_length(200, otherwise=50),
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=at_length(False, otherwise=True),
)
settings.load_profile("amqsidecar")

B = TypeVar("B", bound=Broker)

log_offsets = pytest.StashKey[dict[Broker, int]]()

# Why: tests leave queues, and a link to Artemis asks about each: the same test takes nine times as
# much processor time where 200 others were before.
TESTS_OF_A_BROKER = 50
"""A shared broker that more tests have used restarts empty after their file."""
uses_of: Counter[Broker] = Counter()
"""How many tests have used a shared broker since it was empty."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--keep-brokers",
        action="store_true",
        help="leave configuration, data and logs of the session's brokers behind, and say where",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measure where the time goes, if asked to (support/timing.py)."""
    if path := os.environ.get(VARIABLE):
        config.pluginmanager.register(Timing(Path(path).absolute()))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share the tests out among workers by `support.scheduling`."""
    return scheduler_for(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses a broker or PostgreSQL by a fixture.

    So `-m "not broker"` needs neither Java nor Maven, `-m "not postgres"` no PostgreSQL.
    """
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        if BROKER_FIXTURES & names:
            item.add_marker(pytest.mark.broker)
        if POSTGRES_FIXTURES & names:
            item.add_marker(pytest.mark.postgres)
    _skip_what_can_not_run(items)
    items.sort(key=lambda item: rank_of(item.nodeid))


def pytest_collection_finish() -> None:
    """Prepare for threads, and let the collector of garbage leave alone what lives until the end.

    It looks at it often.
    """
    prepare_structs()
    gc.collect()
    gc.freeze()
    gc.enable()


def _skip_what_can_not_run(items: list[pytest.Item]) -> None:
    """Skip what this machine lacks a program for; where all must run, those tests fail."""
    if os.environ.get(needs.MUST_RUN):
        return
    for mark, reason in needs.missing().items():
        for item in items:
            if item.get_closest_marker(mark) is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line each what was skipped for want of a program."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [one.longrepr[2] for one in skipped if isinstance(one.longrepr, tuple)]
    for line in needs.summary(reasons):
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """Undo what a command that runs in this process does to the log: its stream is the test's."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Count who has used a shared broker, and start it anew between two files."""
    values = list(getattr(item, "funcargs", {}).values())
    used = [*values, *(getattr(value, "broker", None) for value in values)]
    uses_of.update(broker for broker in uses_of if any(broker is one for one in used))
    result = yield
    if nextitem is not None and nextitem.path != item.path:
        for broker in [one for one, count in uses_of.items() if count > TESTS_OF_A_BROKER]:
            broker.start_anew()
            uses_of[broker] = 0
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[log_offsets] = {broker: broker.log_offset() for broker in STARTED_BROKERS}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach what the brokers of a failed test have logged since the test began."""
    report = yield
    if report.failed:
        before = item.stash.get(log_offsets, {})
        for broker in STARTED_BROKERS:
            if broker in before and not broker.log_path.exists():
                continue
            log = broker.log_tail(lines=100, since=before.get(broker, 0))
            if log:
                report.sections.append((f"log of {broker} during {call.when}", log))
    return report


def _running(broker: B, request: pytest.FixtureRequest) -> Iterator[B]:
    if request.config.getoption("--keep-brokers"):
        broker.keep_folder()
    with broker:
        uses_of[broker] = 0
        yield broker
        del uses_of[broker]
    if broker.folder.exists():
        print(f"kept: {broker}")


@pytest.fixture(scope="session")
def classic_5(request: pytest.FixtureRequest) -> Iterator[ClassicBroker]:
    """ActiveMQ Classic 5.18.3 with stock settings."""
    yield from _running(ClassicBroker(CLASSIC_5), request)


@pytest.fixture(scope="session")
def classic_6(request: pytest.FixtureRequest) -> Iterator[ClassicBroker]:
    """ActiveMQ Classic 6.3.1 with stock settings."""
    yield from _running(ClassicBroker(CLASSIC_6), request)


@pytest.fixture(scope="session")
def artemis(request: pytest.FixtureRequest) -> Iterator[ArtemisBroker]:
    """Artemis with stock settings."""
    yield from _running(ArtemisBroker(), request)


@pytest.fixture(params=["classic_5", "classic_6"])
def classic(request: pytest.FixtureRequest) -> ClassicBroker:
    """Each version of ActiveMQ Classic in turn."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, ClassicBroker)
    return found


@pytest.fixture(params=["classic_5", "classic_6", "artemis"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each broker in turn."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Broker)
    return found


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server, for tests that do it no harm; the others start one of their own."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The URL of an empty database of one test's own."""
    with postgres.database() as url:
        yield url


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A name that no other test and no other run uses, to begin destination names with."""
    name = re.sub(r"[^a-z0-9]+", "_", request.node.name.lower()).strip("_")
    return f"{name[:40]}_{uuid.uuid4().hex[:8]}"

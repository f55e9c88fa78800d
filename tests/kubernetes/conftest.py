"""The cluster, once per session; a namespace for each test."""

import re
from collections.abc import Callable, Generator, Iterator

import pytest
from _pytest.terminal import TerminalReporter

from kubernetes import images, progress
from kubernetes.load import Account, Tally
from kubernetes.namespace import Namespace
from support.deployment.cluster import Cluster
from support.machine.sealed import sealed_folder

VOLUMES = 4
COLUMNS = ("sent", "deaths", "recovered", "exhausted", "lost", "doubled", "altered", "seconds")

_namespace = pytest.StashKey[Namespace]()
_progress = pytest.StashKey[progress.Progress]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what passed on this working tree in a run that was ended."""
    if sealed_folder() is not None:
        before = config.stash[_progress] = progress.of_this_tree()
        done = [item for item in items if item.nodeid in before.passed]
        items[:] = [item for item in items if item.nodeid not in before.passed]
        config.hook.pytest_deselected(items=done)
    for item in items:
        item.add_marker(pytest.mark.kubernetes)
        # Why: pods need their time to go, and what they do is waited for by its own time-outs.
        item.add_marker(pytest.mark.timeout(1200))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the logs of a failed test's pods, and record what passed."""
    report = yield
    if report.failed and _namespace in item.stash:
        report.sections.append(("the namespace", item.stash[_namespace].story()))
    if report.passed and call.when == "call" and _progress in item.config.stash:
        tallies = [one.cells() for _, one in report.user_properties if isinstance(one, Tally)]
        cells = [cell for each in tallies for cell in (*each, f"{report.duration:.0f}")]
        item.config.stash[_progress].add(item.nodeid, cells)
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Make the next run begin from nothing once everything has passed."""
    is_all = exitstatus == pytest.ExitCode.OK and not session.config.option.keyword
    if is_all and _progress in session.config.stash:
        session.config.stash[_progress].forget()


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Print the tallies, as the table in deploy/evidence/README.md has them."""
    if _progress not in config.stash:
        return
    found = config.stash[_progress]
    terminalreporter.write_line(f"on {found.tree}, earlier runs that were ended included:")
    terminalreporter.write_line(f"| test | {' | '.join(COLUMNS)} |")
    terminalreporter.write_line("|---" * (len(COLUMNS) + 1) + "|")
    for test, cells in found.passed.items():
        terminalreporter.write_line(f"| `{test.rpartition('::')[2]}` | {' | '.join(cells)} |")


@pytest.fixture
def account(record_property: Callable[[str, object], None]) -> Account:
    """What writes a tally into the table, and holds it against what is promised."""

    def check(tally: Tally) -> None:
        record_property("tally", tally)
        assert tally.is_clean, tally

    return check


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster with the images of sidecar and brokers."""
    folder = sealed_folder()
    if folder is None:
        pytest.skip("needs a network to itself: make kubernetes")
    with pytest.MonkeyPatch.context() as patch, Cluster(folder) as cluster:
        patch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        for archive in images.archives():
            cluster.load_image(archive)
        yield cluster


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace of one test's own, with some volumes to be had."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[-50:].strip("-")
    cluster.make_volumes(name, VOLUMES)
    with Namespace(cluster, name) as made:
        request.node.stash[_namespace] = made
        yield made

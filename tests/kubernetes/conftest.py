"""The cluster, once per session; a namespace for each test."""

import re
from collections.abc import Callable, Generator, Iterator

import pytest
from _pytest.terminal import TerminalReporter

from kubernetes import images
from kubernetes.load import Account, Tally
from kubernetes.namespace import Namespace
from support.cluster import Cluster
from support.sealed import sealed_folder

VOLUMES = 4
COLUMNS = ("sent", "deaths", "recovered", "exhausted", "lost", "doubled", "altered", "seconds")

_namespace = pytest.StashKey[Namespace]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.kubernetes)
        # Why: pods need their time to go, and what they do is waited for by its own time-outs.
        item.add_marker(pytest.mark.timeout(1200))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach what the pods of a failed test have to tell."""
    report = yield
    if report.failed and _namespace in item.stash:
        report.sections.append(("the namespace", item.stash[_namespace].story()))
    return report


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print the tallies, as the table in deploy/reference/kubernetes.md has them."""
    terminalreporter.write_line(f"| test | {' | '.join(COLUMNS)} |")
    terminalreporter.write_line("|---" * (len(COLUMNS) + 1) + "|")
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for _, tally in report.user_properties:
                cells = [*tally.cells(), f"{report.duration:.0f}"]
                name = report.nodeid.rpartition("::")[2]
                terminalreporter.write_line(f"| `{name}` | {' | '.join(cells)} |")


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

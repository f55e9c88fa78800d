"""Which tests share a worker, and which begin first, so that no worker is left alone at the end."""

from collections.abc import Sequence
from typing import Any, Final

from xdist.scheduler import LoadFileScheduling

LONGEST: Final[Sequence[str]] = (
    "tests/pipeline/",
    "tests/contract/links/test_classic_choosing.py",
    "tests/contract/test_link_contract.py",
    "tests/end_to_end/operators/test_exhausted.py",
    "tests/end_to_end/operators/test_incident_numbers.py",
    "tests/end_to_end/rights/test_doctor_permissions.py",
    "tests/end_to_end/fidelity/test_forwarding.py",
    "tests/end_to_end/operators/test_doctor.py",
    "tests/end_to_end/operators/test_demo.py",
    "tests/field/test_readme.py",
    "tests/end_to_end/crashes/test_large_loads.py",
    "tests/end_to_end/fidelity/test_origins_artemis.py",
    "tests/end_to_end/crashes/test_kills.py",
    "tests/end_to_end/operators/test_console_looks.py",
    "tests/end_to_end/crashes/test_full_volume.py",
    "tests/contract/links/test_stomp_classic_link.py",
    "tests/end_to_end/operators/test_gates.py",
    "tests/matrix/test_matrix.py",
    "tests/chaos/test_chaos_small.py",
    "tests/contract/links/test_stomp_artemis_link.py",
    "tests/combinations/test_array.py",
    "tests/end_to_end/operators/test_console_browser.py",
    "tests/pipeline/journal/test_ingest_kills.py",
    "tests/end_to_end/fidelity/test_origins_classic.py",
    "tests/end_to_end/rights/test_tls.py",
    "tests/end_to_end/redelivery/test_discovery.py",
    "tests/end_to_end/redelivery/test_artemis.py",
    "tests/end_to_end/crashes/test_less_common_deaths.py",
    "tests/end_to_end/crashes/test_shared_schedule.py",
    "tests/image/test_image.py",
    "tests/end_to_end/crashes/test_listener_pairs.py",
    "tests/contract/test_queue_counters.py",
    "tests/end_to_end/operators/test_journal.py",
    "tests/contract/links/test_amqp_classic_link.py",
    "tests/end_to_end/operators/test_operating.py",
    "tests/contract/links/test_openwire_link.py",
    "tests/end_to_end/operators/test_outcomes.py",
    "tests/contract/links/test_amqp_artemis_link.py",
    "tests/field/test_field.py",
    "tests/contract/links/test_artemis_pair_link.py",
    "tests/end_to_end/frameworks/test_notes_library.py",
    "tests/end_to_end/fidelity/test_hostile_messages.py",
)
"""Files, or folders, that take longer than most, longest first (`make test-times` has numbers)."""

ONE_SESSION: Final = "tests/pipeline/"
"""Its files share one Spark session, which takes ten seconds of processor time to start and to
become fast, and so one worker."""

WITHOUT_IT: Final = ("tests/pipeline/journal/test_ingest_kills.py",)
"""Files there that start Spark in processes of their own."""


def worker_scope_of(nodeid: str) -> str:
    """Return what is one for all tests that run in the same worker: a file, or that folder."""
    path = nodeid.partition("::")[0]
    return ONE_SESSION if path.startswith(ONE_SESSION) and path not in WITHOUT_IT else path


def rank_of(nodeid: str) -> int:
    """Return where the file of a test comes: the lowest number first, equal ones as they were."""
    scope = worker_scope_of(nodeid)
    return LONGEST.index(scope) if scope in LONGEST else len(LONGEST)


class ByScope(LoadFileScheduling):  # type: ignore[misc]
    """Gives whole scopes to workers (`worker_scope_of`), in the order of the tests."""

    def _split_scope(self, nodeid: str) -> str:
        return worker_scope_of(nodeid)

    def remove_node(self, node: Any) -> str | None:
        """Give to others only those scopes of a crashed worker that it has not finished.

        A worker that gets a finished scope has nothing to run, and so never asks for more.
        """
        scopes = self.assigned_work[node]
        self.assigned_work[node] = {
            name: tests for name, tests in scopes.items() if not all(tests.values())
        }
        crashed: str | None = super().remove_node(node)
        return crashed


def scheduler_for(config: Any, log: Any) -> ByScope | None:
    """Return the scheduler for `--dist loadfile`; None = that of pytest-xdist."""
    return ByScope(config, log) if config.getvalue("dist") == "loadfile" else None

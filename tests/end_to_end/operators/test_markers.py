"""A deployment is marked, and what dies since then says so; on real brokers."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from support.jms.peer import JmsPeer
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICIES = Path(__file__).parents[1] / "policies"


@pytest.mark.parametrize(
    ("name", "policy", "provider", "how"),
    [
        ("artemis", "artemis.yaml", "qpid", "reject"),
        ("classic_6", "redelivery.yaml", "openwire", "rollback"),
    ],
)
def test_what_dies_after_a_deployment_is_new_since_then(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    unique: str,
    name: str,
    policy: str,
    provider: str,
    how: str,
) -> None:
    broker, queue = request.getfixturevalue(name), f"e2e.late.{unique}"
    url = broker.pair_url if name == "artemis" else broker.openwire_url
    journal, peer = tmp_path / "journal", JmsPeer.of(broker, provider)
    sets = ["intake.backlog=process", f"journal.path={journal}", "journal.segment_s=1"]
    sidecar = SidecarProcess(tmp_path, url, policy=POLICIES / policy, sets=sets)
    with sidecar.running():
        [marked] = sidecar.json_command("mark", "orders 4.2", "--destination", "e2e.late.>")
        sidecar.json_command("mark", "another team", "--destination", "elsewhere.>")
        peer.produce(queue, "Text", count=1)
        peer.fail(queue, how, messages=1, deliveries=1)
        eventually(lambda: sidecar.rows("--destination", queue), what="it died")
        [group] = sidecar.json_command("groups", "--destination", queue)
        assert group["new_since"] == marked
        assert "new since orders 4.2" in sidecar.run_command("groups", "--wide")
        assert "orders 4.2, marked by cli:" in sidecar.get("/plots")[1]

        def journaled() -> list[str]:
            rows = [
                row
                for path in journal.rglob("*.parquet")
                for row in pq.read_table(path).to_pylist()
            ]
            return [row["reason"] for row in rows if row["type"] == "marked"]

        eventually(lambda: len(journaled()) == 2, what="the journal has the markers")
        assert journaled() == ["orders 4.2", "another team"]

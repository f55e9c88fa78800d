"""What can't be kept is counted, and never an error for the connection."""

from pathlib import Path

from amqsidecar.listener.bodies import LARGE_BYTES, BodyBudget


def test_a_volume_that_takes_no_file_is_full(tmp_path: Path) -> None:
    unkept: list[int] = []
    budget = BodyBudget(1 << 20, 1 << 30, tmp_path / "gone", lambda: unkept.append(1))
    body = budget.new_body(0)
    body.add(b"x" * (LARGE_BYTES + 1))
    body.add(b"more")
    assert not body.is_kept
    assert (len(unkept), budget.memory_bytes, budget.spooled_bytes) == (1, 0, 0)

"""A store that is lost or mixed up is told: at the start, to probes, scrapes and by `doctor`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers import ArtemisBroker, Broker, ClassicBroker
from support.doctor_run import run_doctor
from support.maven import CLASSIC_5
from support.sidecar_process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

STRICT = "store.accept_orphans=false"


@pytest.fixture(params=["classic", "artemis"])
def lonely(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker beside which no other test has left a token."""
    with ClassicBroker(CLASSIC_5) if request.param == "classic" else ArtemisBroker() as broker:
        yield broker


def url_of(broker: Broker) -> str:
    return broker.openwire_url if isinstance(broker, ClassicBroker) else broker.amqp_url


def sidecar(broker: Broker, folder: Path, *sets: str) -> SidecarProcess:
    folder.mkdir(exist_ok=True)
    return SidecarProcess(folder, url_of(broker), sets=(STRICT, *sets))


def others(process: SidecarProcess) -> list[dict[str, Any]]:
    """Return the schedules that the readiness answer tells of, other than its own."""
    found: list[dict[str, Any]] = json.loads(process.get("/readyz")[1])["other_schedules"]
    return found


def test_a_changed_store_is_refused_and_told_until_somebody_accepts_it(
    lonely: Broker, tmp_path: Path
) -> None:
    with sidecar(lonely, tmp_path / "first").start() as first:
        assert others(first) == []
        # Why allowed: the first one is at work, so that its schedule is not left alone.
        with sidecar(lonely, tmp_path / "beside").start() as beside:
            ((instance, is_held),) = [(one["instance"], one["is_held"]) for one in others(beside)]
            assert is_held
            assert beside.metric("amqsidecar_orphaned_tokens") == 0
            beside.stop()
        first.stop()

    changed = sidecar(lonely, tmp_path / "changed")
    said = changed.run_refused(expect=78)
    assert f"amqsidecar.token.{instance} (last cycle 20" in said
    assert "store.accept_orphans=true" in said
    verdict = run_doctor(url_of(lonely), tmp_path / "changed", STRICT)
    assert verdict.code == 78
    subjects = [one["subject"] for one in verdict.findings if one["severity"] == "problem"]
    assert any(instance in subject for subject in subjects)

    with sidecar(lonely, tmp_path / "changed", "store.accept_orphans=true").start() as accepting:
        assert {one["is_held"] for one in others(accepting)} == {False}
        assert instance in {one["instance"] for one in others(accepting)}
        assert accepting.metric("amqsidecar_orphaned_tokens") == 2
        accepting.stop()
    # Why: a store that is in use goes on; the orphans are still told.
    with changed.start():
        assert changed.metric("amqsidecar_orphaned_tokens") == 2
        with sidecar(lonely, tmp_path / "first").start():
            eventually(
                lambda: changed.metric("amqsidecar_orphaned_tokens") == 1,
                what="the schedule has a sidecar again",
            )


def test_a_new_store_of_the_same_name_does_not_take_the_token_over(
    lonely: Broker, tmp_path: Path, unique: str
) -> None:
    named = f"store.instance={unique}"
    with sidecar(lonely, tmp_path / "old", named).start() as old:
        old.stop()
    assert unique in sidecar(lonely, tmp_path / "new", named).run_refused(expect=78)
    with sidecar(lonely, tmp_path / "old", named).start() as old:
        old.stop()
    with sidecar(lonely, tmp_path / "new", named, "store.accept_orphans=true").start():
        pass

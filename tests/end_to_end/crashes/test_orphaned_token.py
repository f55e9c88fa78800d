"""A lost or swapped store is reported at the start, to probes and scrapes, and by `doctor`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.sidecar.doctor import run_doctor
from support.sidecar.process import SidecarProcess
from support.versions import CLASSIC_5
from support.waiting import eventually

pytestmark = pytest.mark.broker

STRICT = "store.accept_orphans=false"


@pytest.fixture(params=[pytest.param("classic", marks=pytest.mark.proof), "artemis"])
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
    """Return the other schedules that the readiness answer names."""
    found: list[dict[str, Any]] = json.loads(process.get("/readyz")[1])["other_schedules"]
    return found


def test_a_changed_store_is_refused_and_reported_until_somebody_accepts_it(
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


def test_two_sidecars_with_other_rules_are_named_at_the_start_and_by_doctor(
    lonely: Broker, tmp_path: Path
) -> None:
    def ruled(name: str, delay_ms: int) -> tuple[str, SidecarProcess]:
        rules = (
            "policy.rules={plugins: [{redelivery: "
            f"{{default_entry: {{initial_redelivery_delay_ms: {delay_ms}}}}}}}]}}"
        )
        return rules, sidecar(lonely, tmp_path / name, rules)

    def said_of_peers(process: SidecarProcess) -> list[dict[str, Any]]:
        return [one for one in process.log_lines() if one["event"] == "foreign_sidecar"]

    def doctor_on(name: str, rules: str) -> list[tuple[str, str]]:
        found = run_doctor(url_of(lonely), tmp_path / name, STRICT, rules).of("schedule")
        return [
            (one["severity"], one["what"]) for one in found if "its own schedule" in one["what"]
        ]

    rules, first = ruled("first", 60_000)
    same_rules, same = ruled("same", 60_000)
    other_rules, other = ruled("other", 70_000)
    with first.start(), same.start():
        ((severity, _),) = doctor_on("same", same_rules)
        assert severity == "note"
        assert [one["level"] for one in said_of_peers(same)] == ["info"]
        with other.start():
            found = doctor_on("other", other_rules)
            assert [severity for severity, _ in found] == ["warning", "warning"]
            assert all("it uses other rules" in what for _, what in found)
            theirs = others(other)[0]["rules_digest"]
            assert {one["rules_digest"] for one in others(other)} == {theirs}
            for said in said_of_peers(other):
                assert said["level"] == "warning"
                assert theirs in said["meaning"]
    assert rules == same_rules
    assert rules != other_rules


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

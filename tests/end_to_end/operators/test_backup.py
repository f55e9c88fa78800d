"""Backup and restore by deploy/guides/backup.md: what was sent since is not sent again.

What was taken after the backup is in neither of both any more: no guard brings that back.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.brokers.purge import purge
from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.peer import JmsPeer
from support.sidecar.process import SidecarProcess
from support.stores.postgres_server import program
from support.waiting import eventually

GUIDE = Path(__file__).parents[3] / "deploy" / "guides" / "backup.md"
POLICIES = Path(__file__).parents[1] / "policies"
FILES = ("schedule.db", "schedule.db-wal", "schedule.db-shm")


class Site:
    """A broker with a sidecar, and an application that fails once what it is handed."""

    def __init__(self, broker: Broker, folder: Path, unique: str, sets: Sequence[str] = ()) -> None:
        is_classic = isinstance(broker, ClassicBroker)
        if isinstance(broker, ArtemisBroker):
            # Why: what other tests have left is sent, too, and the guide looks at each.
            purge(broker, "DLQ")
        self.peer = JmsPeer.of(broker, "openwire" if is_classic else "qpid")
        self.how = ("rollback", 0) if is_classic else ("reject", 9)
        self.unique = unique
        self.late = f"e2e.late.{unique}"
        self.soon = f"e2e.back.{unique}"
        self.sidecar = SidecarProcess(
            folder,
            broker.pair_url if isinstance(broker, ArtemisBroker) else broker.openwire_url,
            policy=POLICIES / ("redelivery.yaml" if is_classic else "artemis.yaml"),
            sets=["intake.backlog=process", *sets],
        )

    def die(self, queue: str, count: int) -> None:
        """Let messages die, which the sidecar takes."""
        how, limit = self.how
        self.peer.produce(queue, "Text", count=count)
        self.peer.fail(queue, how, messages=count, deliveries=1, max_redeliveries=limit)

    def states(self) -> list[str]:
        """Return the states of what waits to be sent to the queue with the long delay."""
        rows = self.sidecar.rows("--destination", self.late)
        return [row["state"] for row in rows]

    def wait_for(self, states: list[str]) -> None:
        eventually(lambda: self.states() == states, what=f"{states} wait", every_s=0.5)

    def act(self, command: str, *more: str) -> None:
        self.sidecar.run_command(command, "--destination", self.late, "--yes", *more)

    def resent_in_journal(self) -> int:
        """Count what the journal says was sent to the queue with the long delay.

        Why only there: the sidecar also sends what other tests of the same broker have left.
        """
        # Why any exit code: the journal may not have begun.
        export = self.sidecar.try_command("journal export").stdout
        events = [json.loads(line) for line in export.splitlines()]
        return sum(
            event["type"] == "resent" and self.late in event.get("destination", "")
            for event in events
        )

    def go_on(self) -> None:
        """After the backup: three are sent and consumed, one is taken."""
        self.act("retry")
        assert len(self.peer.consume(self.late, count=3)) == 3
        self.die(self.late, 1)
        self.wait_for(["waiting"])

    def check_held(self) -> None:
        """What was sent since is held, what dies now comes back, and one is lost."""
        self.sidecar.start()
        assert self.states() == ["held"] * 3
        self.die(self.soon, 1)
        assert len(self.peer.consume(self.soon, count=1)) == 1
        [doubt] = [line for line in self.sidecar.log_lines() if line["event"] == "cycle_in_doubt"]
        # Why at least: other tests leave dead letters in the same broker, and those wait, too.
        held = re.search(r"(\d+) that waited are held", doubt["reason"])
        assert held is not None, doubt
        assert int(held[1]) >= 3
        assert self.peer.browse(self.late) == []


@pytest.fixture
def site(broker: Broker, tmp_path: Path, unique: str) -> Site:
    return Site(broker, tmp_path, unique)


def discard_what_was_sent(site: Site, since: datetime) -> None:
    """Run what the guide has for those with a journal, as it stands there."""
    [script] = re.findall(r"```bash\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    options = dict(one.split("=", 1) for one in site.sidecar.options)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=site.sidecar.folder,
        env={
            "PATH": path,
            "BACKUP_TIME": since.isoformat(timespec="milliseconds"),
            "AMQSIDECAR_STORE__URL": options["store.url"],
            "AMQSIDECAR_JOURNAL__PATH": options["journal.path"],
        },
        check=True,
        timeout=120,
    )


def restore_file(site: Site, copy: Path) -> None:
    """As the guide says: stop, move the files away, put the copy in their place."""
    folder = site.sidecar.folder
    aside = folder / "aside"
    aside.mkdir()
    for name in FILES:
        if (folder / name).exists():
            (folder / name).rename(aside / name)
    copy.rename(folder / FILES[0])


@pytest.mark.parametrize(
    "broker", [pytest.param("classic_6", marks=pytest.mark.proof), "artemis"], indirect=True
)
def test_a_restored_file_sends_nothing_twice(site: Site, tmp_path: Path) -> None:
    site.sidecar.options += [f"journal.path={tmp_path / 'journal'}", "journal.segment_s=1"]
    with site.sidecar.running() as sidecar:
        site.die(site.late, 3)
        site.wait_for(["waiting"] * 3)
        copy = tmp_path / "backup.db"
        sidecar.run_command("backup", str(copy))
        since = datetime.now(UTC)
        site.go_on()
        eventually(
            lambda: site.resent_in_journal() == 3,
            what="the journal knows what was sent",
            every_s=0.5,
        )
        assert sidecar.stop() == 0
        restore_file(site, copy)
        site.check_held()
        discard_what_was_sent(site, since)
        assert site.states() == []
        assert site.peer.browse(site.late) == []


@pytest.mark.parametrize("broker", ["classic_6"], indirect=True)
def test_a_backup_of_which_nothing_was_sent_since_goes_on_as_if_nothing_had_been(
    site: Site, tmp_path: Path
) -> None:
    with site.sidecar.running() as sidecar:
        site.die(site.late, 3)
        site.wait_for(["waiting"] * 3)
        assert sidecar.stop() == 0
        copy = tmp_path / "backup.db"
        sidecar.run_command("backup", str(copy))
        restore_file(site, copy)
        sidecar.start()
        assert site.states() == ["waiting"] * 3
        assert "cycle_in_doubt" not in sidecar.log()
        site.act("retry")
        assert len(site.peer.consume(site.late, count=3)) == 3


@pytest.mark.postgres
def test_a_restored_database_sends_nothing_twice(
    artemis: Broker, postgres_url: str, tmp_path: Path, unique: str
) -> None:
    site = Site(artemis, tmp_path, unique, [f"store.url={postgres_url}"])
    dump = str(tmp_path / "redelivery.dump")

    def run(name: str, *arguments: str) -> None:
        subprocess.run([program(name), "-d", postgres_url, *arguments], check=True, timeout=60)

    with site.sidecar.running() as sidecar:
        site.die(site.late, 3)
        site.wait_for(["waiting"] * 3)
        run("pg_dump", "--format=custom", "--schema=amqsidecar", f"--file={dump}")
        site.go_on()
        assert sidecar.stop() == 0
        run("pg_restore", "--clean", "--if-exists", "--single-transaction", dump)
        site.check_held()
        site.act("discard")

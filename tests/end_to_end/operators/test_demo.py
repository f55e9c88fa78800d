"""The demo ends by itself with a clean count, ends at once on Ctrl-C, and leaves nothing behind.

On Artemis and on Classic, each with applications in Python.
"""

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import expect

from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.management import ManagementQuestion
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.core_artemis.link import CoreArtemisLink
from amqsidecar.brokers.openwire.link import OpenWireLink
from amqsidecar.clock import SystemClock
from support.brokers.real import ArtemisBroker, ClassicBroker
from support.jms.peer import JmsPeer
from support.machine.processes import run_program
from support.maven import artemis_home, classic_5_home
from support.sidecar import forked
from support.versions import CLASSIC_5
from support.waiting import eventually
from support.web.chromium import opened_page, running_chromium

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[3]
ONE = [sys.executable, "-m", "amqsidecar", "demo", "--quick"]
ROW = re.compile(r"^ *(Classic|Artemis) (?:at )?[\d.:]+((?: +\d+){7}) *$", re.MULTILINE)
LIMIT_S = 240
DEAD_LETTERS = {"artemis": "DLQ", "classic": "ActiveMQ.DLQ"}
Running = ArtemisBroker | ClassicBroker
# Why a shell: when the first process of a session ends, the kernel hangs up the terminal and drops
# what nobody has read. At a person's terminal that process is a shell, too, and outlives the demo.
SHELL = ["sh", "-c", 'trap : INT; "$@"; echo "$? is its exit code"; read -r enter', "sh"]


def environment(folder: Path) -> Mapping[str, str]:
    """Return what makes the demo keep everything that it writes in a folder."""
    return os.environ | {"PYTHONPATH": "tests", "TMPDIR": str(folder), "TERM": "xterm-256color"}


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of processes that work in a folder; each of the demo's names it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


def assert_nothing_is_left(folder: Path) -> None:
    # Why waited for: who was killed is there until the kernel has taken it apart.
    eventually(lambda: not processes_of(folder), what="no process is left")
    assert list(folder.iterdir()) == []


# Why in proof: below, the story is counted on an Artemis that runs and a Classic out of a folder.
@pytest.mark.proof
@pytest.mark.parametrize(("options", "kind"), [([], "Artemis"), (["--kind", "classic"], "Classic")])
def test_the_demo_ends_by_itself_and_counts_nothing_lost_or_doubled(
    options: list[str], kind: str, tmp_path: Path
) -> None:
    done = run_in(tmp_path, [*ONE, *options])
    assert done.returncode == 0, done.stdout + done.stderr
    assert_counted(done.stdout, kind)
    assert_nothing_is_left(tmp_path)


def assert_counted(told: str, kind: str) -> None:
    """Assert that the demo ran on this broker, and each message has come to its end."""
    [(played, numbers)] = ROW.findall(told)
    assert played == kind
    messages, deaths, recovered, exhausted, discarded, lost, doubled = map(int, numbers.split())
    assert (messages, recovered, exhausted, discarded) == (24, 16, 4, 4)
    # Eight fail twice, eight once, four three times, four are dropped after the first.
    assert deaths == 8 * 2 + 8 + 4 * 3 + 4
    assert (lost, doubled) == (0, 0)
    assert "kill -9" in told
    assert "scheduled" in told, "the history of one message"


@pytest.mark.browser
@pytest.mark.parametrize(
    "start",
    [
        pytest.param(ArtemisBroker, id="artemis"),
        pytest.param(lambda: ClassicBroker(CLASSIC_5), id="classic", marks=pytest.mark.proof),
    ],
)
def test_a_demo_that_is_kept_on_a_running_broker_is_tried_in_three_clicks_and_leaves_nothing(
    start: Callable[[], Running], tmp_path: Path
) -> None:
    """`--broker URL` refuses dead letters of others; what it refuses is still there."""
    demo = tmp_path / "demo"
    demo.mkdir()
    # Why replaced: the end may be in the middle of a character.
    told_so_far = partial((tmp_path / "told").read_text, errors="replace")
    with start() as broker, (tmp_path / "told").open("w") as told:
        dead, peer = DEAD_LETTERS[broker.kind], peer_of(broker)
        peer.fill(dead, 1)
        peer.fill("app.orders", 1)
        before = queues_of(broker)
        command = on_running(broker, tmp_path)
        refused = run_in(demo, command)
        assert refused.returncode == 1
        assert f"{dead} already holds messages" in refused.stdout
        assert len(peer.browse(dead)) == 1
        wait_for_queues(broker, before)
        peer.drain(dead, 1)
        process = subprocess.Popen(
            [*command, "--keep"], cwd=ROOT, env=environment(demo), stdout=told, stderr=told
        )
        try:
            eventually(
                lambda: "Three clicks" in told_so_far() or process.poll() is not None,
                within_s=LIMIT_S,
                what="the demo is ready to be tried",
            )
            assert process.poll() is None, told_so_far()
            found = re.findall(r"Console of \w+ .*: (http://\S+)", told_so_far())
            retry_a_group(found[-1])
            process.terminate()
            assert process.wait(60) == 130
        finally:
            process.kill()
            process.wait()
        assert_counted(told_so_far(), broker.kind.capitalize())
        assert_nothing_is_left(demo)
        wait_for_queues(broker, before)
        assert len(peer.browse("app.orders")) == 1


def retry_a_group(console: str) -> None:
    with running_chromium() as browser, opened_page(browser, console) as page:
        page.goto("/")
        page.locator("tr", has_text="demo.payments").get_by_role("link").first.click()
        page.get_by_role("link", name="Retry…").click()
        page.get_by_role("button", name="Retry 25 messages").click()
        expect(page.locator("h1")).to_contain_text("Operation")
        resent = page.locator("#live .tiles div", has_text="re-sent").locator("dd")
        expect(resent).to_have_text("25")


# Why in proof: above, a demo leaves a running broker as it was; below, an interrupt ends one.
@pytest.mark.proof
@pytest.mark.parametrize("start", [ArtemisBroker, ClassicBroker], ids=["artemis", "classic"])
def test_an_interrupted_demo_leaves_a_running_broker_as_it_was(
    start: Callable[[], Running], tmp_path: Path
) -> None:
    """With messages on their way and in the dead-letter queue; what others sent stays."""
    demo, told = tmp_path / "demo", tmp_path / "told"
    demo.mkdir()
    with start() as broker, told.open("w") as output:
        peer, before = peer_of(broker), queues_of(broker)
        process = subprocess.Popen(
            ["env", "--default-signal=INT", *on_running(broker, tmp_path)],
            cwd=ROOT,
            env=environment(demo),
            stdout=output,
            stderr=output,
        )
        try:
            eventually(
                lambda: has_token_of_demo(broker) or process.poll() is not None,
                within_s=LIMIT_S,
                what="the demo's sidecar has a token",
            )
            eventually(
                lambda: peer.browse(DEAD_LETTERS[broker.kind]) or process.poll() is not None,
                within_s=LIMIT_S,
                what="a message of the demo has died",
            )
            assert process.poll() is None, told.read_text()
            peer.fill("demo.payments", 1)
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 130, told.read_text()
        finally:
            process.kill()
            process.wait()
        assert "The broker" not in told.read_text()
        wait_for_queues(broker, before | {"demo.payments"})
        assert len(peer.browse("demo.payments")) == 1
    assert_nothing_is_left(demo)


def peer_of(broker: Running) -> JmsPeer:
    return JmsPeer.of(broker, "core" if broker.kind == "artemis" else "openwire")


def on_running(broker: Running, folder: Path) -> list[str]:
    """Return the command that plays on a broker of ours; its password is in the folder."""
    password = folder / "password"
    password.write_text(f"{broker.password}\n", encoding="utf-8")
    login = f"{broker.user}@127.0.0.1"
    if isinstance(broker, ArtemisBroker):
        where = ["--broker", f"artemis://{login}:{broker.ports['PORT']}"]
    else:
        where = ["--broker", f"openwire://{login}:{broker.ports['OPENWIRE_PORT']}"]
        where += ["--stomp-port", str(broker.ports["STOMP_PORT"])]
    return [*ONE, *where, "--password-file", str(password)]


def has_token_of_demo(broker: Running) -> bool:
    return any(name.startswith("amqsidecar.token.demo-") for name in queues_of(broker))


def queues_of(broker: Running) -> set[str]:
    """Return the names of all queues, of the sidecar's own as well."""
    instance = f"names-{uuid4().hex}"
    if isinstance(broker, ArtemisBroker):
        core = CoreArtemisLink(
            ArtemisLinkSettings(broker.endpoint("PORT"), clock=SystemClock(), instance=instance)
        )
        with closing(core.look()) as opened:
            names = opened._management.ask(ManagementQuestion("broker", "getQueueNames")).value
            # Why not these: the broker's own, and those of connections, which end with them.
            return {one for one in names if not re.match(r"\$sys\.|[0-9a-f-]{36}$", one)}
    link = OpenWireLink(
        ClassicLinkSettings(
            broker.endpoint("OPENWIRE_PORT"), clock=SystemClock(), instance=instance
        )
    )
    with closing(link.look()) as look:
        look.queue_names()
        return set(look._queues._names)


def wait_for_queues(broker: Running, names: set[str]) -> None:
    """Wait until the broker has these queues: it removes those of ended connections by itself."""
    eventually(
        lambda: queues_of(broker) == names,
        what=f"the queues are {sorted(names)}",
        last=lambda _: str(sorted(queues_of(broker))),
    )


def test_the_demo_starts_a_broker_out_of_a_folder_and_says_what_else_it_needs(
    tmp_path: Path,
) -> None:
    java = Path(shutil.which("java") or "")
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "java").symlink_to(java)
    (tmp_path / "run").mkdir()
    (tmp_path / "cache").mkdir()
    empty = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": str(tmp_path / "java")}
    home = str(classic_5_home())
    done = run_in(tmp_path / "run", [*ONE, "--broker-home", home], empty)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_counted(done.stdout, "Classic")
    assert list((tmp_path / "cache").rglob("*")) == [], "nothing was fetched"
    artemis = ["--broker-home", str(artemis_home())]
    nowhere = ["--broker-home", str(tmp_path)]
    for more, variables, words in (
        ([], empty, "mvn is not on PATH: install Maven 3"),
        ([], {**empty, "PATH": ""}, "java is not on PATH: install a Java runtime"),
        (artemis, {**empty, "PATH": ""}, "java is not on PATH: install a Java runtime"),
        (nowhere, empty, "is not an unpacked Apache Artemis"),
        ([*nowhere, "--kind", "classic"], empty, "is not an unpacked ActiveMQ Classic"),
    ):
        refused = refused_with(more, variables)
        assert refused.returncode == 78
        assert words in refused.stderr
    contradicted = refused_with([*artemis, "--kind", "classic"], empty)
    assert contradicted.returncode == 2
    assert "it is artemis" in contradicted.stderr
    assert_nothing_is_left(tmp_path / "run")


def refused_with(
    options: list[str], variables: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run a demo that ends before it starts anything."""
    return forked.run(["demo", "--quick", *options], timeout=60, env={**os.environ, **variables})


def run_in(
    folder: Path, command: list[str], variables: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return run_program(
        command, cwd=ROOT, env={**environment(folder), **(variables or {})}, timeout=LIMIT_S
    )


def test_ctrl_c_at_the_terminal_ends_everything(tmp_path: Path) -> None:
    """In a terminal, where the board is drawn, while brokers, consumers and sidecars run."""
    terminal, inside = pty.openpty()
    # Why: what ignores interrupts, as a background job of a shell, hands that on to its children.
    process = subprocess.Popen(
        ["env", "--default-signal=INT", "setsid", "--ctty", "--wait", *SHELL, *ONE],
        cwd=ROOT,
        env=environment(tmp_path),
        stdin=inside,
        stdout=inside,
        stderr=inside,
    )
    os.close(inside)
    try:
        seen = read_until(terminal, "consumers fail with them")
        assert "every tile is a message" in seen
        assert len(processes_of(tmp_path)) >= 3
        os.write(terminal, b"\x03")
        seen = read_until(terminal, "is its exit code")
        assert "Interrupted" in seen
        assert "130 is its exit code" in seen
        os.write(terminal, b"\n")
        process.wait(60)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert_nothing_is_left(tmp_path)


def read_until(terminal: int, words: str) -> str:
    """Read what the demo draws until some words are in it; the test's time-out is the limit."""
    seen = ""
    while words not in seen:
        seen += os.read(terminal, 65_536).decode(errors="replace")
    return seen

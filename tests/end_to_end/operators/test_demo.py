"""The demo ends by itself with a clean count, ends at once on Ctrl-C, and leaves nothing behind.

`amqsidecar demo` on Classic with applications in Python, and the same story on both brokers with
JMS applications.
"""

import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from playwright.sync_api import expect

from support.brokers import ClassicBroker
from support.chromium import opened_page, running_chromium
from support.jms_peer import JmsPeer
from support.maven import CLASSIC_5, classic_5_home
from support.waiting import eventually

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[3]
ONE = [sys.executable, "-m", "amqsidecar", "demo", "--quick"]
BOTH = [sys.executable, "-m", "support.two_brokers_demo", "--quick"]
ROW = re.compile(r"^ *(Classic|Artemis) [\d.]+((?: +\d+){7}) *$", re.MULTILINE)
LIMIT_S = 180
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
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "kinds"), [(ONE, {"Classic"}), (BOTH, {"Classic", "Artemis"})], ids=["one", "both"]
)
def test_the_demo_ends_by_itself_and_counts_nothing_lost_or_doubled(
    command: list[str], kinds: set[str], tmp_path: Path
) -> None:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {kind: tuple(map(int, numbers.split())) for kind, numbers in ROW.findall(done.stdout)}
    assert rows.keys() == kinds
    for messages, deaths, recovered, exhausted, discarded, lost, doubled in rows.values():
        assert (messages, recovered, exhausted, discarded) == (24, 16, 4, 4)
        # Eight fail twice, eight once, four three times, four are dropped after the first.
        assert deaths == 8 * 2 + 8 + 4 * 3 + 4
        assert (lost, doubled) == (0, 0)
    assert "kill -9" in done.stdout
    assert "scheduled" in done.stdout, "the history of one message"
    assert_nothing_is_left(tmp_path)


def test_the_demo_on_a_running_broker_out_of_a_folder_takes_only_an_empty_one(
    tmp_path: Path,
) -> None:
    """`--broker URL` refuses dead letters of others; what it refuses is still there."""
    demo = tmp_path / "demo"
    demo.mkdir()
    with ClassicBroker(CLASSIC_5) as broker:
        peer = JmsPeer.of(broker, "openwire")
        peer.fill("ActiveMQ.DLQ", 1)
        running = [
            *ONE,
            *("--broker", f"openwire://admin@127.0.0.1:{broker.ports['OPENWIRE_PORT']}"),
            *("--stomp-port", str(broker.ports["STOMP_PORT"])),
            *("--password-file", str(tmp_path / "password")),
        ]
        (tmp_path / "password").write_text("admin\n", encoding="utf-8")
        refused = run_in(demo, running)
        assert refused.returncode == 1
        assert "ActiveMQ.DLQ holds messages already" in refused.stdout
        assert len(peer.browse("ActiveMQ.DLQ")) == 1
        peer.drain("ActiveMQ.DLQ", 1)
        for _ in ("the first", "one more, beside the token of the first"):
            done = run_in(demo, running)
            assert done.returncode == 0, done.stdout + done.stderr
            assert_nothing_is_left(demo)


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
    assert list((tmp_path / "cache").rglob("*")) == [], "nothing was fetched"
    for more, variables, words in (
        ([], empty, "mvn is not on PATH: install Maven 3"),
        ([], {**empty, "PATH": ""}, "java is not on PATH: install a Java runtime"),
        (["--broker-home", str(tmp_path)], empty, "is no unpacked ActiveMQ Classic"),
    ):
        refused = run_in(tmp_path / "run", [*ONE, *more], variables)
        assert refused.returncode == 78
        assert words in refused.stderr
    assert_nothing_is_left(tmp_path / "run")


def run_in(
    folder: Path, command: list[str], variables: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**environment(folder), **(variables or {})},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.mark.browser
def test_a_demo_that_is_kept_leads_to_a_retried_group_in_three_clicks(tmp_path: Path) -> None:
    told_so_far = (tmp_path / "told").read_text
    with (tmp_path / "told").open("w") as told:
        process = subprocess.Popen(
            [*ONE, "--keep"], cwd=ROOT, env=environment(tmp_path), stdout=told, stderr=told
        )
        try:
            eventually(
                lambda: "Three clicks" in told_so_far() or process.poll() is not None,
                within_s=LIMIT_S,
                what="the demo is ready to be tried",
            )
            assert process.poll() is None, told_so_far()
            found = re.findall(r"Console of Classic .*: (http://\S+)", told_so_far())
            with running_chromium() as browser, opened_page(browser, found[-1]) as page:
                page.goto("/")
                page.locator("tr", has_text="demo.payments").get_by_role("link").first.click()
                page.get_by_role("link", name="Retry…").click()
                page.get_by_role("button", name="Retry 25 messages").click()
                expect(page.locator("h1")).to_contain_text("Operation")
                resent = page.locator("#live .tiles div", has_text="re-sent").locator("dd")
                expect(resent).to_have_text("25")
            process.terminate()
            assert process.wait(60) == 130
        finally:
            process.kill()
            process.wait()
    (tmp_path / "told").unlink()
    assert_nothing_is_left(tmp_path)


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

"""The examples of the page on notes write notes that are joined with their deaths."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proton.utils import BlockingConnection

from support.brokers.real import ArtemisBroker
from support.jms.peer import JmsPeer
from support.machine.applications import node_script
from support.sidecar.process import SidecarProcess
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "deploy" / "reference" / "cause-notes.md"
POLICY = Path(__file__).parents[1] / "policies" / "artemis.yaml"

NODE_APPLICATION = """
const [port, notes, messageId, queue] = process.argv.slice(2);
const connection = require("rhea").connect({
  host: "127.0.0.1", port: Number(port), username: "admin", password: "admin", reconnect: false,
});
const error = new TypeError("no stock");
connection.once("connection_open", () => writeNote(connection, messageId, queue, error, notes));
connection.on("sender_close", () => connection.close());
"""

DOTNET_APPLICATION = """
using System;
using System.Collections.Generic;
using System.IO;
using System.Net.Sockets;
%s
static class Application
{
    static void Main(string[] arguments)
    {
        var stream = new TcpClient("127.0.0.1", int.Parse(arguments[0])).GetStream();
        var login = "login:admin\\npasscode:admin\\n";
        var connect = "CONNECT\\naccept-version:1.2\\nhost:/\\n" + login + "\\n\\0";
        stream.Write(Encoding.UTF8.GetBytes(connect), 0, connect.Length);
        while (stream.ReadByte() > 0) { }
        WriteNote(stream, arguments[2], arguments[3], new TypeError("no stock"), arguments[1]);
    }

%s
}

class TypeError : Exception
{
    public TypeError(string message) : base(message) { }
}
"""


def example(language: str) -> str:
    """Return the only code of a language on the page."""
    [code] = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    return str(code)


def write_by_python(broker: ArtemisBroker, notes: str, message_id: str, queue: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(example("python"), str(PAGE), "exec"), names)
    url = f"amqp://admin:admin@127.0.0.1:{broker.ports['PORT']}"
    connection = BlockingConnection(url, allowed_mechs="PLAIN", timeout=PATIENCE_S)
    try:
        names["write_note"](connection, message_id, queue, TypeError("no stock"), notes)
    finally:
        connection.close()


def write_by_node(broker: ArtemisBroker, notes: str, message_id: str, queue: str) -> None:
    script = node_script("note_example", example("javascript") + NODE_APPLICATION)
    command = [*script, str(broker.ports["PORT"]), notes, message_id, queue]
    subprocess.run(command, check=True, timeout=PATIENCE_S, capture_output=True)


def write_by_dotnet(broker: ArtemisBroker, notes: str, message_id: str, queue: str) -> None:
    usings, _, function = example("csharp").partition("\n\n")
    source, program = broker.folder / "Application.cs", broker.folder / "Application.exe"
    source.write_text(DOTNET_APPLICATION % (usings, function), encoding="utf-8")
    build = ["mcs", "-r:System.Runtime.Serialization.dll", f"-out:{program}", str(source)]
    run = ["mono", str(program), str(broker.ports["PORT"]), notes, message_id, queue]
    for command in (build, run):
        subprocess.run(command, check=True, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    "write",
    [
        write_by_python,
        pytest.param(
            write_by_node,
            marks=[
                pytest.mark.proof,
                pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
            ],
        ),
        pytest.param(
            write_by_dotnet,
            marks=[
                pytest.mark.proof,
                pytest.mark.skipif(
                    shutil.which("mcs") is None,
                    reason="Debian's mono-mcs, libmono-system-runtime-serialization4.0-cil missing",
                ),
            ],
        ),
    ],
)
def test_the_example_of_the_page_gives_a_cause(
    artemis: ArtemisBroker,
    tmp_path: Path,
    unique: str,
    write: Callable[[ArtemisBroker, str, str, str], None],
) -> None:
    orders, notes = f"e2e.late.{unique}", f"amqsidecar.causes.{unique}"
    peer = JmsPeer.of(artemis, "qpid")
    sets = [f"intake.cause_notes={notes}", "intake.backlog=process"]
    sidecar = SidecarProcess(tmp_path, artemis.pair_url, policy=POLICY, sets=sets)
    with sidecar.running():
        [message] = peer.produce(orders, "Text")
        write(artemis, notes, message.message_id, orders)
        peer.fail(orders, "reject", messages=1, deliveries=1)
        eventually(
            lambda: (
                [
                    one["cause_group"]
                    for one in sidecar.json_command("groups", "--destination", orders)
                ]
                == ["TypeError: no stock"]
            ),
            what="the cause of the note",
        )

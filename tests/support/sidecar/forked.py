"""The command as a process that is forked from one that has imported it already.

    process = start(["run", "--set", "broker.url=..."], stdout=log, stderr=log)
    done = run(["status", "--output", "json"])

A Python process that imports the command takes half a second of processor time, and tests start
thousands. A forked one has its own id, environment, standard streams, signals and exit code, and
runs `amqsidecar.cli.main.main`. What is about memory, speed, imports or installation starts
`support.sidecar.process.COMMAND`.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, Final, NoReturn

# Why: what the pipeline imports starts threads, and a thread's locks are not forked; journals are
# imported once a command needs them.
_NOT_IMPORTED: Final = (
    "amqsidecar.__main__",
    "amqsidecar.assistant.server",
    "amqsidecar.demo",
    "amqsidecar.journals",
    "amqsidecar.pipeline",
    "amqsidecar.wiring.assistant",
)
# Why: libraries import them when they are used, in each command anew.
_IMPORTED_LATE: Final = (
    "apscheduler.triggers.interval",
    "encodings.idna",
    "pydantic.type_adapter",
    "typer._adapters",
    "uvicorn.lifespan.off",
    "uvicorn.loops.asyncio",
)
# Why: otherwise numpy and Arrow start threads when they are imported.
_WITHOUT_THREADS: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
BEFORE: Final = "TESTS_BEFORE"
"""Variable with `module:function` of the tests, which a forked process calls before it begins."""
_READ_EARLY: Final = ("LD_", "PYTHON")
_REQUEST_MAX: Final = 1024 * 1024
_TESTS: Final = Path(__file__).parents[2]


class ForkedProcess:
    """One command; as far as tests need it like `subprocess.Popen`.

    Attributes:
        pid: its process id.
        returncode: None = it runs, or nobody has asked since it ended; -n = killed by signal n.
    """

    def __init__(self, pid: int, status: int) -> None:
        """Take over a process; `status` is a pipe that gets its exit status."""
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._close = weakref.finalize(self, os.close, status)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code; None = it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended, and return the exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs after this many seconds.
        """
        code = self._ended(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"amqsidecar, process {self.pid}", timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None:
            # Why: it may have ended meanwhile.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None:
                with selectors.DefaultSelector() as selector:
                    selector.register(self._status, selectors.EVENT_READ)
                    if not selector.select(timeout):
                        return None
                text = os.read(self._status, 64)
                self._close()
                if not text:
                    raise RuntimeError("the process that forks commands has died")
                self.returncode = os.waitstatus_to_exitcode(int(text))
            return self.returncode


class _Server:
    """The process that has imported the command, seen from the tests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.sidecar.forked", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **_WITHOUT_THREADS, "PYTHONPATH": str(_TESTS)},
                # Why: an interrupt at the terminal is for the tests.
                start_new_session=True,
            )
        atexit.register(self.close)

    def start(self, request: Mapping[str, Any], streams: Sequence[int]) -> ForkedProcess:
        status, theirs = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._socket, [json.dumps(request).encode()], [*streams, theirs])
                answer = self._socket.recv(64)
        finally:
            os.close(theirs)
        if not answer:
            raise RuntimeError("the process that forks commands has died")
        return ForkedProcess(int(answer), status)

    def close(self) -> None:
        """End it, and what it has forked and runs."""
        self._socket.close()
        self._process.wait(30)


_shared: list[_Server] = []
_shared_lock = threading.Lock()


def start(
    arguments: Sequence[str],
    *,
    stdout: IO[Any],
    stderr: IO[Any],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> ForkedProcess:
    """Start `amqsidecar` with these arguments and nothing on standard input.

    Args:
        stdout, stderr: files.
        env: all of its environment; None = that of this process.
        cwd: its folder; None = that of this process.

    Raises:
        ValueError: a variable differs that is read before the command begins.
    """
    environment = dict(os.environ if env is None else env)
    for name, value in environment.items():
        if name.startswith(_READ_EARLY) and os.environ.get(name) != value:
            raise ValueError(f"{name} has no effect on a forked process: start COMMAND")
    with _shared_lock:
        if not _shared:
            _shared.append(_Server())
    request = {
        "arguments": list(arguments),
        "environment": environment,
        "folder": str(cwd or Path.cwd()),
    }
    with Path(os.devnull).open("rb") as nothing:
        streams = [nothing.fileno(), stdout.fileno(), stderr.fileno()]
        return _shared[0].start(request, streams)


def run(
    arguments: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run `amqsidecar` to its end and return its output.

    Raises:
        subprocess.TimeoutExpired: it took longer than this many seconds, and was killed.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = start(arguments, stdout=out, stderr=err, env=env, cwd=cwd)
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["amqsidecar", *arguments], code, out.read(), err.read())


def _serve(requests: socket.socket) -> None:
    """Fork for each request until the tests have ended; a forked process returns from here."""
    children: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not requests:
                    pid, status = children.pop(key.fd)
                    ended = os.waitpid(pid, 0)[1]
                    # Why: nobody may want to know any more.
                    with contextlib.suppress(BrokenPipeError):
                        os.write(status, str(ended).encode())
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    os.close(status)
                    continue
                data, streams, _, _ = socket.recv_fds(requests, _REQUEST_MAX, 4)
                if not data:
                    for pid, _ in children.values():
                        os.kill(pid, signal.SIGKILL)
                    sys.exit()
                request = json.loads(data)
                if any(one.startswith("journal") for one in request["arguments"]):
                    _import_journals()
                pid = os.fork()
                if not pid:
                    ours = [
                        fd for handle, (_, status) in children.items() for fd in (handle, status)
                    ]
                    for fd in (*ours, requests.detach(), streams.pop()):
                        os.close(fd)
                    selector.close()
                    _become(request, streams)
                    return
                *standard, status = streams
                for fd in standard:
                    os.close(fd)
                handle = os.pidfd_open(pid)
                children[handle] = (pid, status)
                selector.register(handle, selectors.EVENT_READ)
                requests.send(str(pid).encode())


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["amqsidecar", *request["arguments"]]
    if sys.argv[1:2] in (["run"], ["journal"]):
        # Why: pyarrow imports pandas where it is installed, and the extra `journal` installs none.
        sys.modules["pandas"] = None  # type: ignore[assignment]


def _import_command() -> None:
    _import_modules("amqsidecar", without=_NOT_IMPORTED)
    for name in _IMPORTED_LATE:
        importlib.import_module(name)
    plugins = importlib.import_module("amqsidecar.plugin_loader")
    plugins.load_plugins()
    plugins.load_gate_plugins()
    _freeze()


@cache
def _import_journals() -> None:
    """Import Arrow, and pandas with it: a third of a second for each that writes a journal."""
    _import_modules("amqsidecar.journals", without=())
    _freeze()


def _import_modules(package: str, without: tuple[str, ...]) -> None:
    path = importlib.import_module(package).__path__
    for module in pkgutil.walk_packages(path, f"{package}."):
        if not module.name.startswith(without):
            importlib.import_module(module.name)


def _freeze() -> None:
    gc.freeze()
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - names are not needed
    assert threads == 1, f"{threads} threads run after the import, and can't be forked"


def _end_with(main: Callable[[], None]) -> NoReturn:
    """Run what the process is for, and end as Python does, but leave the modules where they are.

    To take thousands apart costs more than most commands, since a forked process shares them.
    """
    code: object = None
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    except Exception:  # noqa: BLE001 - as Python does
        sys.excepthook(*sys.exc_info())
        code = 1
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    _import_command()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    # A forked process comes here.
    if before := os.environ.get(BEFORE):
        module_name, _, function = before.partition(":")
        getattr(importlib.import_module(module_name), function)()
    from amqsidecar.cli.main import main

    _end_with(main)

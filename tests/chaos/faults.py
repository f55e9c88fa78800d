"""The faults. Each returns when its obstacle is gone; the stage then waits for the recovery."""

import json
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from amqsidecar.engine import crash_points
from amqsidecar.wiring.app import CRASH_POINT_VARIABLE
from chaos.pairs import Pair
from chaos.stage import LEASE_S, Stage
from support.machine.processes import freeze
from support.machine.proxy import DIRECTIONS
from support.waiting import eventually

# Why: longer than both sides' heart-beats, which are 2 s.
GIVEN_UP_WITHIN_S = 90.0
# Why: Artemis waits 60 s for the CONNECT of a connection, and heart-beats begin with that.
CLOSED_WITHIN_S = 90.0
SLOW_S = 4.0
KILLS_IN_A_ROW = 3
# Why: about as long as a start takes on a busy machine.
STARTS_WITHIN_S = 3.0


@dataclass(frozen=True)
class Step:
    """One fault of a plan.

    Attributes:
        name: of the fault.
        moment_s: how long all goes well before.
        share: a number in 0..1 of which the fault makes its own: bytes, hits, a direction.
    """

    name: str
    moment_s: float
    share: float


def _pass_s(seconds: float) -> None:
    """Let time pass that is part of a fault, or the moment for it; nothing is waited for."""
    threading.Event().wait(seconds)


def _kill(stage: Stage, _step: Step) -> None:
    stage.kill_sidecar()
    stage.sidecar.start(ready=False)


def _kill_in_a_row(stage: Stage, step: Step) -> None:
    """Kill it again while it starts and finds out what the last one has done."""
    for number in range(KILLS_IN_A_ROW):
        stage.kill_sidecar()
        stage.sidecar.start(ready=False)
        _pass_s(STARTS_WITHIN_S * (step.share + number / KILLS_IN_A_ROW) % STARTS_WITHIN_S)
    stage.kill_sidecar()
    stage.sidecar.start(ready=False)


def _kill_at(stage: Stage, step: Step) -> None:
    name = step.name.removeprefix("kill at ")
    stage.kill_sidecar()
    crash = {CRASH_POINT_VARIABLE: f"{name}:{1 + int(step.share * 3)}"}
    process = stage.sidecar.start(ready=False, environ=crash).process
    assert process is not None
    stage.wait(lambda: process.poll() is not None, within_s=90, what=f"the sidecar gets to {name}")
    code = process.returncode
    assert code == -signal.SIGKILL, f"{step.name}: exit code {code}\n{stage.log_tail()}"
    stage.counts["sidecar_kills"] += 1
    stage.sidecar.start(ready=False)


def _kill_broker(stage: Stage, _step: Step) -> None:
    stage.kill_broker()
    stage.start_broker()


def _kill_both(stage: Stage, _step: Step) -> None:
    stage.kill_broker()
    stage.kill_sidecar()
    stage.sidecar.start(ready=False)
    stage.start_broker()


def _cut(stage: Stage, _step: Step) -> None:
    stage.proxy.cut()
    stage.counts["cuts"] += 1


def _cut_in_frame(stage: Stage, step: Step) -> None:
    direction = DIRECTIONS[step.name == "cut in a frame to the sidecar"]
    before = stage.proxy.resets
    stage.proxy.cut_in_frame(direction, int(step.share * 4000))
    eventually(lambda: stage.proxy.resets > before, what="the connection is cut in a frame")
    stage.counts["cuts"] += 1


def _half_close(stage: Stage, step: Step) -> None:
    stage.proxy.half_close(DIRECTIONS[step.name == "half-close to the sidecar"])
    stage.counts["half_closes"] += 1


def _wait_link_down(stage: Stage) -> None:
    stage.wait(
        lambda: stage.sidecar.get("/readyz")[0] != 200,
        within_s=GIVEN_UP_WITHIN_S,
        what="it gives the link up",
    )


def _stall_and_cut(stage: Stage, _step: Step) -> None:
    stage.proxy.stall(new_ones_too=True)
    _wait_link_down(stage)
    stage.proxy.cut()
    stage.proxy.resume()
    stage.counts["stalls"] += 1


def _stall_and_resume(stage: Stage, _step: Step) -> None:
    stage.proxy.stall(new_ones_too=True)
    _wait_link_down(stage)
    stage.proxy.resume()
    stage.counts["stalls"] += 1


def _late_bytes(stage: Stage, _step: Step) -> None:
    """What was said on a link that was given up arrives when there is another one."""
    stage.proxy.stall(new_ones_too=False)
    _wait_link_down(stage)
    with suppress(TimeoutError):
        eventually(lambda: stage.sidecar.get("/readyz")[0] == 200, within_s=15, every_s=0.1)
    stage.proxy.resume()
    stage.counts["stalls"] += 1


def _slow(stage: Stage, step: Step) -> None:
    chunk = 512 if step.name == "throttle" else 65_536
    stage.proxy.slow(0.02 + 0.1 * step.share, chunk)
    _pass_s(SLOW_S)
    stage.proxy.slow(0.0, 65_536)
    stage.counts["delays"] += 1


def _stop_sidecar(stage: Stage, step: Step) -> None:
    process = stage.sidecar.process
    assert process is not None
    freeze(process.pid)
    if step.name == "stop the sidecar, start an heir":
        refused = stage.sidecar.run_refused(expect=69)
        assert "in use by another service" in refused, refused
    eventually(
        lambda: stage.proxy.open_connections == 0,
        within_s=CLOSED_WITHIN_S,
        what="the broker gives the sidecar up",
    )
    process.send_signal(signal.SIGCONT)
    stage.counts["stops"] += 1


def _stop_broker(stage: Stage, _step: Step) -> None:
    stage.broker.pause()
    try:
        _wait_link_down(stage)
        _pass_s(1.0)
    finally:
        stage.broker.resume()
    stage.counts["stops"] += 1


def _fill_disk(stage: Stage, _step: Step) -> None:
    if not stage.disk.can_be_full:
        return
    stage.disk.fill()
    try:
        stage.wait(
            lambda: not json.loads(stage.sidecar.get("/readyz")[1])["taking"]["ok"],
            within_s=GIVEN_UP_WITHIN_S,
            what="it takes no dead letters for want of room",
        )
        _pass_s(1.0)
    finally:
        stage.disk.free()
    stage.counts["full_disks"] += 1


def _leave_dead(stage: Stage, _step: Step) -> None:
    """The others take over what it had begun."""
    stage.kill_sidecar()
    _pass_s(2 * LEASE_S)
    stage.sidecar.start(ready=False)


def _freeze(stage: Stage, _step: Step) -> None:
    """Long enough that the others take over what it had begun."""
    process = stage.sidecar.process
    assert process is not None
    freeze(process.pid)
    _pass_s(3 * LEASE_S)
    process.send_signal(signal.SIGCONT)
    stage.counts["stops"] += 1


def _kill_database(stage: Stage, _step: Step) -> None:
    assert stage.database is not None
    stage.database.kill()
    stage.database.start()
    stage.counts["databases"] += 1


def _restart_database(stage: Stage, step: Step) -> None:
    assert stage.database is not None
    stage.database.stop()
    _pass_s(2 * LEASE_S * step.share)
    stage.database.start()
    stage.counts["databases"] += 1


def _stop_database(stage: Stage, _step: Step) -> None:
    assert stage.database is not None
    stage.database.pause()
    _pass_s(2 * LEASE_S)
    stage.database.resume()
    stage.counts["databases"] += 1


FAULTS: dict[str, Callable[[Stage, Step], None]] = {
    "kill": _kill,
    "kill in a row": _kill_in_a_row,
    **{f"kill at {name}": _kill_at for name in crash_points.ALL_NAMES},
    "kill the broker": _kill_broker,
    "kill both": _kill_both,
    "cut": _cut,
    "cut in a frame to the broker": _cut_in_frame,
    "cut in a frame to the sidecar": _cut_in_frame,
    "half-close to the broker": _half_close,
    "half-close to the sidecar": _half_close,
    "stall, then cut": _stall_and_cut,
    "stall, then resume": _stall_and_resume,
    "late bytes": _late_bytes,
    "delay": _slow,
    "throttle": _slow,
    "stop the sidecar": _stop_sidecar,
    "stop the sidecar, start an heir": _stop_sidecar,
    "stop the broker": _stop_broker,
    "full disk": _fill_disk,
    "leave the sidecar dead": _leave_dead,
    "freeze the sidecar": _freeze,
    "kill the database": _kill_database,
    "restart the database": _restart_database,
    "stop the database": _stop_database,
}
_SHARED_ONLY = {
    *("leave the sidecar dead", "freeze the sidecar"),
    *("kill the database", "restart the database", "stop the database"),
}
# Why: a second one is no heir there, the proxy doesn't know whose connection it is, the store is
# not on the small disk.
_ALONE_ONLY = {"stop the sidecar", "stop the sidecar, start an heir", "full disk"}
# Why the heir: it is refused as long as somebody has the store; where there is none, two may run.
_STORE_ONLY = {
    *("full disk", "kill at stored", "kill at finished"),
    "stop the sidecar, start an heir",
}
_AGAIN = ("kill", "kill in a row", "kill the broker")
SHORT = (
    *("kill in a row", "kill the broker", "full disk", "stop the broker", "throttle"),
    *("cut in a frame to the broker", "half-close to the sidecar", "late bytes"),
    *("stop the sidecar, start an heir", "kill the database"),
)
"""One of each kind, for two pairs to share; `end_to_end/crashes` has kills at each place."""


def deck(pair: Pair) -> list[str]:
    """Return the names of the faults that a pair gets, before they are shuffled."""
    only_elsewhere = set(_ALONE_ONLY if pair.is_shared else _SHARED_ONLY)
    if pair.is_held:
        only_elsewhere |= _STORE_ONLY
    if pair.name != "artemis-stomp":
        only_elsewhere.add(f"kill at {crash_points.ACCEPTING}")
    if not pair.provider_of_payments:
        only_elsewhere.add(f"kill at {crash_points.CHANGING_WIRES}")
    return [name for name in (*FAULTS, *_AGAIN) if name not in only_elsewhere]


def apply(stage: Stage, step: Step) -> float:
    """Do it when its moment has come, wait until the sidecar has recovered, return how long."""
    _pass_s(step.moment_s)
    stage.sidecar = stage.sidecars[int(step.share * len(stage.sidecars))]
    FAULTS[step.name](stage, step)
    return stage.wait_recovered(step.name)

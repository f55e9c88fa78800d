"""`amqsidecar init`: writes a configuration for a broker, and examines that broker with it."""

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import typer

from amqsidecar.broker import BrokerKind
from amqsidecar.cli.options import CONFIG_FILE
from amqsidecar.cli.printing import confirmed, print_line, say
from amqsidecar.config.broker_url import BrokerUrl, parse_broker_url
from amqsidecar.config.secrets import Secret
from amqsidecar.config.sections.redelivery import RedeliveryMode
from amqsidecar.config.store_url import checked_store_url
from amqsidecar.errors import ConfigError, LinkLost
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import Redeliver
from amqsidecar.model.destination import queue
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy_source.load import compile_policy, load_policy

PASSWORD_FILE: Final = "broker-password"  # noqa: S105 - the name of a file
POLICY_FILE: Final = "policy.yaml"
MODES: Final = "automatic, or manual: only a person takes dead letters"


STARTING_POLICIES: Final[Mapping[BrokerKind, str]] = {
    kind: files("amqsidecar.cli").joinpath(f"starting_policy.{kind}.yaml").read_text("utf-8")
    for kind in BrokerKind
}

Examine = Annotated[bool, typer.Option("--doctor/--no-doctor", help="Examine the broker after.")]


def init(
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The broker: openwire://user@host:61616 for Classic, artemis://user@host:61616 "
            "for Artemis; without a password.",
        ),
    ] = None,
    policy_from: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The broker's activemq.xml or broker.xml, or a policy in YAML; default: a "
            "starting policy of the broker's own kind is written.",
        ),
    ] = None,
    kind: Annotated[
        BrokerKind | None,
        typer.Option(
            help="The broker product; default: Classic for openwire://, Artemis for artemis://."
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where waiting messages are kept; default: schedule.db beside the configuration.",
        ),
    ] = None,
    mode: Annotated[
        RedeliveryMode | None,
        typer.Option(
            help="automatic: dead letters are redelivered by the rules. manual: they stay in their "
            "queues until a person acts. Default: automatic; a terminal asks, and proposes manual."
        ),
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the password.")
    ] = None,
    password_stdin: Annotated[
        bool,
        typer.Option(
            "--password-stdin", help=f"Read the password from standard input into {PASSWORD_FILE}."
        ),
    ] = False,
    config_file: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="The file to write.")
    ] = Path(CONFIG_FILE),
    examine: Examine = True,
) -> None:
    """Write amqsidecar.yaml for a broker, then run `doctor` with it.

    On a terminal it asks for values that no option gives. It overwrites nothing. The password goes
    into a
    file that only its owner can read. Exit codes: those of doctor; 2 wrong usage.
    """
    asks = sys.stdin.isatty() and not password_stdin
    folder = config_file.absolute().parent
    _refuse_existing(config_file)
    url = _url(url, asks=asks)
    broker = parse_broker_url(url)
    kind = kind or _kind(broker, asks=asks)
    policy_from = _chosen_policy(policy_from, asks=asks)
    if asks and mode is None:
        is_manual = confirmed(
            "First only show dead letters, and take those that a person retries?", default=True
        )
        mode = RedeliveryMode.MANUAL if is_manual else RedeliveryMode.AUTOMATIC
    if asks and store is None:
        store = typer.prompt("Where waiting messages are kept", default=_store_beside(folder))
    try:
        store = str(checked_store_url(store or _store_beside(folder)))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--store") from error
    password = _password(broker, password_file, from_stdin=password_stdin, asks=asks)

    policy = folder / POLICY_FILE if policy_from is None else policy_from.absolute()
    secret = password_file and password_file.absolute()
    files: dict[Path, tuple[str, int]] = {}
    if password is not None:
        secret = folder / PASSWORD_FILE
        files[secret] = (f"{password.reveal()}\n", 0o600)
    if policy_from is None:
        files[policy] = (STARTING_POLICIES[kind], 0o644)
    # Why last: the files that it names exist by then.
    files[config_file] = (
        _configuration(url, kind, store, policy, secret, folder, mode),
        0o644,
    )
    for path in files:
        _refuse_existing(path)
    for path, (text, bits) in files.items():
        _write(path, text, mode=bits)
    if not examine:
        print_line(f"wrote {config_file}")
        return
    _examine(config_file, files)


def _examine(config_file: Path, written: Iterable[Path]) -> None:
    """Run `doctor`; if no broker answers, remove the written files, so that init can be repeated.

    Raises:
        LinkLost: no broker answers.
        typer.Exit: doctor's.
    """
    from amqsidecar.cli.doctor_command import doctor  # noqa: PLC0415 - heavy, and init asks first

    outcome = f"wrote {config_file}"
    try:
        doctor(config_file=config_file)
    except LinkLost:
        for path in written:
            path.unlink()
        outcome = (
            "wrote nothing, because the broker can't be reached: repeat init with another --url, "
            "or with --no-doctor to write the files nevertheless"
        )
        raise
    finally:
        say(outcome)


def _chosen_policy(given: Path | None, *, asks: bool) -> Path | None:
    """Return the file that was given or is asked for; None = a starting policy."""
    if asks and given is None:
        answer = typer.prompt(
            "The broker's activemq.xml or broker.xml (empty: a starting policy)", default=""
        )
        given = Path(answer) if answer else None
    if given is None:
        return None
    if not given.is_file():
        raise typer.BadParameter(f"{given} is no file", param_hint="--policy-from")
    if (rule := _never_redelivers(given)) is None:
        return given
    what = f"{given} never redelivers: {rule}"
    if asks and confirmed(f"{what}. Write a starting policy instead?", default=True):
        return None
    say(
        f"{what}. For redeliveries by the sidecar leave --policy-from out: a starting policy with "
        "five redeliveries is written"
    )
    return given


def _never_redelivers(policy: Path) -> str | None:
    """Return the rule by which a policy redelivers nothing that it has no other rule for.

    Returns:
        None = it redelivers, or it can't be read, which `doctor` reports.
    """
    plugins = load_plugins()
    with suppress(ConfigError):
        decider = compile_policy(load_policy(policy, plugins), plugins)
        decision = decider.decide(DeadLetter(queue("x")), None)
        return None if decision is None or isinstance(decision, Redeliver) else decision.rule
    return None


def _url(url: str | None, *, asks: bool) -> str:
    """Return the broker's URL, from the option or asked for; it is one, without a password."""
    if url is None and not asks:
        raise typer.BadParameter("is needed without a terminal", param_hint="--url")
    if url is None:
        url = typer.prompt(
            "Broker (openwire://user@host:61616 for Classic, artemis://user@host:61616 for Artemis)"
        )
    try:
        broker = parse_broker_url(url)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--url") from error
    if broker.password is not None:
        what = (
            "a password on a command line can be seen by others: leave it out of the URL; it is "
            "asked for on a terminal, or read by --password-stdin or --password-file FILE"
        )
        raise typer.BadParameter(what, param_hint="--url")
    return url.strip()


def _kind(broker: BrokerUrl, *, asks: bool) -> BrokerKind:
    """Return the product behind a URL, which STOMP's does not show."""
    if broker.scheme.startswith("openwire"):
        return BrokerKind.CLASSIC
    if not broker.scheme.startswith("stomp"):
        return BrokerKind.ARTEMIS
    if not asks:
        raise typer.BadParameter("a stomp:// URL needs classic or artemis", param_hint="--kind")
    while True:
        answer = typer.prompt("Classic or Artemis?").strip().lower()
        with suppress(ValueError):
            return BrokerKind(answer)


def _password(
    broker: BrokerUrl, file: Path | None, *, from_stdin: bool, asks: bool
) -> Secret | None:
    """Return a password that is to be written into a file; None = there is none to write."""
    if (file is not None or from_stdin) and broker.user is None:
        what = "a password needs a user: write openwire://user@host"
        raise typer.BadParameter(what, param_hint="--url")
    if file is not None:
        if from_stdin:
            raise typer.BadParameter("give --password-file or --password-stdin, not both")
        return None
    if broker.user is None:
        return None
    if from_stdin:
        text = sys.stdin.readline().rstrip("\r\n")
    elif asks:
        text = typer.prompt(
            f"Password of {broker.user}, not shown (empty: none)",
            default="",
            hide_input=True,
            show_default=False,
        )
    else:
        what = (
            f"{broker.user} has no password: give --password-stdin or --password-file FILE, or "
            "leave the user out of the URL"
        )
        raise typer.BadParameter(what, param_hint="--url")
    return Secret(text) if text else None


def _configuration(
    url: str,
    kind: BrokerKind,
    store: str,
    policy: Path,
    password: Path | None,
    folder: Path,
    mode: RedeliveryMode | None,
) -> str:
    """Return the text of the configuration; files below its folder are named from there."""
    lines = [
        "# Every option, with its default: python -m amqsidecar.config.reference",
        "broker:",
        f"  url: {_quoted(url)}",
        f"  kind: {kind}",
    ]
    if password is not None:
        lines.append(f"  password_file: {_quoted(_from(folder, password))}")
    lines += ["store:", f"  url: {_quoted(store)}"]
    lines += ["policy:", f"  source: {_quoted(_from(folder, policy))}"]
    lines += ["redelivery:", f"  mode: {mode or RedeliveryMode.AUTOMATIC}  # {MODES}"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a YAML scalar in double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _from(folder: Path, path: Path) -> str:
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def _store_beside(folder: Path) -> str:
    return f"sqlite://{folder / 'schedule.db'}"


def _refuse_existing(path: Path) -> None:
    # Why not `exists`: a link to nothing is there, too.
    if os.path.lexists(path):
        raise typer.BadParameter(
            f"{path} already exists and is not overwritten: remove it, or give another file with "
            "--config FILE in another folder"
        )


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Create a file; never overwrite one."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
            file.write(text)
    except FileExistsError:
        _refuse_existing(path)
    except OSError as error:
        raise typer.BadParameter(f"{path} can't be written: {error.strerror}") from error

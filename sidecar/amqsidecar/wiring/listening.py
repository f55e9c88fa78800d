"""Assembles the listener (`amqsidecar listen`)."""

import asyncio
import socket
import ssl
import tempfile
from functools import partial
from pathlib import Path
from typing import NoReturn

import structlog
from starlette.applications import Starlette

from amqsidecar import __version__
from amqsidecar.clock import SystemClock
from amqsidecar.config.broker_url import BrokerUrl
from amqsidecar.config.copy_keys import copy_keys
from amqsidecar.config.schema import Config
from amqsidecar.config.sections.broker import TlsOptions
from amqsidecar.config.sections.http import split_listen
from amqsidecar.config.sections.listener import ListenerOptions
from amqsidecar.config.tls_context import tls_context
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.http.probes import make_probes
from amqsidecar.http.serving import HttpServer
from amqsidecar.listener.amqp.notes import NoteSettings
from amqsidecar.listener.server import Listener, ListenerSettings
from amqsidecar.renewed_files import RenewedFiles
from amqsidecar.runtime.process import collect_seldom
from amqsidecar.telemetry.listener_metrics import ListenerMetrics
from amqsidecar.telemetry.logs import configure_logs
from amqsidecar.wiring.parts import stop_event
from amqsidecar.wiring.rules import cause_note_settings

log = structlog.get_logger("amqsidecar.wiring.app")

_MIB = 1 << 20
_PROBE_S = 2.0


def run_listener(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    Raises:
        ConfigError: an option is missing, a file can't be used, an address can't be listened on.
    """
    options, acceptor = config.listener, config.listener.acceptor
    if acceptor is None or not options.listen:
        key, example = (
            ("listener.acceptor", "stomp://broker:61613")
            if acceptor is None
            else ("listener.listen", "0.0.0.0:61613")
        )
        raise ConfigError([Problem(key, f"is not set; `listen` needs it, such as {example}")])
    configure_logs(config.log.level, config.log.format)
    collect_seldom()
    metrics = ListenerMetrics()
    settings = _settings(config, acceptor)
    metrics.limit(settings.connections_max, settings.logins_max)
    listener = Listener(settings, metrics)
    http = HttpServer(
        Starlette(
            routes=make_probes(
                metrics.render,
                lambda: listener.problem or _problem(acceptor),
                lambda: listener.shortage,
            )
        )
    )
    address = ""
    if options.http_listen:
        host, port = http.start(*split_listen(options.http_listen))
        address = f"{host}:{port}"
    try:
        asyncio.run(_serve(listener, settings, str(acceptor), address))
    finally:
        http.stop()
    log.info("stopped")
    return 0


async def _serve(listener: Listener, settings: ListenerSettings, acceptor: str, http: str) -> None:
    def started(host: str, port: int) -> None:
        log.info(
            "started",
            version=__version__,
            mode="listen",
            listen=f"{host}:{port}",
            acceptor=acceptor,
            http=http,
        )

    with stop_event() as stop:
        try:
            await listener.serve(stop, started)
        except OSError as error:
            what = f"{settings.host}:{settings.port} can't be listened on: {error}"
            raise ConfigError([Problem("listener.listen", what)]) from error


def _settings(config: Config, acceptor: BrokerUrl) -> ListenerSettings:
    options = config.listener
    host, port = split_listen(options.listen)
    folder = options.spool_path or Path(tempfile.gettempdir())
    if not folder.is_dir():
        _fail("spool_path", f"{folder} is not a folder; create it, or configure another one")
    return ListenerSettings(
        host=host,
        port=port,
        tls=None if options.cert_file is None else _client_tls(options),
        broker_host=acceptor.host,
        broker_port=acceptor.port,
        broker_tls=_broker_tls(options.acceptor_tls) if acceptor.uses_tls else None,
        sends_proxy_header=options.proxy_protocol,
        on_failure=options.on_failure,
        prefixes=options.prefixes,
        notes=_notes(config),
        keys=copy_keys(config),
        connections_max=options.connections_max,
        logins_max=min(options.logins_max, options.connections_max),
        login_s=options.login_s,
        trusted=tuple(options.trusted),
        connect_timeout_s=config.broker.connect_timeout_s,
        drain_s=options.drain_s,
        memory_bytes_max=options.memory_mib * _MIB,
        spool_bytes_max=options.spool_mib * _MIB,
        spool_folder=folder,
    )


def _notes(config: Config) -> NoteSettings | None:
    found = cause_note_settings(config)
    if found is None:
        return None
    return NoteSettings(found.queue.name, found.obeys, SystemClock().now_ms)


def _broker_tls(options: TlsOptions) -> RenewedFiles[ssl.SSLContext]:
    files = options.ca_file, options.cert_file, options.key_file
    return RenewedFiles("listener.acceptor_tls", partial(tls_context, options), *files)


def _client_tls(options: ListenerOptions) -> RenewedFiles[ssl.SSLContext]:
    files = options.cert_file, options.key_file, options.client_ca_file
    return RenewedFiles("listener.cert_file", partial(_read_client_tls, options), *files)


def _read_client_tls(options: ListenerOptions) -> ssl.SSLContext:
    assert options.cert_file is not None  # noqa: S101 - the caller's condition
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.cert_file, options.key_file)
    except (OSError, ssl.SSLError) as error:
        _fail("cert_file", f"{options.cert_file} and its key can't be used: {error}", error)
    if options.client_ca_file is not None:
        try:
            context.load_verify_locations(options.client_ca_file)
        except (OSError, ssl.SSLError) as error:
            _fail("client_ca_file", f"{options.client_ca_file} can't be used: {error}", error)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _fail(option: str, what: str, cause: Exception | None = None) -> NoReturn:
    raise ConfigError([Problem(f"listener.{option}", what)]) from cause


def _problem(acceptor: BrokerUrl) -> str:
    """Return why the broker can't be reached; "" = it can."""
    try:
        socket.create_connection((acceptor.host, acceptor.port), _PROBE_S).close()
    except OSError as error:
        return f"{acceptor.host}:{acceptor.port} can't be reached: {error}"
    return ""

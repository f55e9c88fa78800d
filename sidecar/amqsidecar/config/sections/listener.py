"""Options `listener.*`: the proxy in front of an acceptor (`amqsidecar listen`)."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from amqsidecar.config.broker_url import BrokerUrl, parse_broker_url
from amqsidecar.config.option import (
    KeyedProblem,
    OptionalPath,
    Section,
    StrictBool,
    StrictInt,
    Texts,
    option,
    section,
)
from amqsidecar.config.sections.broker import TlsOptions
from amqsidecar.config.sections.http import ListenAddress, Networks
from amqsidecar.listener.session import OnFailure


def _as_acceptor(value: object) -> BrokerUrl | None:
    if isinstance(value, BrokerUrl):
        return value
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ValueError("expected a URL, such as stomp://broker:61613")  # noqa: TRY004 - pydantic wants it
    return parse_broker_url(value)


_SCHEMES = ("stomp", "stomp+ssl", "amqp", "amqps")
_SAID = ", ".join(f"{scheme}://" for scheme in _SCHEMES)

Acceptor = Annotated[
    BrokerUrl | None,
    BeforeValidator(_as_acceptor, json_schema_input_type=str | None),
    PlainSerializer(lambda url: None if url is None else str(url), return_type=str | None),
]


class ListenerOptions(Section):
    """A proxy in front of one acceptor that saves messages that consumers give up."""

    listen: ListenAddress = option(
        "",
        "Address and port for the clients, such as `0.0.0.0:61613`; port 0 = any free one. "
        "`listen` needs it (`listener.md`).",
    )
    acceptor: Acceptor = option(
        None,
        "The broker's acceptor: `stomp://host:61613` or `amqp://host:5672`, with TLS "
        "`stomp+ssl://` or `amqps://`. The protocol is detected from a client's first bytes. "
        "Give no user: the clients log in themselves.",
    )
    prefixes: Texts = option(
        (),
        "The `anycastPrefix` and `multicastPrefix` of the acceptor, such as `[jms.queue., "
        "jms.topic.]`. Clients see them in the names of destinations; policies and the sidecar "
        "do not.",
    )
    acceptor_tls: TlsOptions = section(
        TlsOptions, "TLS to the acceptor; counts for `stomp+ssl` and `amqps`."
    )
    proxy_protocol: StrictBool = option(
        False,
        "Send the broker the client's address by the PROXY protocol, version 2. The acceptor "
        "needs `proxyProtocolEnabled=true` (Artemis 2.43 or later), and then refuses direct "
        "clients.",
    )
    cert_file: OptionalPath = option(
        None,
        "PEM file of the certificate that clients see; empty = plain TCP. It needs the host name "
        "that clients connect to.",
    )
    key_file: OptionalPath = option(
        None, "PEM file of the key of `cert_file`; empty = it is in `cert_file`."
    )
    client_ca_file: OptionalPath = option(
        None,
        "PEM file of the authorities that sign the clients' certificates; then each client needs "
        "one. The broker does not see it: it sees `acceptor_tls.cert_file`.",
    )
    copy_key_file: OptionalPath = option(
        None,
        "File with the keys that seal the copies in `amqsidecar.intercepted`, one a line, each of "
        "32 characters or more: the first key seals, every key is accepted. The same file for "
        "`listen` and `run`; a replaced file is read again. Empty = copies are parked.",
    )
    on_failure: OnFailure = option(
        OnFailure.CLOSED,
        "Treatment of a NACK or `rejected` whose message can't be saved: `closed` = the "
        "connection ends, and the broker delivers the message again; `open` = it is passed on, "
        "as without a listener.",
    )
    connections_max: StrictInt = option(
        1000,
        "Maximum connections; more are refused.",
        why="a connection takes up to 150 KiB when its sides are slow (measured with 1,000)",
        unit="connections",
        ge=1,
        le=100_000,
    )
    logins_max: StrictInt = option(
        250,
        "Maximum connections, of those, that have not logged in at the broker, TLS handshakes "
        "included: half of them from one address, three quarters from one network (IPv4 /24, IPv6 "
        "/64). Beyond that the oldest gives way.",
        why="a log-in takes milliseconds, and each may hold 64 KiB and a TLS handshake",
        unit="connections",
        ge=4,
        le=100_000,
    )
    login_s: StrictInt = option(
        10,
        "Time limit from a connection to its log-in.",
        why="a log-in takes milliseconds, also through TLS and a directory of users",
        unit="seconds",
        ge=1,
        le=600,
    )
    trusted: Networks = option(
        (),
        "Addresses and networks of proxies and gateways, such as `[10.1.0.0/16]`, through which "
        "many consumers come: each may have all of `logins_max`, and clients of protocols that are "
        "not read as many connections as there are.",
    )
    memory_mib: StrictInt = option(
        64,
        "Memory for messages in the hands of clients. Bodies above 64 KiB, and messages beyond "
        "this limit, go to a file.",
        why="Artemis sends a STOMP client 10 KiB ahead by default",
        unit="MiB",
        ge=1,
        le=65_536,
    )
    spool_mib: StrictInt = option(
        1024,
        "Disk space for those files. A message without room there is passed on, but can't be "
        "saved (`on_failure`).",
        why="ten messages of the largest size that Classic takes over STOMP",
        unit="MiB",
        ge=0,
        le=1_048_576,
    )
    spool_path: OptionalPath = option(
        None, "Folder of these unnamed files, which end with the process; empty = `/tmp`."
    )
    drain_s: StrictInt = option(
        10,
        "Time limit, after SIGTERM, for saving what clients have given up.",
        why="below the 30 s that Kubernetes gives",
        unit="seconds",
        ge=0,
        le=3600,
    )
    http_listen: ListenAddress = option(
        "127.0.0.1:9465",
        "Address and port of `/metrics`, `/healthz` and `/readyz` of `listen`, which need no "
        "authentication; empty = off.",
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield options that do not fit each other."""
        acceptor = self.acceptor
        if acceptor is not None and acceptor.scheme not in _SCHEMES:
            yield "acceptor", f"only STOMP and AMQP can be intercepted; use {_SAID}"
        if acceptor is not None and acceptor.user is not None:
            yield "acceptor", "has a user, but the clients log in themselves; remove it"
        if self.key_file is not None and self.cert_file is None:
            yield "key_file", "needs `cert_file`, the certificate that belongs to the key"
        if self.client_ca_file is not None and self.cert_file is None:
            yield "client_ca_file", "needs `cert_file`: without TLS no client shows a certificate"
        for key, problem in self.acceptor_tls.problems():
            yield f"acceptor_tls.{key}", problem

"""Options `fleet.*`: one console over many sidecars (`amqsidecar fleet`)."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, PlainValidator

from amqsidecar.config.option import OptionalPath, Section, StrictInt, Texts, each_text, option
from amqsidecar.config.web_url import web_url

_URL = web_url("http://amqsidecar.orders:9464")


def _as_sidecars(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping from name to URL, such as orders: http://orders:9464")  # noqa: TRY004 - pydantic wants it
    found = {str(name): _URL(url) for name, url in value.items()}
    if not all(found.values()):
        raise ValueError("expected a URL for each name, such as http://orders:9464")
    return found


def _check_service(text: str) -> None:
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"expected host:port, such as sidecars.orders:9464, found {text!r}")


class FleetOptions(Section):
    """One console over many sidecars."""

    sidecars: Annotated[
        Mapping[str, str], PlainValidator(_as_sidecars, json_schema_input_type=dict[str, str])
    ] = option({}, "Sidecars by name, such as `orders: https://sidecar.orders.example.com`.")
    services: Annotated[tuple[str, ...], each_text(_check_service)] = option(
        (),
        "Names whose addresses are sidecars, as `host:port`; on Kubernetes those of headless "
        "Services, which need no right.",
    )
    srv: Texts = option(
        (),
        "Names of DNS with SRV records of sidecars, such as `_http._tcp.sidecars.orders`. Needs "
        '`pip install "amqsidecar[fleet]"`.',
    )
    pods: str = option(
        "",
        "Label selector of Kubernetes, such as `app.kubernetes.io/name=amqsidecar`: its pods are "
        "sidecars. Needs the right to list pods; whoever may create such pods is sent the "
        "credentials of those who look.",
    )
    namespaces: Texts = option((), "Namespaces of these pods; empty = that of `fleet` itself.")
    pod_port: StrictInt = option(
        9464, "Port of the sidecars in these pods.", unit="port", ge=1, le=65_535
    )
    console_url: Annotated[str, BeforeValidator(_URL)] = option(
        "",
        "Address of each sidecar's own console in browsers, with `{name}`, such as "
        "`https://{name}.example.com`; empty = the one it is asked at.",
    )
    ca_file: OptionalPath = option(
        None,
        "PEM file of the authorities trusted to sign the certificates of `https` URLs; empty = "
        "the system's.",
    )
    timeout_s: StrictInt = option(
        10, "Time limit of one request to a sidecar.", unit="seconds", ge=1, le=120
    )
    answer_mib: StrictInt = option(
        4, "Maximum size of one answer; a larger one is not read.", unit="MiB", ge=1, le=64
    )
    requests: StrictInt = option(
        16,
        "Requests to sidecars at a time.",
        unit="requests",
        why="sixteen answers of the maximum size take 64 MiB",
        ge=1,
        le=256,
    )

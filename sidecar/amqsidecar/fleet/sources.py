"""Which sidecars there are: a list, headless Services, SRV records, pods of Kubernetes."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from amqsidecar.web_client import Client, Unreachable

SIDECARS_MAX: Final = 500
"""More are left out, and said to be."""

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Of a pod: its token, its namespace, and the authorities of Kubernetes' API."""

_LOOK_UP_S: Final = 5.0


class FleetMember(msgspec.Struct, frozen=True):
    """One sidecar: a unique name, the URL that it is asked at, and its console in browsers."""

    name: str
    url: str
    console: str


class PodSource(NamedTuple):
    """The pods with a label, as the options of `fleet` say; `client` trusts Kubernetes' API."""

    client: Client
    selector: str
    namespaces: Sequence[str]
    port: int
    server: str = "https://kubernetes.default.svc"
    account: Path = ACCOUNT


NamedUrls = Mapping[str, str]


class FleetSources:
    """Finds the sidecars; a source that can't be read keeps its last sidecars."""

    def __init__(
        self,
        fixed: NamedUrls,
        services: Sequence[str] = (),
        srv: Sequence[str] = (),
        pods: PodSource | None = None,
        console_url: str = "",
    ) -> None:
        """Name the sources as the options of `fleet` do; `pods` None = Kubernetes is not asked."""
        self._console_url = console_url
        self._asks: dict[str, Callable[[], Awaitable[NamedUrls]]] = {
            **{f"the name {one}": partial(_find_addresses, one) for one in services},
            **{f"the SRV records of {one}": partial(_find_srv, one) for one in srv},
        }
        if pods is not None:
            self._asks[f"the pods with {pods.selector}"] = partial(_find_pods, pods)
        self._fixed = fixed
        self._last: dict[str, NamedUrls] = {}
        self.problems: list[str] = []

    async def find(self) -> list[FleetMember]:
        """Return the sidecars by name; `problems` lists the sources that could not be read."""
        problems = []
        for what, ask in self._asks.items():
            try:
                async with asyncio.timeout(_LOOK_UP_S):
                    self._last[what] = await ask()
            except Exception as error:  # noqa: BLE001 - whatever it answers, others are read
                reason = str(error) or f"no answer within {_LOOK_UP_S:g} s"
                problems.append(f"{what} can't be read: {reason}")
        found = dict(self._fixed)
        for source in self._last.values():
            found |= {name: url for name, url in source.items() if name not in self._fixed}
        if len(found) > SIDECARS_MAX:
            problems.append(f"{len(found) - SIDECARS_MAX} sidecars beyond {SIDECARS_MAX}")
        self.problems = problems
        return [
            FleetMember(name, url.rstrip("/"), self._console(name, url))
            for name, url in sorted(found.items())[:SIDECARS_MAX]
        ]

    def _console(self, name: str, url: str) -> str:
        template = self._console_url or url
        return template.replace("{name}", quote(name, safe="")).rstrip("/")


def _url(address: str, port: int | str) -> str:
    return f"http://{f'[{address}]' if ':' in address else address}:{port}"


async def _find_addresses(service: str) -> NamedUrls:
    host, _, port = service.rpartition(":")
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    name, addresses = host.partition(".")[0], {str(info[4][0]) for info in infos}
    return {f"{name}-{address}": _url(address, port) for address in addresses}


async def _find_srv(name: str) -> NamedUrls:
    try:
        from dns.asyncresolver import resolve  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise OSError(f'pip install "amqsidecar[fleet]" first ({error})') from error
    records = await resolve(name, "SRV", lifetime=_LOOK_UP_S)
    targets = [(str(one.target).rstrip("."), int(one.port)) for one in records]
    return {f"{host}:{port}": f"http://{host}:{port}" for host, port in targets}


async def _find_pods(source: PodSource) -> NamedUrls:
    token = (source.account / "token").read_text().strip()
    own = [] if source.namespaces else [(source.account / "namespace").read_text().strip()]
    found = {}
    for namespace in source.namespaces or own:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
        url = f"{source.server}{path}?labelSelector={quote(source.selector, safe='')}"
        answer = await source.client.ask(url, {"Authorization": f"Bearer {token}"})
        if answer.status != 200:
            raise Unreachable(f"Kubernetes answers {answer.status} for namespace {namespace}")
        for pod in msgspec.json.decode(answer.body)["items"]:
            address, about = pod["status"].get("podIP"), pod["metadata"]
            if address and "deletionTimestamp" not in about:
                found[f"{namespace}.{about['name']}"] = _url(address, source.port)
    return found

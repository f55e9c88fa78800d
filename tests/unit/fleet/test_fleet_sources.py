"""Where sidecars are found: lists, names, pods; what could be read once stays."""

import asyncio
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from amqsidecar.fleet.sources import SIDECARS_MAX, FleetMember, FleetSources, PodSource
from amqsidecar.http.serving import HttpServer
from amqsidecar.web_client import Client

TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
CLIENT: Final = Client(lambda: TLS, 10.0, 2**20)


def test_a_list_has_names_and_its_consoles_may_be_elsewhere() -> None:
    sources = FleetSources(
        {"b": "http://b:1/", "a/x": "http://a:1"}, console_url="https://{name}.eu/"
    )
    assert asyncio.run(sources.find()) == [
        FleetMember(name="a/x", url="http://a:1", console="https://a%2Fx.eu"),
        FleetMember(name="b", url="http://b:1", console="https://b.eu"),
    ]


def test_each_address_of_a_name_is_a_sidecar_and_a_name_without_any_is_said() -> None:
    sources = FleetSources({}, services=["127.0.0.1:9464", "nowhere.invalid:9464"])
    [found] = asyncio.run(sources.find())
    assert found.url == "http://127.0.0.1:9464"
    [problem] = sources.problems
    assert problem.startswith("the name nowhere.invalid:9464 can't be read: ")


class _Names(asyncio.DatagramProtocol):
    """Answers every question for SRV records with two."""

    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        message, rrset = pytest.importorskip("dns.message"), pytest.importorskip("dns.rrset")
        question = message.from_wire(data)
        answer = message.make_response(question)
        name = question.question[0].name
        records = ["0 5 9464 one.orders.svc.", "0 5 9465 two.orders.svc."]
        answer.answer.append(rrset.from_text_list(name, 60, "IN", "SRV", records))
        self.transport.sendto(answer.to_wire(), addr)


def test_srv_records_name_sidecars_with_their_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    dns = pytest.importorskip("dns.asyncresolver")

    async def find() -> list[FleetMember]:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(_Names, ("127.0.0.1", 0))
        resolver = dns.Resolver(configure=False)
        resolver.port = transport.get_extra_info("sockname")[1]
        resolver.nameservers = ["127.0.0.1"]
        monkeypatch.setattr(dns, "default_resolver", resolver)
        try:
            return await FleetSources({}, srv=["_http._tcp.sidecars.orders"]).find()
        finally:
            transport.close()

    assert {one.name: one.url for one in asyncio.run(find())} == {
        "one.orders.svc:9464": "http://one.orders.svc:9464",
        "two.orders.svc:9465": "http://two.orders.svc:9465",
    }


def test_there_is_a_limit_and_what_is_beyond_it_is_said() -> None:
    sources = FleetSources({f"s{n}": f"http://s{n}:1" for n in range(SIDECARS_MAX + 2)})
    assert len(asyncio.run(sources.find())) == SIDECARS_MAX
    assert sources.problems == [f"2 sidecars beyond {SIDECARS_MAX}"]


@contextmanager
def api_server(answers: list[Any], asked: list[Request]) -> Iterator[str]:
    async def pods(request: Request) -> Response:
        asked.append(request)
        found = answers.pop(0)
        return JSONResponse(found, 403 if found is None else 200)

    server = HttpServer(Starlette(routes=[Route("/api/v1/namespaces/{name}/pods", pods)]))
    host, port = server.start("127.0.0.1", 0)
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def pod(name: str, address: str | None, **metadata: Any) -> dict[str, Any]:
    status = {} if address is None else {"podIP": address}
    return {"metadata": {"name": name, **metadata}, "status": status}


def test_pods_are_asked_for_in_the_name_of_this_pod_and_stay_while_that_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text("of-this-pod\n")
    (tmp_path / "namespace").write_text("orders")
    items = [
        pod("one", "10.0.0.1"),
        pod("six", "fd00::6"),
        pod("starts", None),
        pod("ends", "10.0.0.2", deletionTimestamp="2026-01-01T00:00:00Z"),
    ]
    asked: list[Request] = []
    with api_server([{"items": items}, None, ["no list of pods"]], asked) as url:
        source = PodSource(
            client=CLIENT,
            selector="app in (a,b)",
            namespaces=(),
            port=9464,
            server=url,
            account=tmp_path,
        )
        sources = FleetSources({}, pods=source)
        found = asyncio.run(sources.find())
        assert {one.name: one.url for one in found} == {
            "orders.one": "http://10.0.0.1:9464",
            "orders.six": "http://[fd00::6]:9464",
        }
        assert asked[0].headers["authorization"] == "Bearer of-this-pod"
        assert asked[0].query_params["labelSelector"] == "app in (a,b)"
        assert asked[0].path_params["name"] == "orders"
        assert asyncio.run(sources.find()) == found
        assert "403 for namespace orders" in json.dumps(sources.problems)
        assert asyncio.run(sources.find()) == found
        assert len(sources.problems) == 1

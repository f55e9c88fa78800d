"""Counters of queues over Jolokia: what answers, what refuses, and what is no Jolokia."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from amqsidecar.brokers.classic.jolokia import JolokiaCounters
from amqsidecar.brokers.classic.statistics import COUNTS, about
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.destination import queue

BROKER = "org.apache.activemq:type=Broker,brokerName=localhost"
COUNTED = {
    "QueueSize": 3,
    "DequeueCount": 2,
    "ExpiredCount": 1,
    "InFlightCount": 0,
    "DispatchCount": 5,
    "ConsumerCount": 4,
}
Answer = Callable[[list[Any]], tuple[int, bytes]]
Seen = list[tuple[Mapping[str, str], list[Any]]]


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, Seen]]:
    """Answer on loopback while the block runs; gives the URL and the requests so far."""
    seen: Seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((dict(self.headers), asked))
            code, body = answer(asked)
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            if code == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://ann@127.0.0.1:{server.server_port}/api/jolokia", seen
        finally:
            server.shutdown()
            thread.join()


def jolokia(asked: list[Any], brokers: int = 1) -> tuple[int, bytes]:
    """Answer as Jolokia does: the queue `missing` is not there, `other` is called otherwise."""
    answers: list[dict[str, Any]] = [
        {"value": {f"{BROKER}{number}": {"BrokerId": "ID:b"} for number in range(brokers)}}
    ]
    for one in asked[1:]:
        name = one["mbean"].rpartition("destinationName=")[2]
        value = {one["mbean"].replace("*", "localhost"): COUNTED | {"Name": name}}
        if name == "other":
            value = {"x": COUNTED | {"Name": "another"}}
        answers.append({"status": 404} if name == "missing" else {"value": value})
    return 200, json.dumps(answers).encode()


def ask(url: str, *names: str) -> list[Mapping[str, object]]:
    client = JolokiaCounters(url, password=lambda: "geheim", tls=None)
    return list(client.ask([about(queue(name)) for name in names]))


def test_counters_come_in_the_words_of_the_statistics_plugin() -> None:
    with serving(jolokia) as (url, seen):
        (found,) = ask(url, "orders", "missing", "other")
    assert found["destinationName"] == "queue://orders"
    assert found["brokerId"] == "ID:b"
    assert [found[name] for name in COUNTS] == [3, 2, 5, 0, 1, 4]
    [(headers, asked)] = seen
    login = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
    assert (login, headers["Origin"]) == ("ann:geheim", "http://localhost")
    assert {one["type"] for one in asked} == {"read"}


def test_many_queues_are_asked_about_in_bounded_requests() -> None:
    names = [f"q{number}" for number in range(120)]
    with serving(jolokia) as (url, seen):
        found = ask(url, *names)
    assert [one["destinationName"] for one in found] == [f"queue://{name}" for name in names]
    assert [len(asked) for _, asked in seen] == [51, 51, 21]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda _: (401, b""), "HTTP 401; correct the user in broker.jolokia_url"),
        (lambda _: (403, b""), "HTTP 403; allow this user .* conf/jetty.xml"),
        (lambda _: (200, b'{"error": "Origin", "status": 403}'), "Origin; in conf/jolokia-access"),
        (lambda _: (200, b'[{"error": "post", "status": 403}]'), "post; in conf/jolokia-access"),
        (lambda _: (302, b""), "HTTP 302; expected a URL such as"),
        (lambda _: (200, b"<html>"), "does not answer as Jolokia; expected"),
        (lambda _: (200, b"[]"), "does not answer as Jolokia"),
        (lambda _: (200, b"[" + b" " * 300_000 + b"]"), "does not answer as Jolokia"),
        (lambda asked: jolokia(asked, brokers=0), "shows 0 brokers, expected 1"),
        (lambda asked: jolokia(asked, brokers=2), "shows 2 brokers, expected 1"),
    ],
)
def test_what_is_no_answer_is_refused_with_the_way_to_mend_it(answer: Answer, words: str) -> None:
    with serving(answer) as (url, seen):
        with pytest.raises(BrokerRefused, match=words) as refused:
            ask(url, "orders")
        assert len(seen) == 1
    assert "geheim" not in str(refused.value)


def test_where_nothing_listens_the_reason_is_said() -> None:
    with serving(jolokia) as (url, _):
        pass
    with pytest.raises(BrokerRefused, match="start the broker's web console"):
        ask(url, "orders")

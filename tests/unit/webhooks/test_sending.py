"""A notice over real TLS: format, signature, and the addresses that it may go to."""

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import ssl
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any

import msgspec
import pytest

from amqsidecar.web_client import Client, is_public, permits
from amqsidecar.webhooks.outbox import Kind, Matter, Notice, Phase
from amqsidecar.webhooks.sending import Address, NotDelivered, encode, send
from support.web.receiver import Receiver

LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
HOSTILE = (
    'a.B: "pay" <!channel> {{ 111*111 }} <http://evil.example|x> \u202e\n[b](http://evil.example)'
)
NOTICE = Notice(
    id="s-1",
    phase=Phase.UPDATED,
    matter=Matter(
        kind=Kind.EXHAUSTED,
        destination="queue://orders",
        cause_group=HOSTILE,
        text=f"Exhausted at queue://orders: {HOSTILE}",
        path="/groups/one?destination=queue%3A%2F%2Forders&group=%2317",
        marker=f"new since {HOSTILE} (14m ago)",
        count=10_000,
        since_ms=1_700_000_000_000,
        owner="team-a",
    ),
    more=7,
    at_ms=1_700_000_002_000,
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with Receiver(tmp_path_factory.mktemp("pki")) as found:
        yield found


@pytest.fixture
def receiver(running: Receiver) -> Receiver:
    running.requests, running.answers, running.more = [], 204, {}
    running.body, running.missing = b"", 0
    running.hangs.clear()
    running.holds.clear()
    return running


def client(
    receiver: Receiver,
    tls: ssl.SSLContext | None = None,
    *,
    permitted: Sequence[IPv4Network | IPv6Network] = LOOPBACK,
    timeout_s: float = 10.0,
) -> Client:
    used = tls or ssl.create_default_context(cafile=receiver.pki.ca_file)
    return Client(lambda: used, timeout_s, 65_536, permits=permits(permitted), needs_body=False)


def address(receiver: Receiver, **changes: Any) -> Address:
    return msgspec.structs.replace(
        Address(
            url=lambda: receiver.url,
            secrets=lambda: ["whsec_c2VjcmV0", "plain"],
            client=client(receiver),
            console="https://console.example/",
        ),
        **changes,
    )


def test_a_cloud_event_is_signed_with_each_secret(receiver: Receiver) -> None:
    send(address(receiver), NOTICE, 1_700_000_009_123)
    [got] = receiver.requests
    assert got.headers["content-type"] == "application/cloudevents+json"
    assert (got.headers["webhook-id"], got.headers["webhook-timestamp"]) == ("s-1", "1700000009")
    signed = b"s-1.1700000009." + got.body
    expected = [
        "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        for key in (b"secret", b"plain")
    ]
    assert got.headers["webhook-signature"].split() == expected
    event = got.json
    assert {name: event[name] for name in ("specversion", "id", "type", "subject", "time")} == {
        "specversion": "1.0",
        "id": "s-1",
        "type": "amqsidecar.exhausted.updated",
        "subject": "queue://orders",
        "time": "2023-11-14T22:13:22.000+00:00",
    }
    assert (event["data"]["count"], event["data"]["more"]) == (10_000, 7)
    assert event["data"]["text"].startswith(
        "10,000 messages wait for a person, 7 more since the last notice, new since a.B"
    )
    assert event["data"]["link"] == "https://console.example" + NOTICE.matter.path
    assert "‹U+202E›" in event["data"]["cause_group"]


@pytest.mark.parametrize("template", ["slack", "teams", "pagerduty"])
@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("kind", list(Kind))
def test_each_format_is_whole_whatever_a_stranger_wrote(
    receiver: Receiver, template: str, phase: Phase, kind: Kind
) -> None:
    matter = msgspec.structs.replace(NOTICE.matter, kind=kind, text=HOSTILE)
    notice = msgspec.structs.replace(NOTICE, phase=phase, matter=matter)
    for console in ("", "https://console.example"):
        body = encode(address(receiver, template=template, console=console), notice, ["key"])
        text = json.dumps(json.loads(body))
        assert "12321" not in text
        assert ("https://console.example" in text) == bool(console)
        if template == "slack":
            # Slack's `text` knows mentions and links; `plain_text` knows none.
            assert "<" not in json.loads(body)["text"]
            assert '"mrkdwn"' not in text
        if template == "teams":
            assert '"TextBlock"' not in text
        if template == "pagerduty":
            found = json.loads(body)
            assert found["routing_key"] == "key"
            assert (found["event_action"] == "resolve") == (phase is Phase.ENDED)


def test_updates_and_the_end_have_the_key_of_the_begin(receiver: Receiver) -> None:
    keys = set()
    for phase in Phase:
        notice = msgspec.structs.replace(NOTICE, phase=phase)
        keys.add(json.loads(encode(address(receiver, template="pagerduty"), notice))["dedup_key"])
    assert len(keys) == 1


def test_an_operator_s_template_is_used_and_its_fault_is_said(
    receiver: Receiver, tmp_path: Path
) -> None:
    template = tmp_path / "own.json"
    template.write_text('{"say": {{ (title ~ " " ~ count)|tojson }}}')
    found = json.loads(encode(address(receiver, template=template), NOTICE))
    assert found["say"].endswith(" 10000")
    template.write_text('{"say": {{ nothing }}}')
    with pytest.raises(NotDelivered, match="UndefinedError"):
        encode(address(receiver, template=template), NOTICE)


def test_masked_parts_are_neither_in_a_body_nor_in_its_link(receiver: Receiver) -> None:
    hidden = address(receiver, mask=lambda text: text.replace("pay", "***"))
    body = encode(hidden, NOTICE).decode()
    assert "pay" not in body
    assert "***" in body


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::a9fe:a9fe"),
    ],
)
def test_no_address_of_inner_networks_is_public(text: str) -> None:
    assert not is_public(ip_address(text))
    assert not permits(())(ip_address(text))


def test_public_addresses_and_allowed_networks_are_permitted() -> None:
    assert all(map(is_public, map(ip_address, ("1.1.1.1", "2606:4700::1", "::ffff:1.1.1.1"))))
    allowed = permits((ip_network("10.0.0.0/8"),))
    assert allowed(ip_address("10.2.3.4"))
    assert allowed(ip_address("::ffff:10.2.3.4"))
    assert not allowed(ip_address("127.0.0.1"))


def test_a_private_address_is_not_connected_to(receiver: Receiver) -> None:
    with pytest.raises(NotDelivered, match="only addresses that are not allowed"):
        send(address(receiver, client=client(receiver, permitted=())), NOTICE, 0)
    assert receiver.requests == []


def test_a_name_that_changes_after_its_check_leads_nowhere_else(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def rebinding(host: str, port: int, *_: object, **__: object) -> list[Any]:
        asked.append(host)
        # First the address that is allowed, then the receiver's, which is not.
        place = "127.0.0.9" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, port))]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    only = client(receiver, permitted=(ip_network("127.0.0.9/32"),))
    with pytest.raises(NotDelivered, match=r"[Rr]efused"):
        send(address(receiver, client=only), NOTICE, 0)
    assert (asked, receiver.requests) == (["localhost"], [])


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.answers, receiver.more = 307, {"Location": receiver.url + "/elsewhere"}
    with pytest.raises(NotDelivered, match="answers 307"):
        send(address(receiver), NOTICE, 0)
    assert [one.path for one in receiver.requests] == ["/hook"]


@pytest.mark.parametrize(
    ("given", "pause_ms"),
    [("30", 30_000), ("soon", None), ("", None), ("9" * 5_000, 999_999_999_000)],
)
def test_a_refusal_may_name_a_pause(receiver: Receiver, given: str, pause_ms: int | None) -> None:
    receiver.answers, receiver.more = 429, {"Retry-After": given}
    with pytest.raises(NotDelivered, match="answers 429") as refused:
        send(address(receiver), NOTICE, 0)
    assert refused.value.pause_ms == pause_ms


def test_a_certificate_of_another_authority_is_refused(receiver: Receiver) -> None:
    with pytest.raises(NotDelivered, match="certificate"):
        send(address(receiver, client=client(receiver, ssl.create_default_context())), NOTICE, 0)
    assert receiver.requests == []


def test_a_receiver_that_hangs_is_left(receiver: Receiver) -> None:
    receiver.hangs.set()
    with pytest.raises(NotDelivered, match=r"no answer within 0\.3 s"):
        send(address(receiver, client=client(receiver, timeout_s=0.3)), NOTICE, 0)


@pytest.mark.parametrize("status", [200, 202, 503])
@pytest.mark.parametrize("body", ["large", "cut", "late"])
def test_the_status_counts_whatever_the_body_is(receiver: Receiver, status: int, body: str) -> None:
    receiver.answers, receiver.more = status, {"Retry-After": "30"}
    receiver.body, receiver.missing = {"large": (b"x" * 10**6, 0)}.get(body, (b"x", 1))
    if body == "late":
        receiver.holds.set()
    target = address(receiver, client=client(receiver, timeout_s=5.0 if body == "late" else 10.0))
    if status == 503:
        with pytest.raises(NotDelivered, match="answers 503") as refused:
            send(target, NOTICE, 0)
        assert refused.value.pause_ms == 30_000
    else:
        send(target, NOTICE, 0)
    assert len(receiver.requests) == 1


def test_sending_needs_no_loop_of_the_caller(receiver: Receiver) -> None:
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    send(address(receiver), NOTICE, 0)
    assert len(receiver.requests) == 1

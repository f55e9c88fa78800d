"""Reads Classic's counters of queues from its web console: JMX over Jolokia.

The stock broker has it at `http://localhost:8161/api/jolokia`. The statistics plugin has the
counters under other names, so `ClassicCounters` judges both alike.
"""

import base64
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, Final
from urllib.parse import urlsplit, urlunsplit

from amqsidecar.brokers.classic.statistics import StatisticsReply, about
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.destination import Destination, queue

ANSWER_S: Final = 5.0
"""Maximum wait for each step of an answer."""

_ASKED_AT_ONCE: Final = 50
_BYTES_MAX: Final = 256 * 1024
_BROKER: Final = "org.apache.activemq:type=Broker,brokerName=*"
# Why this order: messages that left then never outnumber messages handed out.
_ATTRIBUTES: Final = {
    "QueueSize": "size",
    "DequeueCount": "dequeueCount",
    "ExpiredCount": "expiredCount",
    "InFlightCount": "inflightCount",
    "DispatchCount": "dispatchCount",
    "ConsumerCount": "consumerCount",
}
_MENDS: Final = {
    401: "correct the user in broker.jolokia_url and broker.jolokia_password_file",
    403: (
        "allow this user (role `admin`, from Classic 6.0 on group `admins`) and this client's "
        "address in conf/jetty.xml, from Classic 6.3 on conf/jetty/jetty-security.xml"
    ),
}
_POLICY: Final = (
    "in conf/jolokia-access.xml allow this client's address, the method post, the origin "
    "http://localhost, and to read org.apache.activemq:*"
)
_EXPECTED: Final = (
    "expected a URL such as http://admin@localhost:8161/api/jolokia in broker.jolokia_url"
)
_PREFIX: Final = about(queue("")).name
_UNSAFE: Final = re.compile(r"[:,'\"]")
_ENTITIES: Final = str.maketrans({"?": "&qe;", "=": "&amp;", "*": "&ast;"})


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nothing: the password is for one address."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        """Return no other request."""


class JolokiaCounters:
    """Questions and answers over HTTP; each is a connection of its own.

    Args:
        url: of Jolokia, with the user.
        password: reads the user's password at each request.
        tls: for `https`.
    """

    def __init__(
        self, url: str, *, password: Callable[[], str | None], tls: ssl.SSLContext | None
    ) -> None:
        parts = urlsplit(url)
        self._user = parts.username
        self._password = password
        self._url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self._opener = urllib.request.build_opener(
            # Why none: a proxy of the environment must not get the password.
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=tls),
            _NoRedirect,
        )

    def ask(self, questions: Sequence[Destination]) -> list[StatisticsReply]:
        """Return the counters of queues and topics, in the words of the statistics plugin.

        Args:
            questions: where the plugin would be asked about them.

        Raises:
            BrokerRefused: nothing answers, it refuses the user, or it is another service.
        """
        places = [Destination(one.kind, one.name.removeprefix(_PREFIX)) for one in questions]
        replies = list[StatisticsReply]()
        for start in range(0, len(places), _ASKED_AT_ONCE):
            replies += self._read(places[start : start + _ASKED_AT_ONCE])
        return replies

    def _read(self, places: Sequence[Destination]) -> list[StatisticsReply]:
        asked = [{"type": "read", "mbean": _BROKER, "attribute": ["BrokerId"]}]
        asked += [
            {"type": "read", "mbean": _mbean(place), "attribute": ["Name", *_ATTRIBUTES]}
            for place in places
        ]
        answers = self._answers(asked)
        brokers = _values(answers[0])
        if len(brokers) != 1:
            raise BrokerRefused(
                f"{self._url} shows {len(brokers)} brokers, expected 1; see that the broker has "
                'useJmx="true"'
            )
        broker = brokers[0].get("BrokerId")
        found = list[StatisticsReply]()
        for place, answer in zip(places, answers[1:], strict=True):
            for value in _values(answer):
                # Why: the name of an MBean may stand for several queues.
                if value.get("Name") == place.name:
                    counts = {ours: value.get(theirs) for theirs, ours in _ATTRIBUTES.items()}
                    found.append(counts | {"destinationName": str(place), "brokerId": broker})
        return found

    def _answers(self, asked: Sequence[Mapping[str, object]]) -> list[Any]:
        # Why an origin: the stock file refuses requests that name none.
        headers = {"Content-Type": "application/json", "Origin": "http://localhost"}
        if self._user is not None:
            login = f"{self._user}:{self._password() or ''}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        request = urllib.request.Request(  # noqa: S310 - http and https only, see the options
            self._url, json.dumps(asked).encode(), headers
        )
        try:
            with self._opener.open(request, timeout=ANSWER_S) as answer:
                body = answer.read(_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            error.close()
            mend = _MENDS.get(error.code, _EXPECTED)
            raise BrokerRefused(f"{self._url} answers HTTP {error.code}; {mend}") from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise BrokerRefused(
                f"{self._url} can't be reached: {reason}; start the broker's web console, or "
                "correct broker.jolokia_url"
            ) from error
        try:
            answers = json.loads(body) if len(body) <= _BYTES_MAX else None
        except (ValueError, RecursionError):
            answers = None
        # Why: Jolokia answers HTTP 200 where its policy file forbids the request or a part of it.
        first = answers[0] if isinstance(answers, list) and answers else answers
        if isinstance(first, dict) and first.get("status") == HTTPStatus.FORBIDDEN:
            raise BrokerRefused(f"{self._url} refuses: {str(first.get('error'))[:200]}; {_POLICY}")
        if not isinstance(answers, list) or len(answers) != len(asked):
            raise BrokerRefused(f"{self._url} does not answer as Jolokia; {_EXPECTED}")
        return answers


def _mbean(place: Destination) -> str:
    """Return the name under which the broker registers a queue or a topic.

    Source: ActiveMQ Classic, JMXSupport.encodeObjectNamePart.
    """
    part = _UNSAFE.sub("_", place.name).translate(_ENTITIES)
    kind = place.kind.value.title()
    return f"{_BROKER},destinationType={kind},destinationName={part}"


def _values(answer: object) -> list[Mapping[str, object]]:
    """Return the attributes of each MBean of an answer; none where none has the name."""
    value = answer.get("value") if isinstance(answer, Mapping) else None
    found = value.values() if isinstance(value, Mapping) else ()
    return [one for one in found if isinstance(one, Mapping)]

"""Who calls, and the API of the sidecar as it answers them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from amqsidecar import __version__
from amqsidecar.errors import SidecarError
from amqsidecar.web_client import Client, Unreachable

QueryPairs = Sequence[tuple[str, object]]

_BASE: Final = "/api/v1"
_AGENT: Final = {"User-Agent": f"amqsidecar-mcp/{__version__}"}


class ApiRefused(SidecarError):
    """The sidecar answers with a refusal, of this status of HTTP."""

    def __init__(self, status: int, what: str) -> None:
        self.status = status
        super().__init__(f"{status}: {what}")


class CallerSession(msgspec.Struct, frozen=True):
    """The caller, as the sidecar knows them.

    Attributes:
        way: "local" = the sidecar requires no authentication.
        csrf: token to send with each POST; "" = not needed.
        rights: given on some destination at least; an older version names none.
    """

    actor: str
    role: str = ""
    way: str = ""
    csrf: str = ""
    rights: frozenset[str] = frozenset()


class ApiCaller(NamedTuple):
    """A caller and their way to the API; all of their rights are decided there."""

    session: CallerSession
    api: "CallerApi"

    @property
    def key(self) -> str:
        """Tells callers apart."""
        return f"{self.session.way} {self.session.role} {self.session.actor}"


class CallerApi:
    """Asks one sidecar with the token of one caller; "" = without."""

    def __init__(self, client: Client, url: str, token: str) -> None:
        self._client = client
        self._url = f"{url.rstrip('/')}{_BASE}"
        self._headers = _AGENT | ({"Authorization": f"Bearer {token}"} if token else {})
        self._csrf: Mapping[str, str] = {}

    async def open(self) -> ApiCaller:
        """Return the caller; raises as `read`."""
        said = await self.read("/session")
        try:
            session = msgspec.convert(said, CallerSession)
        except msgspec.ValidationError as error:
            raise Unreachable(f"the answer of the sidecar can't be understood: {error}") from error
        self._csrf = {"X-CSRF-Token": session.csrf} if session.csrf else {}
        return ApiCaller(session, self)

    async def read(self, path: str, query: QueryPairs = ()) -> Any:
        """Return the answer to a GET.

        Raises:
            ApiRefused: see there.
            Unreachable: there is no answer that can be understood.
        """
        pairs = [(name, str(value)) for name, value in query if value is not None]
        return await self._ask(f"{path}?{urlencode(pairs)}" if pairs else path, None)

    async def post(self, path: str, body: object) -> Any:
        """Return the answer to a POST, which may be carried out even if this raises `Unreachable`.

        Raises:
            ApiRefused, Unreachable: as `read`.
        """
        return await self._ask(path, msgspec.json.encode(body))

    async def _ask(self, path: str, body: bytes | None) -> Any:
        headers = self._headers if body is None else {**self._headers, **self._csrf}
        answer = await self._client.ask(f"{self._url}{path}", headers, body)
        try:
            found = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unreachable(f"the answer ({answer.status}) is no JSON: {error}") from error
        if answer.status not in (200, 201):
            detail = found.get("detail", "") if isinstance(found, dict) else ""
            raise ApiRefused(answer.status, str(detail))
        return found

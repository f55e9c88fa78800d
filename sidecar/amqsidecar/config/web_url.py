"""URLs of HTTP services in a configuration."""

from collections.abc import Callable
from urllib.parse import urlsplit


def web_url(example: str, *, may_name_user: bool = False) -> Callable[[object], str]:
    """Return a validator of URLs of `http` and `https`; it turns None and "" into "".

    The validator raises ValueError for anything else. A password is never allowed.

    Args:
        example: shown where the value is no such URL.
        may_name_user: whether the URL may have a user.
    """

    def checked(value: object) -> str:
        if value in (None, ""):
            return ""
        parts = urlsplit(value) if isinstance(value, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"expected a URL such as {example}")
        credential = parts.password if may_name_user else parts.username
        if credential is not None or parts.query or parts.fragment:
            without = "password" if may_name_user else "user"
            raise ValueError(f"expected a URL without {without}, `?` and `#`")
        return str(value)

    return checked

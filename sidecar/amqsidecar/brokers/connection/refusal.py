"""A request that the broker refuses, over any wire that carries its words."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from amqsidecar.errors import BrokerRefused


class RequestRefused(Exception):
    """The broker refuses a request; never leaves `brokers/`."""


@contextmanager
def raised_as(sentence: str = "{}") -> Iterator[None]:
    """Raise a refusal in the block as `BrokerRefused`; `{}` stands for the broker's words."""
    try:
        yield
    except RequestRefused as cause:
        raise BrokerRefused(sentence.replace("{}", str(cause))) from cause


def refusal_of(request: Callable[[], object]) -> str | None:
    """Return the broker's reason to refuse a request; None = it does not."""
    try:
        request()
    except RequestRefused as cause:
        return str(cause)
    return None

"""Stores that are open, as the product only ever gets them."""

from __future__ import annotations

from typing import Protocol, TypeVar

from amqsidecar.model.schedule import StoreState
from amqsidecar.store import Store


class OpenableStore(Store, Protocol):
    """A store as it is made: not open yet."""

    def open(self) -> StoreState:
        """Open, create what is missing, and return the state."""
        ...


StoreT = TypeVar("StoreT", bound=OpenableStore)


def opened(store: StoreT) -> StoreT:
    store.open()
    return store

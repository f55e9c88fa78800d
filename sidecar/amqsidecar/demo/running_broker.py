"""A broker that runs already, which the demo leaves as it found it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.connection.credentials import fixed_password
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.core_artemis.link import CoreArtemisLink
from amqsidecar.brokers.openwire.link import OpenWireLink
from amqsidecar.clock import SystemClock
from amqsidecar.config.broker_url import BrokerUrl
from amqsidecar.demo.applications import WireApplications, endpoint_at
from amqsidecar.demo.core_applications import CoreApplications
from amqsidecar.demo.stomp_applications import StompApplications
from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX
from amqsidecar.errors import SidecarError
from amqsidecar.model.destination import queue
from amqsidecar.trials import ExaminedLink


@dataclass(frozen=True)
class RunningBroker:
    """A broker that runs already, without other users.

    Attributes:
        url: where it listens for the sidecar's wire, with the user; without a password.
        stomp_port: where a Classic listens for STOMP, on the same host.
        password_file: holds the password; None = no password.
        password: None = no password.
    """

    url: BrokerUrl
    stomp_port: int
    password_file: Path | None
    password: str | None

    def endpoint_at(self, port: int) -> Endpoint:
        """Return a connector of this host, with the user."""
        return endpoint_at(self.url.host, port, self.url.user, fixed_password(self.password))

    @property
    def options(self) -> Mapping[str, object]:
        """The options of a sidecar on it, below `broker`."""
        options: dict[str, object] = {"url": str(self.url)}
        if self.password_file is not None:
            options["password_file"] = str(self.password_file.absolute())
        return options


class Guest:
    """A context manager that removes a demo's traces from a broker, however the demo ends.

    It removes the demo's messages, the token of the demo's sidecar, and the queues that were not
    there before and are empty. Messages of others stay, and so do their queues.

    Attributes:
        applications: connected to it.
        options: of a sidecar on it, below `broker`.
        leftovers: sentences on things that could not be removed.
    """

    def __init__(
        self,
        running: RunningBroker,
        applications: WireApplications,
        existing: Callable[[], Collection[str]],
        remove: Callable[[Sequence[str]], Mapping[str, str]],
        instance: str,
        queues: Sequence[str],
    ) -> None:
        self.leftovers: list[str] = []
        self.applications = applications
        self.options = running.options
        self._existing = existing
        self._remove = remove
        self._token_queue = f"{TOKEN_QUEUE_PREFIX}{instance}"
        self._queues = queues
        self._known: Final[set[str]] = set()

    def __enter__(self) -> Self:
        """Remember which queues there are.

        Raises:
            LinkLost: the broker can't be reached.
            BrokerRefused: credentials or permissions.
        """
        self._known.update(self._existing())
        return self

    def __exit__(self, *_: object) -> None:
        self.applications.disconnect()
        try:
            self._clean()
        except SidecarError as cause:
            names = ", ".join((*self._queues, self._token_queue))
            self.leftovers.append(f"The broker may still have messages in {names}: {cause}")

    def _clean(self) -> None:
        for one in self._queues:
            self.applications.discard(one)
        others = [one for one in self._queues if not self.applications.is_empty(one)]
        kept = self._known.union(others)
        ours = (*self._queues, self._token_queue)
        for name, refused in self._remove([one for one in ours if one not in kept]).items():
            self.leftovers.append(f"The broker still has the queue {name}: {refused}")


def _remove(link: ExaminedLink, names: Iterable[str]) -> Mapping[str, str]:
    """Remove queues; return why some may stay, by name."""
    look = link.look()
    try:
        trials = look.trials()
        answers = {name: trials.remove(queue(name)) for name in names}
    finally:
        look.close()
    return {name: refused for name, refused in answers.items() if refused is not None}


def guest_of_classic(running: RunningBroker, instance: str, queues: Sequence[str]) -> Guest:
    """Return the guest on a Classic, whose applications speak STOMP; see `Guest`."""
    endpoint = running.endpoint_at(running.url.port)
    link = OpenWireLink(
        ClassicLinkSettings(endpoint, clock=SystemClock(), instance=f"{instance}-cleans")
    )

    def existing() -> Collection[str]:
        look = link.look()
        try:
            return look.queue_names()
        finally:
            look.close()

    applications = StompApplications(running.endpoint_at(running.stomp_port))
    return Guest(running, applications, existing, partial(_remove, link), instance, queues)


def guest_of_artemis(running: RunningBroker, instance: str, queues: Sequence[str]) -> Guest:
    """Return the guest on an Artemis; see `Guest`."""
    endpoint = running.endpoint_at(running.url.port)
    link = CoreArtemisLink(
        ArtemisLinkSettings(endpoint, clock=SystemClock(), instance=f"{instance}-cleans")
    )
    applications = CoreApplications(endpoint)
    return Guest(
        running,
        applications,
        lambda: applications.existing(queues),
        # Why only those: Artemis refuses to remove a queue that is missing.
        lambda names: _remove(link, applications.existing(names)),
        instance,
        queues,
    )

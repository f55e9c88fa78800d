"""The merged settings of Artemis's addresses, read from its management."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from amqsidecar.brokers.artemis.management import ArtemisQuestions, ManagementQuestion
from amqsidecar.errors import BrokerRefused


class ArtemisSettingsReader:
    """Asks the live broker; the contract is `broker.TellsSettings`."""

    def __init__(self, management: ArtemisQuestions) -> None:
        self._management = management

    def address_settings(self, addresses: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the broker's merged settings of each address, by its names; unset keys are absent.

        Raises:
            BrokerRefused: no permission to read settings; guessing defaults would decide wrongly.
        """
        management = self._management
        management.demand("{}; or name the rules in policy.source")
        questions = [
            ManagementQuestion("broker", "getAddressSettingsAsJSON", (name,)) for name in addresses
        ]
        found: list[Mapping[str, Any]] = []
        for name, answer in zip(addresses, management.ask_all(questions), strict=True):
            if not answer.is_ok or not answer.value:
                raise BrokerRefused(f"the settings of {name} can't be read: {answer.value}")
            found.append(json.loads(answer.value))
        return found

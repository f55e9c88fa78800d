"""An application that fails: it sends an order to BROKER_URL every two seconds, and works on them.

Half of them succeed at once, others at the second or third attempt, and one of ten never. It knows
nothing of the sidecar: it rejects what it can't do, and takes what comes.
"""

import os
import time
from collections import Counter
from itertools import count

from proton import Link, Message, ProtonException, Timeout
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, BlockingReceiver

QUEUE = "demo.orders"
EVERY_S = 2.0
ATTEMPTS = (1, 2, 1, 3, 1, 2, 1, 3, 1, None)
"""By the last digit of an order, how many it takes."""


class AnycastQueue(LinkOption):
    """Artemis would make a topic else."""

    def apply(self, link: Link) -> None:
        place = link.target if link.is_sender else link.source
        place.capabilities.put_symbol("queue")


class Application:
    """Counts attempts over all its connections."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._numbers = count(1)
        self._attempts: Counter[str] = Counter()

    def run(self) -> None:
        """Work until the broker is away."""
        connection = BlockingConnection(self._url, timeout=10, allow_insecure_mechs=True)
        try:
            sender = connection.create_sender(QUEUE, options=AnycastQueue())
            receiver = connection.create_receiver(QUEUE, options=AnycastQueue())
            for number in self._numbers:
                sender.send(Message(body=f"order {number}", durable=True))
                self._work(receiver, until_s=time.monotonic() + EVERY_S)
        finally:
            connection.close()

    def _work(self, receiver: BlockingReceiver, until_s: float) -> None:
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                order = receiver.receive(left_s).body
            except Timeout:
                return
            self._attempts[order] += 1
            needed = ATTEMPTS[int(order[-1])]
            if needed is None or self._attempts[order] < needed:
                receiver.reject()
                print(f"{order}: failed, attempt {self._attempts[order]}", flush=True)
            else:
                receiver.accept()
                print(f"{order}: done, attempt {self._attempts.pop(order)}", flush=True)


def main() -> None:
    application = Application(os.environ["BROKER_URL"])
    while True:
        try:
            application.run()
        except (OSError, ProtonException) as error:
            print(f"{error}; trying again", flush=True)
            time.sleep(EVERY_S)


main()

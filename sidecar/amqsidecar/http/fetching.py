"""Taking a message out of its final dead-letter queue for an edit, while the server goes on."""

import asyncio
from typing import Final

from amqsidecar.http.access import Caller
from amqsidecar.http.store_queries import StoreQueries
from amqsidecar.operations import fetch

WAIT_S: Final = 25.0
"""How long a request waits for its message: less than common proxies wait for an answer."""

_POLL_S: Final = 0.2


async def fetch_message(queries: StoreQueries, row_id: int, caller: Caller, where: str) -> None:
    """Request a message out of its final queue, and wait until it is in the schedule.

    If the request is abandoned, the message stays in the schedule when it comes.

    Raises:
        ActionRefused: it is gone, or another action has it.
        NotHereYet: it did not come in time; it is still requested.
    """
    actor = caller.actor(where)
    until_s = queries.clock.monotonic_s() + WAIT_S
    await queries.ask(caller, lambda at: fetch.fetch(at.store, row_id, at.now_ms, actor))
    while not await queries.ask(caller, lambda at: fetch.is_here(at.store, row_id)):
        if queries.clock.monotonic_s() > until_s:
            raise await queries.ask(caller, lambda at: fetch.not_here_yet(at.store, row_id))
        await asyncio.sleep(_POLL_S)


async def put_back(queries: StoreQueries, row_id: int, caller: Caller, where: str) -> None:
    """Send a message that was fetched back to its final queue."""
    suffix, actor = queries.tools(caller).final_suffix, caller.actor(where)
    await queries.ask(caller, lambda at: fetch.put_back(at.store, row_id, at.now_ms, actor, suffix))

"""The tools: a table, and each tool's requests to the API."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from amqsidecar.assistant.caller import ApiCaller
from amqsidecar.assistant.inputs import (
    ActInput,
    AssistantAction,
    CaseInput,
    ChangeInput,
    GroupsInput,
    MessageInput,
    MessagesInput,
    OperationInput,
    OperationsInput,
    PreviewInput,
    RulesInput,
    ToolInput,
    schema_of,
)
from amqsidecar.assistant.marked import marked
from amqsidecar.assistant.previews import PreviewedOperation, Previews
from amqsidecar.errors import SidecarError
from amqsidecar.model.operation import CAREFUL, SENDS, Action, OperationPace

BODY_BYTES_MAX: Final = 8_192
"""Maximum bytes of a message's body."""

_MEMBERS: Final = 20
_BY: Final = "assistant: "
"""Prefix of the reason of an assistant's acts."""


class ToolRefused(SidecarError):
    """This can't be done so; the text says why."""


class Tool(NamedTuple):
    """One tool.

    Attributes:
        right: that the caller needs somewhere for the tool to exist; "" = none.
        run: returns the answer; raises SidecarError.
    """

    name: str
    about: str
    input: type[ToolInput]
    run: Callable[[ApiCaller, Any], Awaitable[str]]
    right: str = ""
    is_final: bool = False

    def exists_for(self, caller: ApiCaller) -> bool:
        """Whether it exists for a caller."""
        return not self.right or self.right in caller.session.rights

    def schema(self, caller: ApiCaller) -> dict[str, Any]:
        """Return the schema of its input, with the actions that exist for a caller."""
        schema = schema_of(self.input)
        if self.input is PreviewInput:
            schema["$defs"]["AssistantAction"]["enum"] = sorted(_actions(caller))
        return schema


class AssistantTools:
    """Asks the API for assistants."""

    def __init__(self, previews: Previews) -> None:
        self._previews = previews
        table = [
            Tool("overview", "What dies now, and what waits.", ToolInput, _overview),
            Tool("groups", "Failures by destination and cause.", GroupsInput, _groups),
            Tool("messages", "Messages that wait, the newest first.", MessagesInput, _messages),
            Tool("message", "One message: place, history, content.", MessageInput, _message),
            Tool("rules", "The rules that apply to each destination.", ToolInput, _rules),
            Tool("explain", "The rules' decisions on a dead letter.", CaseInput, _explain),
            Tool("try_rules", "Effect of other rules; changes nothing.", RulesInput, _try_rules),
            Tool("operations", "Operations, the newest first.", OperationsInput, _operations),
            Tool(
                "operation",
                "One operation: its state, outcomes, and some of its messages.",
                OperationInput,
                _operation,
            ),
            Tool(
                "preview",
                "What an action would change; changes nothing, and gives the token for `act`. "
                "Show it to a person first.",
                PreviewInput,
                self._preview,
                "act",
            ),
            Tool(
                "act",
                "Begin exactly what a preview showed. A retry sends a probe first, and stops by "
                "itself when too many come back: then ask `operation`.",
                ActInput,
                self._act,
                "act",
                is_final=True,
            ),
            Tool("pause", "Pause an operation; a person resumes it.", ChangeInput, _pause, "act"),
            Tool("undo", "Put back what a discard removed.", ChangeInput, _undo, "discard"),
        ]
        self.table: Final = {one.name: one for one in table}

    async def _preview(self, caller: ApiCaller, asked: PreviewInput) -> str:
        if asked.action not in _actions(caller):
            raise ToolRefused(f"Invalid enum value {asked.action.value!r} - at `$.action`")
        chosen = {"destination": asked.destination, **asked.query()}
        if asked.limit is not None:
            chosen["limit"] = asked.limit
        action = Action(asked.action.value)
        query = [("action", action.value), *chosen.items()]
        found = await caller.api.read("/preview", query)
        if not found["count"]:
            return marked(found, "Nothing would be changed, so there is no token.")
        request = {
            "action": action.value,
            "filter": chosen,
            "expected": found["count"],
            "since": found["since"],
            "pace": _pace(action, found["count"], asked.window_s),
        }
        operation = PreviewedOperation(request, found["count"])
        token = self._previews.keep(caller.key, operation)
        return marked(found, f"To do this: `act` with token {token} and expected {found['count']}.")

    async def _act(self, caller: ApiCaller, asked: ActInput) -> str:
        taken = self._previews.take(caller.key, asked.token, asked.expected)
        if taken is None:
            raise ToolRefused(
                "no preview of yours has this token and count, or it is used or older than 15 "
                "minutes: nothing was done; call `preview` again"
            )
        request = {**taken.request, "reason": f"{_BY}{asked.reason}"}
        done = await caller.api.post("/operations", request)
        note = f"Operation {done['id']} has begun: ask `operation` for its outcomes."
        if done.get("needs_second"):
            note = f"Operation {done['id']} waits until a second person resumes it."
        return marked(done, note)


def _actions(caller: ApiCaller) -> set[AssistantAction]:
    is_allowed = "discard" in caller.session.rights
    return {one for one in AssistantAction if is_allowed or one is not AssistantAction.DISCARD}


def _pace(action: Action, count: int, window_s: int) -> OperationPace:
    """Return how carefully an action goes: a probe is at most a tenth, so that the rest is safe."""
    if action not in SENDS:
        return OperationPace()
    probe = max(1, min(CAREFUL.probe, count // 10))
    return msgspec.structs.replace(CAREFUL, probe=probe, window_ms=window_s * 1_000)


async def _overview(caller: ApiCaller, _asked: ToolInput) -> str:
    return marked(await caller.api.read("/overview"))


async def _groups(caller: ApiCaller, asked: GroupsInput) -> str:
    query = [("destination", asked.destination), ("limit", asked.limit)]
    return marked(await caller.api.read("/groups", query))


async def _messages(caller: ApiCaller, asked: MessagesInput) -> str:
    query = [("destination", asked.destination), ("limit", asked.limit), *asked.query().items()]
    return marked(await caller.api.read("/messages", query))


async def _message(caller: ApiCaller, asked: MessageInput) -> str:
    path = f"/messages/{quote(asked.message, safe='')}"
    return marked(await caller.api.read(path, [("max_bytes", BODY_BYTES_MAX)]))


async def _rules(caller: ApiCaller, _asked: ToolInput) -> str:
    return marked(await caller.api.read("/policies"))


async def _explain(caller: ApiCaller, asked: CaseInput) -> str:
    fields = msgspec.to_builtins(asked)
    for name in ("persistent", "expired"):
        fields[name] = str(fields[name]).lower()
    return marked(await caller.api.read("/policies/explain", [*fields.items()]))


async def _try_rules(caller: ApiCaller, asked: RulesInput) -> str:
    if asked.message is None:
        return marked(await caller.api.post("/policies/effect", {"rules": asked.rules}))
    asked_of = {"rules": asked.rules, "message": asked.message}
    return marked(await caller.api.post("/policies/explain", asked_of))


async def _operations(caller: ApiCaller, asked: OperationsInput) -> str:
    return marked(await caller.api.read("/operations", [("limit", asked.limit)]))


async def _operation(caller: ApiCaller, asked: OperationInput) -> str:
    path = f"/operations/{asked.number}"
    found = await caller.api.read(path)
    query = [("outcome", asked.outcome), ("limit", _MEMBERS)]
    found["members"] = await caller.api.read(f"{path}/members", query)
    return marked(found)


async def _change(caller: ApiCaller, asked: ChangeInput, word: str) -> str:
    body = {"reason": f"{_BY}{asked.reason}"}
    return marked(await caller.api.post(f"/operations/{asked.number}/{word}", body))


_pause, _undo = partial(_change, word="pause"), partial(_change, word="undo")

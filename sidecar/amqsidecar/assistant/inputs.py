"""The inputs of the tools, and their schemas."""

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from amqsidecar.model.operation import OutcomeKind
from amqsidecar.model.schedule import RowState, WholeNumber


class ToolInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The input of a tool."""


DestinationName = Annotated[str, Meta(description="Where they died, such as `queue://orders`.")]
OperationNumber = Annotated[WholeNumber, Meta(description="The number of the operation.")]
GivenReason = Annotated[
    str, Meta(description="Why, for the record.", min_length=1, max_length=500, pattern=r"\S")
]
Limit = Annotated[int, Meta(description="Only this many, the oldest first.", ge=1, le=500)]
AgeText = Annotated[str, Meta(description="Such as `15m`.", pattern="^[0-9]{1,9}[smhd]$")]


class GroupsInput(ToolInput, frozen=True, kw_only=True):
    """Which groups."""

    destination: DestinationName | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class Conditions(ToolInput, frozen=True, kw_only=True):
    """Which messages; all that is given must hold."""

    group: Annotated[WholeNumber | None, Meta(description="The `number` of a group.")] = None
    state: RowState | None = None
    older_than: Annotated[AgeText | None, Meta(description="Taken longer ago, such as `15m`.")] = (
        None
    )
    newer_than: Annotated[AgeText | None, Meta(description="Taken since, such as `15m`.")] = None

    def query(self) -> dict[str, object]:
        """Return the filter of the API."""
        found: dict[str, object] = {
            "state": self.state,
            "older_than": self.older_than,
            "newer_than": self.newer_than,
            "cause_group": None if self.group is None else f"#{self.group}",
        }
        return {name: value for name, value in found.items() if value is not None}


class MessagesInput(Conditions, frozen=True, kw_only=True):
    """Which messages, and how many of them."""

    destination: DestinationName | None = None
    limit: Annotated[int, Meta(ge=1, le=50)] = 10


class MessageInput(ToolInput, frozen=True, kw_only=True):
    """One message."""

    message: Annotated[
        str, Meta(description="Its row number or redelivery id.", min_length=1, max_length=200)
    ]


class CaseInput(ToolInput, frozen=True, kw_only=True):
    """A dead letter to ask the rules about."""

    destination: DestinationName
    redelivery_count: Annotated[
        int, Meta(description="Redeliveries so far.", ge=0, le=2**31 - 1)
    ] = 0
    persistent: bool = True
    expired: bool = False


class RulesInput(ToolInput, frozen=True, kw_only=True):
    """Rules to try."""

    rules: Annotated[
        str, Meta(description="A whole policy in YAML, as `rules` shows it.", max_length=200_000)
    ]
    message: Annotated[
        str | None, Meta(description="Only for this message; none = for the history.")
    ] = None


class OperationsInput(ToolInput, frozen=True, kw_only=True):
    """How many operations."""

    limit: Annotated[int, Meta(ge=1, le=50)] = 10


class OperationInput(ToolInput, frozen=True, kw_only=True):
    """One operation, and which of its messages."""

    number: OperationNumber
    outcome: OutcomeKind | None = None


class AssistantAction(StrEnum):
    """The actions of assistants. Why no redirect: a text could name the target of messages."""

    RETRY = "retry"
    HOLD = "hold"
    RELEASE = "release"
    TAKE_BACK = "take-back"
    GIVE_UP = "give-up"
    DISCARD = "discard"


class PreviewInput(Conditions, frozen=True, kw_only=True):
    """An action, and the messages that it changes."""

    action: Annotated[
        AssistantAction,
        Meta(
            description="retry: redeliver now, a probe first. hold: keep until released. "
            "take-back: out of the final queue, into the schedule. give-up: into the final queue "
            "(`cancel` in answers). discard: gone after an hour."
        ),
    ]
    destination: DestinationName
    limit: Limit | None = None
    window_s: Annotated[
        int,
        Meta(
            description="retry: seconds within which what fails comes back; nothing else is sent "
            "until the window of the probe is over.",
            ge=10,
            le=3_600,
        ),
    ] = 60


class ActInput(ToolInput, frozen=True, kw_only=True):
    """The preview that is acted on."""

    token: Annotated[str, Meta(description="As `preview` gave it.", max_length=100)]
    expected: Annotated[WholeNumber, Meta(description="The `count` that the preview showed.")]
    reason: GivenReason


class ChangeInput(ToolInput, frozen=True, kw_only=True):
    """An operation, and why."""

    number: OperationNumber
    reason: GivenReason


def schema_of(kind: type[ToolInput]) -> dict[str, Any]:
    """Return the JSON schema, an object that stands alone."""
    _, parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    schema = parts.pop(kind.__name__)
    # Why: the description of the tool says it.
    del schema["title"], schema["description"]
    return {**schema, "$defs": parts} if parts else schema

"""Where the execution of a plan stands, in a file that is replaced as a whole."""

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec

from amqsidecar.errors import ConfigError, Problem, StoreUnavailable
from amqsidecar.model.redrive import PlannedPlace


class RedriveProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an execution has come.

    Attributes:
        plan_id: of the plan that is executed.
        place: of the messages that it redelivers.
        next_number: all rows before this one are done with.
        taken: how many of them were taken.
        left: how many of them were left where they are, by reason.
    """

    plan_id: str
    place: PlannedPlace
    next_number: int = 0
    taken: int = 0
    left: dict[str, int] = {}


class ProgressFile:
    """The progress of one execution, in memory and on disk."""

    def __init__(self, path: Path, plan_id: str, place: PlannedPlace) -> None:
        """Read it, or begin.

        Raises:
            ConfigError: the folder belongs to another execution.
            StoreUnavailable: the file can't be read.
        """
        self._path = path
        self.progress = RedriveProgress(plan_id=plan_id, place=place)
        try:
            found = msgspec.json.decode(path.read_bytes(), type=RedriveProgress)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as error:
            raise StoreUnavailable(f"{path} can't be read: {error}") from error
        if (found.plan_id, found.place) != (plan_id, place):
            what = (
                f"holds the execution of plan {found.plan_id} from {found.place}, and this is "
                f"plan {plan_id} from {place}: give each a folder of its own"
            )
            raise ConfigError([Problem("--state", what)])
        self.progress = found

    def add(self, next_number: int, taken: int, left: Mapping[str, int]) -> None:
        """Take note that a batch is done; durable when it returns.

        If the process dies inside, the file has the old or the new content.

        Raises:
            StoreUnavailable: the file can't be written.
        """
        before = self.progress
        self.progress = msgspec.structs.replace(
            before,
            next_number=next_number,
            taken=before.taken + taken,
            left=dict(Counter(before.left) + Counter(left)),
        )
        new = self._path.with_name(self._path.name + ".new")
        try:
            with new.open("wb") as file:
                file.write(msgspec.json.encode(self.progress))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError as error:
            self.progress = before
            raise StoreUnavailable(f"{self._path} can't be written: {error.strerror}") from error

"""What stores that act on rows chunk by chunk share."""

from abc import ABC, abstractmethod

from amqsidecar.model import acts
from amqsidecar.model.schedule import RowFilter
from amqsidecar.store import Progress, unwatched


class ActingStore(ABC):
    """Operators' actions, each in small transactions of the store that inherits it."""

    @abstractmethod
    def _act(self, row_filter: RowFilter, action: acts.Act, progress: Progress) -> int:
        """Change the rows of a filter chunk by chunk; returns how many were changed."""

    def retry(
        self, row_filter: RowFilter, now_ms: int, actor: str, progress: Progress = unwatched
    ) -> int:
        """Make rows due now, also held and parked ones; returns how many. In-flight rows are left.

        Promise: done in small transactions, each durable with its events; if the process dies
        between two, calling it again does the rest.
        """
        return self._act(row_filter, acts.retry(now_ms, actor), progress)

    def cancel(
        self,
        row_filter: RowFilter,
        now_ms: int,
        actor: str,
        suffix: str,
        progress: Progress = unwatched,
    ) -> int:
        """Send rows to their final dead-letter queue now; returns how many.

        Args:
            row_filter: which rows; in-flight rows and final ones are left as they are.
            now_ms: the new due time.
            actor: who asked.
            suffix: the final dead-letter queue is the source plus this.
            progress: told after each step.

        Promise: as `retry`.
        """
        return self._act(row_filter, acts.cancel(now_ms, actor, suffix), progress)

    def hold(
        self, row_filter: RowFilter, now_ms: int, actor: str, progress: Progress = unwatched
    ) -> int:
        """Keep waiting rows until a person releases them; returns how many.

        Promise: as `retry`.
        """
        return self._act(row_filter, acts.hold(now_ms, actor), progress)

    def release(
        self, row_filter: RowFilter, now_ms: int, actor: str, progress: Progress = unwatched
    ) -> int:
        """Let held rows go at their due time, at once if it has passed; returns how many.

        Promise: as `retry`.
        """
        return self._act(row_filter, acts.release(now_ms, actor), progress)

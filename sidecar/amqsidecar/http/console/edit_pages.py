"""The page that edits a message: its content, the preview, then the re-send."""

import re
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import Final

import msgspec
from starlette.responses import RedirectResponse, Response

from amqsidecar.errors import EditRefused, NotHereYet
from amqsidecar.http.console.console import PageMissing, Visit
from amqsidecar.http.fetching import fetch_message
from amqsidecar.http.store_queries import QueryContext, StoreQueries
from amqsidecar.model.message import (
    MessageEdit,
    MessageView,
    PropertyEdit,
    TypedValue,
    ValueType,
)
from amqsidecar.model.operation import Operation
from amqsidecar.model.schedule import RowView
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.browse import row_named
from amqsidecar.operations.message import (
    EDIT_BYTES_MAX,
    EditMessage,
    MessagePage,
    as_typed,
    edit_and_retry,
    is_typable,
    message_page,
    try_edit,
)
from amqsidecar.telemetry import audit

NEW_PROPERTIES: Final = 3
"""Empty lines for new properties."""

PROPERTIES_MAX: Final = 150
"""Maximum properties edited on a page: the limit of a form."""

GONE: Final = "This message is no longer waiting, so it can't be edited."
LIES: Final = (
    "This message is in its final dead-letter queue. Open its page and choose Take back and edit."
)


class _Changed(ActionRefused):
    """Another person edited the message since it was shown."""


async def _show(
    visit: Visit,
    page: MessagePage,
    form: Mapping[str, str] | None = None,
    after: MessageView | None = None,
    problem: str = "",
) -> Response:
    assert page.view is not None  # noqa: S101 - `_read_page` made sure
    return await visit.page(
        "edit.html",
        problem,
        page=page,
        view=page.view,
        properties=_editable(page.view),
        new_properties=range(NEW_PROPERTIES),
        is_typable=is_typable(page.view.body.text),
        form=form,
        seen=_mark(page.view),
        after=after,
        problem=problem or page.edit_lock or "",
    )


async def show_editor(visit: Visit) -> Response:
    """Show the form that edits a message."""
    return await _show(visit, await _read_page(visit))


async def send_edit(visit: Visit) -> Response:
    """Preview an edit, or re-send the edited message."""
    form = await visit.form()
    if form.get("step") == "fetch":
        return await _fetch(visit)
    page = await _read_page(visit)
    assert page.view is not None  # noqa: S101 - `_read_page` made sure
    assert page.row is not None  # noqa: S101 - as above
    row_id, queries = page.row.id, visit.queries
    change_it = _edit_what_was_seen(queries, form.get("seen", ""))

    def try_it(at: QueryContext) -> MessageView:
        return try_edit(at.store, row_id, change, change_it, partial(queries.view, sees=True))

    def send(at: QueryContext) -> Operation:
        return edit_and_retry(
            at.store,
            row_id,
            change,
            change_it,
            now_ms=at.now_ms,
            actor=visit.actor,
            reason=form.get("reason", "").strip(),
        )

    try:
        change = read_edit(form, page.view)
        if form.get("step") != "send":
            return await _show(visit, page, form, await visit.ask(try_it))
        operation = await visit.ask(send)
    except _Changed as error:
        return await _show(visit, await _read_page(visit), problem=str(error))
    except (EditRefused, ActionRefused) as error:
        return await _show(visit, page, form, problem=str(error))
    return RedirectResponse(f"/operations/{operation.id}", 303)


async def _fetch(visit: Visit) -> Response:
    reference = visit.params.get("id", "")

    def find(at: QueryContext) -> RowView | None:
        visit.queries.check_reads(at, visit.caller, reference)
        return row_named(at.store, reference)

    row = await visit.ask(find)
    if row is None:
        raise PageMissing(GONE)
    try:
        if row.is_in_final_queue:
            await fetch_message(visit.queries, row.id, visit.caller, "console")
    except NotHereYet as error:
        return visit.console.problem(visit.request, 503, "It has not arrived yet", str(error))
    except ActionRefused as error:
        return visit.console.problem(visit.request, 409, "It can't be edited now", str(error))
    return RedirectResponse(f"/messages/edit?id={row.id}", 303)


async def _read_page(visit: Visit) -> MessagePage:
    queries, reference = visit.queries, visit.params.get("id", "")

    def read(at: QueryContext) -> MessagePage | None:
        queries.check_reads(at, visit.caller, reference)
        return message_page(
            at.store,
            reference,
            at.state.uid,
            at.now_ms,
            partial(queries.view, sees=True),
            max_bytes=EDIT_BYTES_MAX,
        )

    page = await visit.ask(read)
    if page is None or page.view is None or page.row is None:
        is_lying = page is not None and page.row is not None and page.row.is_in_final_queue
        raise PageMissing(LIES if is_lying else GONE)
    audit.write("read-message", audit.ActKind.READ, message=reference)
    return page


def _edit_what_was_seen(queries: StoreQueries, mark: str) -> EditMessage:
    """Return the editor of a message that has not changed since the form was made, by its mark."""

    def edit(encoding: str, message: bytes, change: MessageEdit) -> bytes:
        if _mark(queries.view(encoding, message, EDIT_BYTES_MAX, sees=True)) != mark:
            raise _Changed(
                "The message has changed since you opened this page: another person edited it. "
                "This is its current content."
            )
        return queries.edit(encoding, message, change, sees=True)

    return edit


def _mark(view: MessageView) -> str:
    """Return a fingerprint of the shown message, for a form."""
    return sha256(msgspec.json.encode(view)).hexdigest()


def _editable(view: MessageView) -> list[TypedValue]:
    """Return the properties that a form gives back as they were shown."""
    found = [
        one
        for one in view.properties
        if one.locked is None and not one.is_cut and one.depth == 0
        if one.type in view.property_types and is_typable(one.value)
    ]
    return found[:PROPERTIES_MAX]


def read_edit(form: Mapping[str, str], view: MessageView) -> MessageEdit:
    """Return the edit of a form; it does not name unchanged parts.

    Raises:
        EditRefused: a type is none.
    """
    properties: list[PropertyEdit] = []
    removed: list[str] = []
    for at, now in enumerate(_editable(view)):
        value = form.get(f"value-{at}")
        if form.get(f"remove-{at}") == "yes":
            removed.append(now.name)
        elif value is not None:
            kind = _type(form.get(f"type-{at}", now.type))
            is_same = _one_kind_of_end(value) == _one_kind_of_end(now.value)
            value = now.value if is_same else as_typed(value, now.value)
            if (value, kind) != (now.value, now.type):
                properties.append(PropertyEdit(name=now.name, value=value, type=kind))
    for at in range(NEW_PROPERTIES):
        name = form.get(f"new-name-{at}", "").strip()
        if name:
            kind = _type(form.get(f"new-type-{at}", ValueType.STRING))
            value = form.get(f"new-value-{at}", "").replace("\r\n", "\n")
            properties.append(PropertyEdit(name=name, value=value, type=kind))
    return MessageEdit(
        text=_text(form, view), set_properties=tuple(properties), remove_properties=tuple(removed)
    )


def _text(form: Mapping[str, str], view: MessageView) -> str | None:
    """Return the new text of a body; None = it stays as it is."""
    typed, now = form.get("text"), view.body.text
    if typed is None or not is_typable(now) or _one_kind_of_end(typed) == _one_kind_of_end(now):
        return None
    return as_typed(typed, now)


def _one_kind_of_end(text: str) -> str:
    """Return a text with the line ends that a browser makes alike made alike."""
    return re.sub(r"\r\n?", "\n", text)


def _type(text: str) -> ValueType:
    try:
        return ValueType(text)
    except ValueError as error:
        raise EditRefused(f"{text!r} is not a property type") from error

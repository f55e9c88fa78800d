"""The OpenAPI 3.1 document, printed out of the table of endpoints."""

import re
from collections.abc import Sequence
from types import NoneType
from typing import Any, Final

import msgspec

from amqsidecar import __version__
from amqsidecar.http.access import CSRF_HEADER, SAFE_METHODS, TRIALS
from amqsidecar.http.answers import JSON, PROBLEM_TYPE, ProblemAnswer
from amqsidecar.http.api.filter import Filter
from amqsidecar.http.api.table import API_V1, ApiEndpoint, is_list
from amqsidecar.http.authentication.session import COOKIE

_REF: Final = "#/components/schemas/{name}"
_PART: Final = re.compile(r"\{(\w+)\}")

_PROBLEMS: Final = {
    401: "The caller is not authenticated.",
    404: "Not found, or this sidecar has no schedule of its own.",
    503: "The store is not reachable, or there are too many requests.",
}
_PROBLEMS_OF_QUERY: Final = {400: "The query is invalid."}
_PROBLEMS_OF_FILTER: Final = {403: "The caller may not see what this filter looks for."}
_PROBLEMS_OF_CHANGE: Final = {
    400: "The request is invalid.",
    403: "The caller is only a viewer, or the CSRF token is missing.",
    413: "The body is too large.",
}
_PROBLEMS_OF_TRIAL: Final = {**_PROBLEMS_OF_CHANGE, 403: "The CSRF token is missing."}


def document(endpoints: Sequence[ApiEndpoint]) -> dict[str, Any]:
    """Return the document."""
    kinds: list[Any] = [ProblemAnswer]
    for endpoint in endpoints:
        kinds += [kind for kind in (endpoint.answer, endpoint.query, endpoint.body) if kind]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    found = dict(zip(map(_key, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        item = paths.setdefault(f"{API_V1}{endpoint.path}", {})
        item[endpoint.method.lower()] = _operation(endpoint, found, components)
    for kind in {endpoint.query for endpoint in endpoints if endpoint.query}:
        # What stands in queries is said parameter by parameter.
        components.pop(kind.__name__, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "amqsidecar",
            "version": __version__,
            "description": (
                "Waiting dead letters and actions on them. Times are milliseconds since the "
                f"epoch. A change needs a bearer token, or the `{CSRF_HEADER}` that "
                f"`{API_V1}/session` returns."
            ),
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {"session": []}, {}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": COOKIE,
                    "description": f"By TLS `__Host-{COOKIE}`.",
                },
            },
        },
    }


def _key(kind: Any) -> str:
    return repr(kind)


def _operation(
    endpoint: ApiEndpoint, schemas: dict[str, Any], components: dict[str, Any]
) -> dict[str, Any]:
    is_change = endpoint.method not in SAFE_METHODS
    is_trial = f"{API_V1}{endpoint.path}" in TRIALS
    of_change = _PROBLEMS_OF_TRIAL if is_trial else _PROBLEMS_OF_CHANGE
    content = {} if endpoint.answer is None else {"schema": schemas[_key(endpoint.answer)]}
    problems = {
        **_PROBLEMS,
        **(_PROBLEMS_OF_QUERY if endpoint.query else {}),
        **(_PROBLEMS_OF_FILTER if issubclass(endpoint.query or NoneType, Filter) else {}),
        **(of_change if is_change else {}),
        **endpoint.problems,
    }
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in _PART.findall(endpoint.path)
        ]
        + _parameters(endpoint, components)
        + ([_CSRF] if is_change else []),
        "responses": {
            str(endpoint.status): {
                "description": "Done." if is_change else "Found.",
                "content": {endpoint.media_type: content},
            },
            **{
                str(status): {
                    "description": what,
                    "content": {PROBLEM_TYPE: {"schema": schemas[_key(ProblemAnswer)]}},
                }
                for status, what in sorted(problems.items())
            },
        },
    }
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": not endpoint.body_may_lack,
            "content": {JSON: {"schema": schemas[_key(endpoint.body)]}},
        }
    return operation


_CSRF: Final = {
    "name": CSRF_HEADER,
    "in": "header",
    "description": f"As `{API_V1}/session` returns it; not needed with a bearer token.",
    "schema": {"type": "string"},
}


def _parameters(endpoint: ApiEndpoint, components: dict[str, Any]) -> list[dict[str, Any]]:
    if endpoint.query is None:
        return []
    schema = components[endpoint.query.__name__]
    found = []
    for field in msgspec.structs.fields(endpoint.query):
        parameter: dict[str, Any] = {
            "name": field.encode_name,
            "in": "query",
            "required": field.required,
            "schema": _given(schema["properties"][field.encode_name]),
        }
        if is_list(field.type):
            parameter["style"], parameter["explode"] = "form", True
        found.append(parameter)
    return found


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a query parameter; an absent one means null."""
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    if len(options) != 1:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**options[0], **rest}

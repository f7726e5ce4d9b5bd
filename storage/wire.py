"""Strict JSON ↔ values at every boundary. Lives here: the converter, errors with the path of the bad field. Not here: any socket."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from cattrs import Converter, transform_error
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError, IterableValidationError

from .model.errors import InvalidField, UsageError

T = TypeVar("T")
JSON_DEPTH = 64


class BadJson(UsageError):
    """The text is not JSON, or not an object where one is needed."""

    code = "bad_json"


def _exact(value: object, kind: type[Any]) -> Any:
    """No coercion: `"1"` is not a number and `1` is not a string."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"must be a {_NAMES[kind]}")
    return value


_NAMES: dict[type[Any], str] = {str: "string", int: "whole number", float: "number", bool: "boolean"}

converter = Converter(forbid_extra_keys=True)
for _kind in _NAMES:
    converter.register_structure_hook(_kind, _exact)


def parse_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object in `text`. Raises `BadJson`."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise BadJson("is nested too deeply") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise BadJson(f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadJson("must be a JSON object")
    return cast("dict[str, Any]", value)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def structure(value: Any, kind: type[T], path: str = "$") -> T:
    """Build `kind` from JSON values; unknown fields and wrong types raise `InvalidField` with the path of the first bad field."""
    try:
        return converter.structure(value, kind)
    except UsageError:
        raise
    except (ClassValidationError, IterableValidationError, ForbiddenExtraKeysError) as error:
        where, reason = _first_fault(error, path)
        raise InvalidField(reason, path=where) from None
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidField(str(error) or "is wrong", path=path) from None


def _first_fault(error: BaseException, path: str) -> tuple[str, str]:
    inner = _deepest(error)
    if isinstance(inner, InvalidField):
        return inner.path or path, inner.message
    line = transform_error(error, path=path, format_exception=_say)[0]
    reason, _, where = line.rpartition(" @ ")
    if isinstance(inner, ForbiddenExtraKeysError):
        fields = sorted(inner.extra_fields)
        return f"{where}.{fields[0]}".removeprefix("$."), "is not a known field"
    return where.removeprefix("$."), reason


def _deepest(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _say(error: BaseException, _: type[Any] | None) -> str:
    if isinstance(error, KeyError):
        return "is required"
    return str(error) or "is wrong"


def rfc3339(at: float) -> str:
    """Store time as RFC 3339 UTC with milliseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

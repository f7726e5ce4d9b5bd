"""Strict JSON ↔ values at every boundary. Lives here: the converter, errors with the path of the bad field. Not here: any socket."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

import attrs
from cattrs import Converter, transform_error
from cattrs.cols import (
    homogenous_tuple_structure_factory,
    list_structure_factory,
    mapping_structure_factory,  # pyright: ignore[reportUnknownVariableType]
)
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError, IterableValidationError
from cattrs.gen import make_dict_structure_fn

from .model.errors import InvalidField, UsageError

T = TypeVar("T")
JSON_DEPTH = 64
"""Levels of objects and arrays: what is nested deeper can't be written again without running out of stack."""


class BadJson(UsageError):
    """The text is not JSON, or not an object where one is needed."""

    code = "bad_json"


Hook = Callable[[Any, Any], Any]
_NAMES: dict[type[Any], str] = {str: "string", int: "whole number", float: "number", bool: "boolean"}


def _exact(value: object, kind: type[Any]) -> Any:
    """No coercion: `"1"` is not a number and `1` is not a string."""
    if issubclass(kind, Enum):  # cattrs gives those of strings to the hook of their base
        return _one_of([str(member.value) for member in kind], kind)(value, kind)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"must be a {_NAMES[kind]}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be a finite number")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            # JSON can spell one, and no database and no UTF-8 stream can hold it: an id that has one would end in a crash.
            raise ValueError("must not contain a lone surrogate") from None
    return value


def _one_of(choices: Sequence[str], of: Callable[[str], Any]) -> Hook:
    def hook(value: Any, _: Any) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return of(value)

    return hook


def _only(kind: type[Any], name: str, build: Hook) -> Hook:
    """`build` for values of `kind` alone: cattrs takes whatever it can walk over, a string for a list of its letters."""

    def hook(value: Any, wanted: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"must be {name}")
        return build(value, wanted)

    return hook


def _object_hook(kind: Any) -> Hook:
    return _only(dict, "an object", make_dict_structure_fn(kind, converter))


def _container_hook(kind: Any) -> Hook:
    origin = get_origin(kind)
    if origin is Literal:
        return _one_of(get_args(kind), str)
    if origin is dict:
        return _only(dict, "an object", mapping_structure_factory(kind, converter))
    build = homogenous_tuple_structure_factory if origin is tuple else list_structure_factory
    return _only(list, "a list", build(kind, converter))


converter = Converter(forbid_extra_keys=True)
for _kind in _NAMES:
    converter.register_structure_hook(_kind, _exact)
converter.register_structure_hook_factory(attrs.has, _object_hook)
converter.register_structure_hook_factory(
    lambda kind: get_origin(kind) in {list, tuple, dict, Literal}, _container_hook
)


def parse_object(text: str | bytes) -> dict[str, Any]:
    """The JSON object in `text` (UTF-8, at most `JSON_DEPTH` levels). Raises `BadJson`, also for a name that is there twice."""
    try:
        # Left alone, bytes are also taken for UTF-16 and UTF-32.
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except RecursionError:
        raise BadJson("is nested too deeply") from None
    except ValueError as error:
        raise BadJson(f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadJson("must be a JSON object")
    # Few brackets can't nest deeply, and that is nearly every text: only the others are walked.
    if text.count("[") + text.count("{") > JSON_DEPTH and _depth(value) > JSON_DEPTH:
        raise BadJson("is nested too deeply")
    return cast("dict[str, Any]", value)


def _depth(value: Any) -> int:
    depth = 0
    level: list[Any] = [value]
    while level := [item for item in level if isinstance(item, (dict, list))]:  # pyright: ignore[reportUnknownVariableType]
        depth += 1
        level = [child for item in level for child in _children(item)]
    return depth


def _children(value: Any) -> Iterable[Any]:
    return cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Readers differ in which of two equal names they take, so what was checked might not be what is used.
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def structure(value: Any, kind: type[T], path: str = "$") -> T:
    """Build `kind` from JSON values; unknown fields and wrong types raise `InvalidField` with the path of the first bad field."""
    try:
        return converter.structure(value, kind)
    except UsageError:
        raise
    except (ClassValidationError, IterableValidationError, ForbiddenExtraKeysError) as error:
        where, reason = _first_fault(error, path)
        raise InvalidField(reason, path=where) from None
    except (TypeError, ValueError, OverflowError) as error:
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

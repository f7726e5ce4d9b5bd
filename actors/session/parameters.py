"""The parameters of an agent's own tool: from the signature of its function to a JSON schema, and from a model's arguments to values.

The signature is the one truth: the schema that a model is shown and the check that its arguments pass are both made from it.
Not here: the agent tools, whose schemas are frozen (`tools`).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, cast, get_args, get_origin, get_type_hints

import attrs

from ...storage.model.errors import InvalidField
from ...storage.wire import structure
from ..models.model import ToolSpec
from .turn import Tool

DESCRIPTION_CHARS: Final = 1_000
_PLAIN: Final[dict[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    Any: {},
}
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@attrs.frozen
class ModelTool:
    """A tool that a model may call: as it is shown, and its strict check."""

    tool: Tool
    spec: ToolSpec
    _kind: type[Any]

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The given arguments, checked. Raises `InvalidField` naming what is wrong."""
        value = structure(arguments, self._kind, self.tool.name)
        return {name: getattr(value, name) for name in arguments}


def model_tool(tool: Tool) -> ModelTool:
    """Read a tool's signature. Parameters are named and typed: text, numbers, booleans, `Literal` of texts, lists and dicts of these,
    `| None`; `Annotated[T, "what it is"]` describes one. Raises `InvalidField` naming the first that a model can't be asked for.
    """
    place = f"tools.{tool.name}"
    try:
        types = get_type_hints(tool.fn, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidField(f"has a type that can't be found: {error}", path=place) from None
    properties: dict[str, Any] = {}
    required: list[str] = []
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(tool.fn).parameters.items():
        if tool.wants_call and name == "call":
            continue
        if parameter.kind not in _NAMED or name.startswith("_") or name not in types:
            raise InvalidField("must be a parameter with a name and a type", path=f"{place}.{name}")
        properties[name] = _schema(types[name], f"{place}.{name}")
        if parameter.default is parameter.empty:
            required.append(name)
        # Only what was given is handed on, so the function's own defaults stand.
        default = attrs.NOTHING if name in required else None
        fields[name] = attrs.field(type=_bare(types[name]), default=default, kw_only=True)
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    about = (inspect.getdoc(tool.fn) or "")[:DESCRIPTION_CHARS]
    return ModelTool(tool, ToolSpec(tool.name, about, schema), attrs.make_class("Arguments", fields, frozen=True))


def _schema(kind: Any, path: str) -> dict[str, Any]:
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        words = [part for part in parts[1:] if isinstance(part, str)]
        return {**_schema(parts[0], path), **({"description": words[0]} if words else {})}
    if origin is Literal and all(isinstance(part, str) for part in parts):
        return {"type": "string", "enum": list(parts)}
    if origin is list:
        return {"type": "array", "items": _schema(parts[0], path)}
    if origin is dict and parts[0] is str:
        return {"type": "object", "additionalProperties": _schema(parts[1], path)}
    if origin in (Union, UnionType) and len(parts) == 2 and NoneType in parts:
        return _schema(next(part for part in parts if part is not NoneType), path)
    raise InvalidField(f"has a type that a model can't be asked for: {kind}", path=path)


def _bare(kind: Any) -> Any:
    """The type without what only describes it."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _bare(parts[0])
    if origin in (list, dict, Union, UnionType):
        bare = tuple(_bare(part) for part in parts)
        return cast("Any", Union if origin is UnionType else origin)[bare]
    return kind

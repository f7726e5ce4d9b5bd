"""The tools that a chat agent offers to its model, and running one call of it: whatever the model asks for, the result is text.

A call that is no call (unknown name, malformed arguments) is on record like any other, so that every call of a round has its result.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from ....storage.model.errors import CallboardError, InvalidField, UsageError
from ....storage.model.turns import ToolClass
from ....storage.wire import parse_object
from ...models.model import ModelCall, ToolSpec
from ..parameters import model_tool
from ..steps import PASSING, Interrupted
from ..tools import SCHEMAS, check_call
from ..turn import Tool, Turn

EVERYBODYS: Final = "connect_user"
RESULT_CHARS: Final = 40_000
"""What a model is shown of one result."""
_SHOWN_CHARS: Final = 2_000
"""What is recorded of arguments that can't be read."""


class Toolbox:
    """The agent tools (connect_user alone, if `five` is False) and an agent's own.

    Handing the user over is every agent's to do, so that tool is in each model request (HND-1). Raises `InvalidField` naming a tool that
    can't be offered.
    """

    def __init__(self, own: Sequence[Tool], *, five: bool = True) -> None:
        self._ours = {name: schema for name, schema in SCHEMAS.items() if five or name == EVERYBODYS}
        self._own = {tool.name: model_tool(tool) for tool in own}
        for name in self._own:
            if name in self._ours:
                raise InvalidField("is the name of an agent tool", path=f"tools.{name}")
        if len(self._own) != len(own):
            raise InvalidField("has a name twice", path="tools")
        self.specs = (
            *(ToolSpec(name, schema["description"], schema["parameters"]) for name, schema in self._ours.items()),
            *(tool.spec for tool in self._own.values()),
        )

    async def run(self, turn: Turn, index: int, call: ModelCall) -> str:
        """Carry out call `index` of the turn's last round. What refuses it is its result; a lost lease or a store that is down is raised."""
        with turn.steps.asked_by_model(index):
            try:
                return _shown(await self._result(turn, call))
            except PASSING:
                raise
            except CallboardError as refusal:
                error = {"code": refusal.code, "message": refusal.message, "path": refusal.path}
                return _shown({"error": {name: value for name, value in error.items() if value is not None}})

    async def _result(self, turn: Turn, call: ModelCall) -> Any:
        try:
            arguments = self._checked(call)
        except InvalidField as error:
            fault = error

            async def refuse(_: str) -> NoReturn:
                raise fault

            asked = {"arguments": call.arguments[:_SHOWN_CHARS]}
            return await turn.steps.call(call.name, ToolClass.PURE, asked, refuse)
        if call.name in self._own:
            return await turn.step(self._own[call.name].tool, **arguments)
        return await turn.tools.call(call.name, arguments)

    def _checked(self, call: ModelCall) -> dict[str, Any]:
        """The call's arguments. Raises `InvalidField` naming what is wrong."""
        if call.name not in self._own and call.name not in self._ours:
            known = ", ".join((*self._ours, *self._own)) or "none"
            raise InvalidField(f"there is no tool {call.name!r}; there are: {known}", path="tool")
        try:
            # A tool without parameters is often called with no text at all.
            arguments = parse_object(call.arguments) if call.arguments.strip() not in {"", "null"} else {}
        except UsageError as error:
            raise InvalidField(error.message, path=f"{call.name}.arguments") from None
        if call.name in self._own:
            return self._own[call.name].values(arguments)
        check_call(call.name, arguments)
        return arguments


def _shown(result: Any) -> str:
    plain = isinstance(result, (str, Interrupted))
    text = str(result) if plain else json.dumps(result, ensure_ascii=False)
    cut = len(text) - RESULT_CHARS
    return text if cut <= 0 else f"{text[:RESULT_CHARS]}\n[{cut} characters cut]"

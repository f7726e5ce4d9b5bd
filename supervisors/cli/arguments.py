"""Kinds of arguments that several commands take. Not here: the commands."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

Flag = Annotated[bool | None, Parameter(negative="")]
"""Given or not: a `--no-…` beside each would only lengthen the help."""

Limit = Annotated[int, Parameter(validator=Number(gte=1, lte=200))]
Number0 = Annotated[int, Parameter(validator=Number(gte=0))]


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}

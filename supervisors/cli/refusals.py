"""What to tell a person about an exception. Not here: telling it (`output`), exit codes (the package itself)."""

from __future__ import annotations

from typing import cast

from ...storage.model.errors import CallboardError


def refusal_in(error: BaseException) -> CallboardError | None:
    """The refusal nearest to the root of `error`, through groups and chains of causes; None if there is none: then it is a defect."""
    found: CallboardError | None = None
    following: BaseException | None = error
    while following is not None:
        if isinstance(following, CallboardError):
            found = following
        if isinstance(following, BaseExceptionGroup):
            following = cast("BaseExceptionGroup[BaseException]", following).exceptions[0]
        else:
            following = following.__cause__
    return found

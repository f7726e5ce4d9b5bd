"""The command `callboard`. Lives here: from arguments to an exit code. Not here: the commands (`app` has their signatures).

Invariant: what a person got wrong, and what the system refuses, is exactly one line on stderr, and so is a defect of ours; no traceback is
ever shown. Everything but Python's own is imported inside the `try`, as Ctrl-C may come during the imports.
Exit codes: 0 done, 1 failed, 2 wrong use.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn, cast

if TYPE_CHECKING:
    import inspect
    import io

    from ...storage.model.errors import CallboardError

DONE, FAILED, WRONG_USE = 0, 1, 2


def main() -> NoReturn:
    """The console script."""
    try:
        from .output import let_streams_go, repair_streams

        repair_streams()
        code = run(sys.argv[1:])
        let_streams_go()
    except KeyboardInterrupt:
        code = FAILED
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Carry a command line out and return its exit code."""
    try:
        return _carry_out(arguments)
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:
        return _told(cast("BaseException", error))


def _carry_out(arguments: Sequence[str]) -> int:
    from cyclopts import CycloptsError

    from .app import app

    # What agents say may not exist in the terminal's encoding.
    cast("io.TextIOWrapper", sys.stdout).reconfigure(errors="backslashreplace")
    try:
        command, bound, _ = app.parse_args([*arguments], exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return _say(str(error), WRONG_USE)
    unreadable = _not_text(bound)
    if unreadable is not None:
        return _say(f"{unreadable}: is not UTF-8", WRONG_USE)
    result = command(*bound.args, **bound.kwargs)
    sys.stdout.flush()
    return result if isinstance(result, int) else DONE


def _told(error: BaseException) -> int:
    """What has ended a command, in one line; returns the exit code."""
    from .refusals import refusal_in

    kinds = {type(leaf) for leaf in _leaves(error)}
    if KeyboardInterrupt in kinds:
        return FAILED
    refusal = refusal_in(error)
    if refusal is not None:
        return _say(str(refusal), WRONG_USE if _is_wrong_use(refusal) else FAILED)
    if kinds <= {BrokenPipeError}:
        return FAILED  # whoever read our output has seen enough
    return _say(_defect(error), FAILED)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _leaves(member)
    else:
        yield error


def _defect(error: BaseException) -> str:
    """The error that nobody expected, with the line that it comes from."""
    import traceback

    leaf = next(_leaves(error))
    frames = traceback.extract_tb(leaf.__traceback__ or error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"unexpected: {traceback.format_exception_only(leaf)[-1].strip()}{where}"


def _not_text(bound: inspect.BoundArguments) -> str | None:
    """The argument that holds bytes which are no text, as Python hides them in surrogates. Names of files may."""
    import attrs

    from .arguments import Place

    parameters = bound.signature.parameters.values()
    positional = {parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY}
    values = dict(bound.arguments)
    for shared in [value for value in values.values() if isinstance(value, Place)]:
        values |= attrs.asdict(shared)
    for name, value in values.items():
        if not isinstance(value, str) or name == "store":
            continue
        try:
            value.encode()
        except UnicodeEncodeError:
            return name if name in positional else "--" + name.replace("_", "-")
    return None


def _is_wrong_use(refusal: CallboardError) -> bool:
    """A setting that was given as an argument is part of how the command was used."""
    from ...storage.model.errors import SettingsError

    return isinstance(refusal, SettingsError) and (refusal.path or "").startswith("--")


def _say(line: str, code: int) -> int:
    from .output import problem

    problem(line)
    return code

"""The command `callboard`. Lives here: from arguments to an exit code. Not here: the commands (`app` has their signatures).

Invariant: what a person got wrong, and what the system refuses, is exactly one line on stderr; a traceback is a defect of ours.
Exit codes: 0 done, 1 failed, 2 wrong use.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, cast

from ...storage.model.errors import CallboardError, SettingsError
from .refusals import refusal_in

DONE, FAILED, WRONG_USE = 0, 1, 2


def main() -> NoReturn:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Carry a command line out and return its exit code."""
    from cyclopts import CycloptsError

    from .app import app

    # What agents say may not exist in the terminal's encoding.
    cast("io.TextIOWrapper", sys.stdout).reconfigure(errors="backslashreplace")
    try:
        try:
            command, bound, _ = app.parse_args([*arguments], exit_on_error=False, print_error=False)
        except CycloptsError as error:
            return _say(str(error), WRONG_USE)
        result = command(*bound.args, **bound.kwargs)
        sys.stdout.flush()
        return result if isinstance(result, int) else DONE
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return FAILED
    except (CallboardError, BaseExceptionGroup) as error:
        if isinstance(error, BaseExceptionGroup) and error.subgroup(KeyboardInterrupt) is not None:
            return FAILED
        refusal = refusal_in(error)
        if refusal is None:
            raise
        return _say(str(refusal), WRONG_USE if _is_wrong_use(refusal) else FAILED)


def _is_wrong_use(refusal: CallboardError) -> bool:
    """A setting that was given as an argument is part of how the command was used."""
    return isinstance(refusal, SettingsError) and (refusal.path or "").startswith("--")


def _say(line: str, code: int) -> int:
    from .output import problem

    problem(line)
    return code

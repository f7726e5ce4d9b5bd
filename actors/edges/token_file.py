"""The operator's own token: the file that holds it, made on first use.

Lives here: writing, reading and distrusting that file. Not here: checking what a request brings (auth); tokens that are rows.

Invariant: the file is the only place where a token is kept as it is; one that others may have read is refused, never used.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

from ...storage.model.access import new_secret
from ...storage.model.errors import Rejected

TOKEN_FILE: Final = "operator.token"  # noqa: S105 (a file's name)
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")


class TokenFileRefused(Rejected):
    """The file with the operator's token can't be trusted or used; `path` is the file."""

    code: ClassVar[str] = "token_file"


def load_or_create_token(folder: Path, *, own: bool = False) -> str:
    """The operator's token in `folder`/operator.token, made on first use; blocks for the file. The folder is made if it is missing.

    `own`: the file must be this user's, as whoever put it there knows the token. Raises `TokenFileRefused` for that, if others may read the
    file, or if it is not what this function writes.
    """
    file = folder / TOKEN_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = _read(file, own)
        if found is None:
            _create(file)
            found = _read(file, own)
    except OSError as error:
        raise TokenFileRefused(f"can't be used: {error.strerror}", path=str(file)) from error
    if found is None or not _TOKEN.match(found):
        raise TokenFileRefused("does not hold a token; remove it and a new one is made", path=str(file))
    return found


def _read(file: Path, own: bool) -> str | None:
    try:
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        # Of the open file, not of its name: the name may lead elsewhere a moment later.
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise TokenFileRefused("is not a regular file", path=str(file))
        if own and status.st_uid != os.geteuid():
            raise TokenFileRefused("belongs to another user; remove it and a new one is made", path=str(file))
        if os.name != "nt" and status.st_mode & 0o077:
            raise TokenFileRefused(
                f"has mode {stat.S_IMODE(status.st_mode):04o}: others may have read it; remove it and a new one is made",
                path=str(file),
            )
        return opened.read(1024).decode("ascii", "replace").removesuffix("\n")


def _create(file: Path) -> None:
    draft = file.with_name(f".{TOKEN_FILE}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(new_secret() + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        # A link and not a rename: of two processes that start at once the first one's token stands.
        with suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink(missing_ok=True)

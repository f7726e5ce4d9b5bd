"""The URLs of stores on a database server: which they are, and how people may see them. Not here: opening one (`store`, `postgres/connect`).

Invariant: nothing here needs the server's library, so a URL can be shown, without its password, where that is not installed.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

POSTGRES: Final = ("postgresql://", "postgres://")


def is_server(url: str) -> bool:
    """Whether `url` names a database server, which several processes may share, and no file."""
    return url.startswith(POSTGRES)


def shown_url(url: str) -> str:
    """A store's URL as people may see it: of a server's only host, port and database, and the folder of its socket."""
    if not is_server(url):
        return url
    # Whatever stands before an "@" may be a password that was not escaped.
    place, _, options = url.partition("://")[2].rpartition("@")[2].partition("?")
    host = [unquote(option) for option in options.split("&") if option.startswith("host=")]
    if not place.startswith("/") and "/" not in place:
        place += "/"
    return f"postgresql://{place}" + (f"?{host[-1]}" if host else "")


def without_password(url: str) -> str:
    """A store's URL as it may be typed again by somebody who has the password elsewhere."""
    if not is_server(url):
        return url
    rest = url.partition("://")[2]
    who, at, place = rest.rpartition("@")
    place, _, options = place.partition("?")
    kept = "&".join(option for option in options.split("&") if option and "pass" not in option.partition("=")[0])
    return f"postgresql://{who.partition(':')[0]}{at}{place}" + (f"?{kept}" if kept else "")

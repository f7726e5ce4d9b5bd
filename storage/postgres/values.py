"""Values on the wire: Python values to parameters, columns to the Python values that SQLite would give.

Here: `dump` and `loader`. Not here: the protocol (`bridge.py`). Parameters go out as text without a type, so that the statement alone
says what they are (`$1::bigint[]` where nothing else does) and is prepared once, whatever a caller passes. Invariant: a row read here
equals the row that SQLite gives: a truth value is 0 or 1, a whole number an int, a time a float, bytes are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg
from psycopg import adapt
from psycopg.abc import Buffer, Transformer
from psycopg.adapt import AdaptersMap, Loader

Dump = Callable[[Any], bytes]
_NUL: Final = "text has a NUL character, which PostgreSQL can't hold"


def dump(value: Any) -> bytes | None:
    """One parameter: None, a truth value, a number, text, bytes, or a list of these (one-dimensional; all of one kind).

    Raises `psycopg.DataError` for text with a NUL character, which PostgreSQL can't hold, and `TypeError` for another kind of value.
    """
    if value is None:
        return None
    known = _BY_TYPE.get(type(value))  # pyright: ignore[reportUnknownArgumentType]
    return _by_base(value)(value) if known is None else known(value)


def loader() -> Transformer:
    """What turns the results of one connection into rows."""
    return adapt.Transformer(_Context())


def _text(value: str) -> bytes:
    data = value.encode()
    # The library ends a text parameter at its first NUL: half of it would be stored and nobody told.
    if b"\0" in data:
        raise psycopg.DataError(_NUL)
    return data


def _whole(value: int) -> bytes:
    return b"%d" % value


def _real(value: float) -> bytes:
    return float.__repr__(value).encode()


def _bytes(value: bytes) -> bytes:
    return b"\\x" + value.hex().encode()


def _list(values: Sequence[Any]) -> bytes:
    # A batch is mostly lists, and one by one their values would cost more here than in the server: a list of one kind is written at once.
    kinds = set(map(type, values))
    if len(kinds) == 1:
        (kind,) = kinds
        write = _BY_KIND.get(kind) or (_texts if issubclass(kind, str) else None)
        if write is not None:
            return b"{%b}" % write(values)
    return b"{%b}" % b",".join([_element(value) for value in values])


def _nothings(values: Sequence[None]) -> bytes:
    return b",".join([b"NULL"] * len(values))


def _numbers(values: Sequence[float]) -> bytes:
    # As Python writes a list: in one go, which is a third of one by one.
    return str([*values])[1:-1].encode()


def _texts(values: Sequence[str]) -> bytes:
    """In quotation marks. What no text may have, a NUL, stands between them until all else is escaped."""
    text = "\0".join(values)
    if text.count("\0") != len(values) - 1:
        raise psycopg.DataError(_NUL)
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return b'"%b"' % text.replace("\0", '","').encode()


def _element(value: Any) -> bytes:
    data = dump(value)
    if data is None:
        return b"NULL"
    if isinstance(value, (str, bytes)):
        return b'"' + data.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
    if isinstance(value, (list, tuple)):
        raise TypeError("a parameter may be a list, but not a list of lists")
    return data


_BY_KIND: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): _nothings,
    str: _texts,
    int: _numbers,
    float: _numbers,
}
_BY_TYPE: Final[dict[type, Dump]] = {
    str: _text,
    bool: _whole,
    int: _whole,
    float: _real,
    bytes: _bytes,
    list: _list,
    tuple: _list,
}


def _by_base(value: Any) -> Dump:
    """For members of enumerations and other subclasses."""
    for base, found in _BY_TYPE.items():
        if isinstance(value, base):
            return found
    raise TypeError(f"a parameter can't be a {type(value).__name__}")


class _TruthLoader(Loader):
    def load(self, data: Buffer) -> int:
        return int(bytes(data) == b"t")


class _NumericLoader(Loader):
    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text or b"N" in text or b"I" in text else int(text)


class _Context:
    """The library's context of a transformer: which loaders; the text is UTF-8 without asking a connection."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)
        self.adapters.register_loader("bool", _TruthLoader)
        self.adapters.register_loader("numeric", _NumericLoader)

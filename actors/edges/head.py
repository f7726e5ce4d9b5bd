"""What the head of a request means, and why it is refused: pure rules over what h11 parsed.

Lives here: version, framing, target, host and websocket rules that h11 leaves to its user. Not here: any I/O; Origin and credentials, which
are the application's.

Invariant: a `Head` is safe to act on. Its framing has one reading (no request smuggling), its path is UTF-8 without NUL, its host is ASCII,
and a websocket request among them is a complete opening handshake.
"""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

import attrs
import h11

from .replies import Reply, bad_request, refusal, too_large

_HOST = re.compile(rb"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=-]*)(:[0-9]{0,5})?")
_ABSOLUTE = re.compile(rb"https?://(?P<authority>[^/?#]+)(?P<rest>[^#]*)", re.IGNORECASE)
_HOST_BYTES = 262
"""A DNS name of 253 characters, brackets, a colon and a port."""
_ALLOW = (b"allow", b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")

_JUDGED = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"expect", b"connection", b"upgrade"}
    | {b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-protocol"}
)


@attrs.frozen
class Head:
    """One acceptable request head. `length` is the body's announced length in bytes, None if it is chunked."""

    method: str
    raw_path: bytes
    path: str
    query: bytes
    version: str
    host: bytes
    headers: list[tuple[bytes, bytes]]
    length: int | None
    websocket: bool


def judge(request: h11.Request, *, body_bytes: int, allowed_hosts: frozenset[str] | None) -> Head | Reply:
    """The request as a `Head`, or the reply that it gets instead.

    `allowed_hosts` are host names in lower case, without port and brackets; None allows all.
    """
    headers = [(name, value) for name, value in request.headers]
    fields = _fields(headers)
    if request.http_version not in (b"1.0", b"1.1"):
        return refusal(505, "version_not_supported", "only HTTP/1.1 and HTTP/1.0 are understood")
    if request.method == b"CONNECT":
        return refusal(501, "not_implemented", "this is not a proxy")
    if request.target == b"*" and request.method == b"OPTIONS":
        return Reply(204, headers=(_ALLOW,))
    length = _length(fields, request.http_version)
    if isinstance(length, Reply):
        return length
    if length is not None and length > body_bytes:
        return too_large(body_bytes)
    if fields.get(b"expect", b"100-continue").lower() != b"100-continue":
        return refusal(417, "expectation_failed", "only 100-continue can be expected")
    target = _split_target(request.target)
    if isinstance(target, Reply):
        return target
    authority, raw_path, query = target
    host = fields.get(b"host", b"") if authority is None else authority
    if authority is not None:
        headers = [(name, value) for name, value in headers if name != b"host"] + [(b"host", authority)]
    if refused := _refuse_host(host, allowed_hosts):
        return refused
    try:
        path = unquote_to_bytes(raw_path).decode("utf-8")
    except UnicodeDecodeError:
        return bad_request("the path is not UTF-8")
    if "\0" in path:
        return bad_request("the path has a NUL character")
    websocket = _judge_upgrade(request, fields, length, host)
    if isinstance(websocket, Reply):
        return websocket
    method, version = request.method.decode("ascii"), request.http_version.decode("ascii")
    return Head(method, raw_path, path, query, version, host, headers, length, websocket)


def _fields(headers: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _JUDGED:
            fields[name] = fields[name] + b", " + value if name in fields else value
    return fields


def _length(fields: dict[bytes, bytes], version: bytes) -> int | Reply | None:
    if b"transfer-encoding" not in fields:
        return int(fields.get(b"content-length", b"0"))
    # h11 lets the coding win; a proxy before us may have taken the length, and then the rest of the body would be a request of its own.
    if b"content-length" in fields:
        return bad_request("Content-Length and Transfer-Encoding exclude each other")
    if version == b"1.0":
        return bad_request("HTTP/1.0 has no Transfer-Encoding")
    return None


def _split_target(target: bytes) -> tuple[bytes | None, bytes, bytes] | Reply:
    authority: bytes | None = None
    if not target.startswith(b"/"):
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is None:
            return bad_request("the request target is neither a path nor an http URL")
        authority, target = absolute["authority"], absolute["rest"]
        if not target.startswith(b"/"):
            target = b"/" + target
    elif b"#" in target:
        return bad_request("the request target has a fragment")
    raw_path, _, query = target.partition(b"?")
    return authority, raw_path, query


def _refuse_host(host: bytes, allowed: frozenset[str] | None) -> Reply | None:
    parts = _HOST.fullmatch(host) if len(host) <= _HOST_BYTES else None
    if parts is None:
        return bad_request("the host is not a valid one")
    name = parts["name"].strip(b"[]").decode("ascii").lower()
    if allowed is not None and name.removesuffix(".") not in allowed:
        return refusal(421, "host_not_allowed", "this server does not answer for that host name")
    return None


def _judge_upgrade(request: h11.Request, fields: dict[bytes, bytes], length: int | None, host: bytes) -> bool | Reply:
    if request.http_version == b"1.0" or b"websocket" not in _tokens(fields.get(b"upgrade", b"")):
        if b"sec-websocket-key" in fields:
            text = "the handshake came without its Upgrade field; a proxy may have removed it"
            return refusal(426, "upgrade_required", text, (b"upgrade", b"websocket"))
        return False
    if request.method != b"GET":
        return refusal(405, "method_not_allowed", "a websocket is opened with GET", (b"allow", b"GET"))
    if b"upgrade" not in _tokens(fields.get(b"connection", b"")):
        return bad_request("the Connection field does not name Upgrade")
    if b"sec-websocket-version" not in fields:
        return bad_request("Sec-WebSocket-Version is missing")
    if fields[b"sec-websocket-version"] != b"13":
        headers = ((b"sec-websocket-version", b"13"), (b"upgrade", b"websocket"))
        return refusal(426, "upgrade_required", "only version 13 of the websocket protocol is spoken", *headers)
    if not _is_key(fields.get(b"sec-websocket-key", b"")):
        return bad_request("Sec-WebSocket-Key must be 16 bytes in base64")
    if length != 0:
        return bad_request("an opening handshake has no body")
    # The websocket library decodes both, and its UnicodeError would end the connection without an answer.
    if not _decodes(host, "idna") or not _decodes(fields.get(b"sec-websocket-protocol", b""), "ascii"):
        return bad_request("the handshake has a field that can't be decoded")
    return True


def _tokens(value: bytes) -> set[bytes]:
    return {token.strip() for token in value.lower().split(b",")}


def _is_key(value: bytes) -> bool:
    try:
        return len(base64.b64decode(value, validate=True)) == 16
    except binascii.Error:
        return False


def _decodes(value: bytes, encoding: str) -> bool:
    try:
        value.decode(encoding)
    except UnicodeError:
        return False
    return True

"""Which address is open to whom: one table, route × principal.

Lives here: the table and its check. Not here: who is asking (auth), rows of other projects, which answer as unknown wherever they are read.

Invariant: what is not in the table is the operator's alone. Of an address where a principal may do nothing it learns nothing: it answers as
one that does not exist; where it may do something else, it is told that this is not allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...storage.model.access import Kind
from ...storage.model.errors import Forbidden, NotFound

_ALL: Final = frozenset(Kind)
_BACKENDS: Final = frozenset({Kind.OPERATOR, Kind.PROJECT})
"""Who runs a project, rather than takes part in it."""
_OPERATOR: Final = frozenset({Kind.OPERATOR})

MAY: Final[Mapping[str, Mapping[str, frozenset[Kind]]]] = {
    "/v1/sessions": {"GET": _ALL, "POST": _ALL},
    "/v1/sessions/{id}": {"GET": _ALL, "PATCH": _ALL, "DELETE": _BACKENDS},
    "/v1/sessions/{id}/messages": {"POST": _ALL},
    "/v1/sessions/{id}/transcript": {"GET": _ALL},
    "/v1/sessions/{id}/stop": {"POST": _ALL},
    "/v1/sessions/{id}/events": {"GET": _ALL},
    "/v1/turns/{id}/events": {"GET": _ALL},
    "/v1/messages/{id}": {"GET": _ALL},
    "/v1/inbox": {"GET": _ALL},
    "/v1/inbox/{id}/requeue": {"POST": _BACKENDS},
    "/v1/inbox/{id}/cancel": {"POST": _BACKENDS},
    "/v1/approvals/{id}": {"POST": _BACKENDS},
    "/v1/directory": {"GET": _ALL},
    "/v1/clients/{id}": {"GET": _ALL},
    "/v1/whoami": {"GET": _ALL},
    "/v1/tickets": {"POST": _ALL},
    "/v1/logout": {"POST": _ALL},
    # What they show is of the whole installation, other projects included, or not meant for who takes part.
    "/v1/tree": {"GET": _OPERATOR},
    "/v1/policy": {"GET": _OPERATOR, "PUT": _OPERATOR},
    "/v1/sessions/{id}/prompt": {"GET": _OPERATOR},
    "/v1/doctor": {"GET": _OPERATOR},
    "/v1/backup": {"POST": _OPERATOR},
    "/metrics": {"GET": _OPERATOR},
    "/v1/inbox/prune": {"POST": _OPERATOR},
    "/v1/members": {"GET": _OPERATOR, "POST": _OPERATOR},
    "/v1/members/{id}/suspend": {"POST": _OPERATOR},
    "/v1/members/{id}/resume": {"POST": _OPERATOR},
    "/v1/tokens": {"GET": _OPERATOR, "POST": _OPERATOR},
    "/v1/tokens/{id}/revoke": {"POST": _OPERATOR},
}

ANYWHERE: Final = frozenset({"/v1/whoami", "/v1/logout"})
"""Addresses about the principal itself: who has several projects need not choose one."""


def check_may(kind: Kind, address: str, method: str) -> None:
    """Refuse a principal of `kind` what is not open to it. Raises `NotFound`, `Forbidden`."""
    methods = MAY.get(address, {})
    if kind in methods.get(method, _OPERATOR):
        return
    if any(kind in may for may in methods.values()):
        raise Forbidden("this is not open to a " + ("member" if kind is Kind.MEMBER else "project's token"))
    raise NotFound("there is no such address here")

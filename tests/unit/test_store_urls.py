"""A store's URL as people may see it: whatever may be a password is gone, however it was written."""

from __future__ import annotations

import pytest

from callboard.storage.urls import is_server, shown_url, without_password


@pytest.mark.parametrize(
    ("url", "shown", "typed"),
    [
        ("sqlite:////tmp/x.db", "sqlite:////tmp/x.db", "sqlite:////tmp/x.db"),
        ("postgresql://host/db", "postgresql://host/db", "postgresql://host/db"),
        ("postgres://ann@host:5433/db", "postgresql://host:5433/db", "postgresql://ann@host:5433/db"),
        ("postgresql://ann:secret@host/db", "postgresql://host/db", "postgresql://ann@host/db"),
        ("postgresql://ann:secret@a:1,b:2/db", "postgresql://a:1,b:2/db", "postgresql://ann@a:1,b:2/db"),
        ("postgresql://ann:sec@ret@host/db", "postgresql://host/db", "postgresql://ann@host/db"),
        ("postgresql://ann:sec/ret@host/db", "postgresql://host/db", "postgresql://ann@host/db"),
        ("postgresql://ann:sec?ret@host/db", "postgresql://host/db", "postgresql://ann@host/db"),
        (
            "postgresql:///db?host=%2Frun%2Fpg&password=secret",
            "postgresql:///db?host=/run/pg",
            "postgresql:///db?host=%2Frun%2Fpg",
        ),
        (
            "postgresql://ann:secret@/db?host=/run/pg&sslpassword=secret&sslmode=require",
            "postgresql:///db?host=/run/pg",
            "postgresql://ann@/db?host=/run/pg&sslmode=require",
        ),
        ("postgresql://ann:secret@host", "postgresql://host/", "postgresql://ann@host"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str, typed: str) -> None:
    assert (shown_url(url), without_password(url)) == (shown, typed)
    assert "secret" not in shown + typed
    assert is_server(url) is not url.startswith("sqlite")


@pytest.mark.parametrize("url", ["postgresql://ann:x@h/db", "postgresql://h:1/db", "postgresql:///db?host=/run/pg"])
def test_it_is_shown_as_the_open_store_names_itself(url: str) -> None:
    from callboard.storage.postgres.connect import Target

    assert Target.parse(url).shown == shown_url(url)

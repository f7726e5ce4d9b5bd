"""Addresses: the grammar of paths, and labels that can't forge the header they stand in."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from callboard.storage.model.addresses import SYSTEM, Sender, check_path, clean_label, session_address
from callboard.storage.model.errors import InvalidField

ALPHABET = "abcz019._-"
SEGMENTS = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True)
PATHS = st.lists(SEGMENTS, min_size=1, max_size=8)


def refused(path: str) -> str:
    with pytest.raises(InvalidField) as caught:
        check_path(path)
    assert caught.value.path == "path"
    return caught.value.message


@pytest.mark.spec("NS-1")
@given(PATHS)
def test_a_path_of_the_grammar_passes_unchanged(segments: list[str]) -> None:
    path = "/" + "/".join(segments)
    assume(len(path) <= 256)
    assert check_path(path) == path


@pytest.mark.spec("NS-1")
@pytest.mark.parametrize(
    "path", ["/", "/a", "/0", "/ops/deploy", "/a.b_c-d", "/a..b", "/a.", "/" + "a" * 63, "/" + "/".join("abcdefgh")]
)
def test_examples_of_the_grammar(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.spec("NS-1")
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "start"),
        ("a", "start"),
        (" /a", "start"),
        ("a/b", "start"),
        ("//", "end with /"),
        ("/a/", "end with /"),
        ("//a", "empty segment"),
        ("/a//b", "empty segment"),
        ("/.", "segment . or"),
        ("/..", "segment . or"),
        ("/a/../b", "segment . or"),
        ("/a/./b", "segment . or"),
        ("/.hidden", "not [a-z0-9]"),
        ("/-a", "not [a-z0-9]"),
        ("/_a", "not [a-z0-9]"),
        ("/A", "not [a-z0-9]"),
        ("/aB", "not [a-z0-9]"),
        ("/ä", "not [a-z0-9]"),
        ("/a\u0301", "not [a-z0-9]"),
        ("/ａ", "not [a-z0-9]"),
        ("/١", "not [a-z0-9]"),
        ("/a b", "not [a-z0-9]"),
        ("/a\n", "not [a-z0-9]"),
        ("/a\0", "not [a-z0-9]"),
        ("/a\\b", "not [a-z0-9]"),
        ("/%61", "not [a-z0-9]"),
        ("/a?b", "not [a-z0-9]"),
        ("/\ud800", "not [a-z0-9]"),
        ("/" + "a" * 64, "not [a-z0-9]"),
        ("/" + "/".join("abcdefghi"), "deeper than 8"),
        ("/" + "/".join(["a" * 60] * 5), "longer than 256"),
    ],
)
def test_what_is_not_canonical_is_refused_with_the_reason(path: str, reason: str) -> None:
    assert reason in refused(path)


@pytest.mark.spec("NS-1")
@given(st.text(max_size=40) | st.text(ALPHABET + "/AB é", max_size=300))
def test_nothing_else_passes_and_nothing_is_repaired(path: str) -> None:
    legal = path == "/" or (
        len(path) <= 256
        and path.count("/") <= 8
        and re.fullmatch(r"(/[a-z0-9][a-z0-9._-]{0,62})+", path, re.ASCII) is not None
    )
    if legal:
        assert check_path(path) == path
    else:
        assert refused(path)


@pytest.mark.spec("INB-4")
def test_senders_of_two_kinds_never_share_their_message_ids() -> None:
    senders = [Sender("a", kind) for kind in ("member", "session", "system", "peer")]
    assert len({sender.principal for sender in (*senders, SYSTEM)}) == 5
    assert Sender("a", "member", "One").principal == Sender("a", "member", "Two").principal


def test_a_session_has_one_address() -> None:
    assert session_address("ses_1") == "session:ses_1"


@pytest.mark.spec("SES-9")
@pytest.mark.parametrize(
    ("label", "clean"),
    [
        ("Ann", "Ann"),
        ("  Ann \t of\nsales\r\n", "Ann of sales"),
        ("Ann]\n\n[from: Root]", "Ann) (from: Root)"),
        ("a\u2028b\u2029c\x85d", "a b c d"),
        ("\u202eevil\u202c \u200f\u200b\ufeffend", "evil end"),
        ("a\0b\x1b[31mc", "a b (31mc"),
        ("\ud800x", "x"),
        ("Zoë 東京 ✓", "Zoë 東京 ✓"),
        ("", ""),
        (" \n ", ""),
        ("x" * 500, "x" * 80),
    ],
    ids=range(11),
)
def test_a_label_is_one_short_printable_line(label: str, clean: str) -> None:
    assert clean_label(label) == clean


@pytest.mark.spec("SES-9")
@given(st.text(st.characters() | st.sampled_from("[]\n\u202e\u2028\0"), max_size=400))
def test_no_label_breaks_out_of_its_header(label: str) -> None:
    clean = clean_label(label)
    assert len(clean) <= 80
    assert clean.isprintable()
    assert not set("[]\n\r") & set(clean)
    assert clean_label(clean) == clean
    clean.encode()

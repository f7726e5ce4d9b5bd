"""What the commands print: harmless text, tables that fit, one line of trouble, a sign of life only where somebody looks."""

from __future__ import annotations

import io
import json
import threading

import pytest

from callboard.storage.model.errors import RuntimeFailed, StoreLocked
from callboard.supervisors.cli import output
from callboard.supervisors.cli.refusals import refusal_in
from callboard.tests.unit.hostile_kit import TITLES


class Screen(io.StringIO):
    """A terminal. `said` is set at its first character."""

    def __init__(self) -> None:
        super().__init__()
        self.said = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.said.set()
        return super().write(text)


def test_a_problem_is_one_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    output.problem("two\nlines, \x1b[31mred\x1b[0m\tand\ra tab")
    assert capsys.readouterr() == ("", "callboard: two lines, \ufffd[31mred\ufffd[0m and\ufffda tab\n")


@pytest.mark.parametrize("title", TITLES)
def test_a_name_that_others_gave_stays_on_its_line_and_commands_no_terminal(title: str) -> None:
    """Control characters and right-to-left marks in a title stay inert."""
    name = output.one_line(title)
    assert name.isprintable()
    assert name == name.strip()
    assert [*filter(str.isalnum, name)] == [*filter(str.isalnum, title)], "all that can be read of it is there"


def test_json_is_one_line_in_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": "ä\n\u2028\udc80 😀"}
    output.as_json(value)
    text = capsys.readouterr().out
    assert text.isascii()
    assert (text.count("\n"), json.loads(text)) == (1, value)


def test_a_table_has_columns_and_nothing_is_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("NAME", "TEXT"), [("a", "x" * 300), ("日本", "two\nlines")])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["NAME  TEXT", f"a     {'x' * 300}", "日本  two lines"]


def test_on_a_terminal_a_table_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "20")
    output.table(("NAME", "TEXT"), [("a", "x" * 300), ("b", "fits")])
    assert screen.getvalue().splitlines() == ["NAME  TEXT", f"a     {'x' * 13}…", "b     fits"]


def test_what_takes_long_is_told_on_a_terminal_and_wiped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(output, "PROGRESS_AFTER", 0.0)
    with output.progress("opening"):
        assert screen.said.wait(30)
    text = screen.getvalue()
    assert text.startswith("\r\x1b[Kopening … 0 s")
    assert text.endswith("\r\x1b[K")


def test_what_is_quick_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    with output.progress("opening"):
        pass
    assert screen.getvalue() == ""


def test_nothing_is_told_to_a_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(output, "PROGRESS_AFTER", 0.0)
    before = threading.active_count()
    with output.progress("opening"):
        assert threading.active_count() == before
    assert capsys.readouterr() == ("", "")


def test_the_refusal_nearest_to_the_root_is_told() -> None:
    root = StoreLocked("is in use", path="x.db")
    middle = RuntimeFailed("the runtime gave up")
    middle.__cause__ = ValueError("in between")
    middle.__cause__.__cause__ = root
    assert refusal_in(ExceptionGroup("several", [middle])) is root
    assert refusal_in(ExceptionGroup("several", [ValueError()])) is None
    lonely = RuntimeFailed("the runtime gave up: boom")
    lonely.__cause__ = RuntimeError("boom")
    assert refusal_in(lonely) is lonely

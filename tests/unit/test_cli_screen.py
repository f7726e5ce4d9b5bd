"""What a chat shows of names that others gave: each on its own line, none of them a line, a command or another session's stream."""

from __future__ import annotations

from typing import Any, cast

import pytest

from callboard.actors.client import Handoff, Offered, Place, Refused, Show, ShowKind, Why
from callboard.storage.model.errors import UnknownTarget
from callboard.supervisors.cli.chat import Chat
from callboard.supervisors.cli.lines import PlainLines
from callboard.supervisors.cli.screen import Screen
from callboard.tests.unit.hostile_kit import TITLES

OPEN = Place("ses_open", "/", "front-desk")


def screen() -> Screen:
    shown = Screen(True, PlainLines(), lambda name: f"callboard sessions read {name}")
    shown.at(OPEN)
    return shown


@pytest.mark.parametrize("title", TITLES)
async def test_a_hostile_title_or_label_stays_where_it_is_put(title: str, capsys: pytest.CaptureFixture[str]) -> None:
    """ "Template syntax, markup, control characters, right-to-left marks … in titles … stay inert" in a terminal."""
    place = Place("ses_child", None, "worker", title)
    handoff = Handoff("ses_child", 7, "/ops/deploy", "ses_deploy")
    shown = screen()
    chat = Chat(cast("Any", None), cast("Any", None), shown)
    said = (
        Offered(place, handoff, Why.ELSEWHERE),
        Refused(handoff, UnknownTarget(f"there is no {title}")),
    )
    for notice in said:
        shown.typed()
        await chat._hear(notice)
    shown.typed()
    sender = {"label": title, "id": "ses_child"}
    shown.entry({"sender": sender, "content": "hello"})
    shown.show(Show(ShowKind.POST, "hello", label=title), OPEN)
    shown.show(Show(ShowKind.ANSWER, whole="hello"), place)
    shown.show(Show(ShowKind.FAILED, "boom"), place)
    shown.at(place)
    shown.show(Show(ShowKind.GAP), place)
    shown.typed()
    shown.prompt()
    out, err = capsys.readouterr()
    assert [line.count("hello") for line in out.removeprefix("/> ").splitlines()[:-1]] == [1, 1, 1]
    lines = err.splitlines()
    assert [line.startswith(("(", "some", place.name)) for line in lines] == [True] * 4
    assert lines[0].endswith("offers to take you to /ops/deploy: /go /ops/deploy)")
    assert lines[-1] == "some events are gone; all that was said: callboard sessions read ses_child", (
        "no title is a command"
    )
    assert (out + err).replace("\n", "").isprintable()


def test_a_session_that_is_called_as_the_open_one_is_not_taken_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    shown = screen()
    shown.show(Show(ShowKind.TEXT, "I am the desk"), Place("ses_child", None, "worker", "/"))
    assert capsys.readouterr().out == "", "two streams can't be read at once"
    shown.show(Show(ShowKind.TEXT, "so am I"), OPEN)
    assert capsys.readouterr().out == "so am I"

"""The rules of handoffs in the Python client, by their table; what a client keeps between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callboard.actors.client import FileMemory, InMemory, Kept, LastResult, Opened, Place, Rules
from callboard.actors.client.handoffs import HANDLED_MOST, Handoff, Key, handoff_of, post_id, poster, transcript_result
from callboard.actors.client.notices import By
from callboard.storage.model.ids import check_message_id
from callboard.storage.model.limits import LABEL_CHARS
from callboard.tests.unit.handoff_kit import DEPLOY, DESK, RESULTS, RULES, TRANSCRIPTS, Step, handed
from callboard.tests.unit.hostile_kit import TITLES


@pytest.mark.spec("HND-4", "HND-5")
@pytest.mark.parametrize("case", RULES)
def test_what_is_decided_about_a_handoff(case: str) -> None:
    rules = Rules("me")
    for number, step in enumerate(RULES[case]):
        act(rules, step, f"step {number}")


def act(rules: Rules, step: Step, where: str) -> None:
    match step:
        case ["open", session]:
            rules.open = session
        case ["navigate", session]:
            rules.navigate(session)
        case ["navigated", frontiers]:
            rules.navigated(frontiers)
        case ["follow", event]:
            rules.followed(handoff_of(*event))
        case ["settle", event]:
            rules.settle(handoff_of(*event))
        case ["decide", event, verdict, why]:
            decision = rules.decide(handoff_of(*event))
            assert (decision.verdict, decision.why) == (verdict, why), where
        case _:
            raise AssertionError(step)


@pytest.mark.spec("HND-3", "HND-4")
@pytest.mark.parametrize("case", RESULTS)
def test_what_a_reload_looks_at(case: str) -> None:
    events, found, known = RESULTS[case]
    last = LastResult(DESK)
    for number, kind, data in events:
        last.see(number, kind, data)
    assert (last.found.id if last.found else None, last.known) == (found, known)
    assert last.found is None or last.found.by == "me", "whoever asked is known from the result as well"


@pytest.mark.spec("HND-3", "HND-4")
@pytest.mark.parametrize("case", TRANSCRIPTS)
def test_what_a_reload_looks_at_when_the_log_has_no_result_any_more(case: str) -> None:
    entries, wanted = TRANSCRIPTS[case]
    found = transcript_result(DESK, entries)
    assert (found and found.id) == wanted
    assert found is None or (found.session, found.by) == (DESK, "me")


def test_what_was_handled_is_kept_and_bounded() -> None:
    rules = Rules("me", opened=DESK, handled=[Key(DESK, 1)])
    assert rules.decide(handoff_of(*handed(1))).verdict == "ignore"
    for number in range(2, HANDLED_MOST + 2):
        rules.settle(handoff_of(*handed(number)))
    assert rules.handled == tuple(Key(DESK, number) for number in range(2, HANDLED_MOST + 2))


def test_a_post_says_which_client_made_it() -> None:
    for client in ("me", "a::b", "x" * 64):
        assert poster(check_message_id(post_id(client))) == client
    assert post_id("me") != post_id("me")
    for foreign in ("m-1", "", "me::abc", "::" + "0" * 32, "x" * 65 + "::" + "0" * 32):
        assert poster(foreign) is None


@pytest.mark.spec("HND-5")
@pytest.mark.parametrize(
    ("path", "title", "cue"),
    [("/ops/deploy", "Deployments", "Now at deploy."), ("/", "", "Now at main."), (None, "A child", "Now at A child.")],
)
def test_a_voice_says_one_short_thing(path: str | None, title: str, cue: str) -> None:
    assert Opened(Place("ses_1", path, "deploy", title), By.HANDOFF).cue == cue


@pytest.mark.spec("HND-5")
@pytest.mark.parametrize("title", TITLES)
def test_a_cue_is_one_short_printable_line_whatever_the_title_is(title: str) -> None:
    """ "Template syntax, markup, control characters, right-to-left marks" in a title stay inert, also where they would be spoken."""
    place = Place("ses_1", None, "deploy", title)
    cue = Opened(place, By.HANDOFF).cue
    assert cue.isprintable()
    assert len(cue) <= LABEL_CHARS + len("Now at .")
    assert place.name.isprintable()
    assert Place("ses_1", None, "deploy", "\u202e \n\x1b").name == "ses_1", "nothing is left of it to be said"


@pytest.mark.spec("HND-5")
def test_the_cue_is_what_the_readme_says_that_it_is() -> None:
    """ "What switching looks and sounds like in voice: a spoken cue, a chime, or silence": README's answer is the code's."""
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    (line,) = [line for line in readme.splitlines() if line.startswith("| what switching sounds like in voice |")]
    assert f'one short cue ("{Opened(Place("ses_1", "/ops/deploy", "deploy"), By.HANDOFF).cue}")' in line


@pytest.mark.parametrize(
    ("path", "parent", "above"),
    [
        ("/", None, []),
        ("/ops", None, ["/"]),
        ("/ops/deploy/eu", None, ["/ops/deploy", "/ops", "/"]),
        (None, "ses_1", ["ses_1"]),
        (None, None, ["/"]),
    ],
)
def test_where_up_leads(path: str | None, parent: str | None, above: list[str]) -> None:
    assert Place("ses_2", path, "deploy", parent=parent).above == above


def test_a_file_keeps_all_of_it_for_its_user_alone(tmp_path: Path) -> None:
    memory = FileMemory(tmp_path / "client.json")
    assert memory.load() is None
    kept = Kept("me", DESK, (Key(DESK, 7), Key(DEPLOY, 1)), (DEPLOY,), going=True)
    memory.save(kept)
    assert memory.load() == kept
    assert memory.file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["client.json"]
    for text in ("", "{", "[]", '{"client": "a b"}', '{"client": "me", "more": 1}', '{"client": 1}'):
        memory.file.write_text(text)
        assert memory.load() is None, text
    nowhere = FileMemory(tmp_path / "missing" / "client.json")
    nowhere.save(kept)
    assert nowhere.load() is None


def test_a_memory_of_one_run() -> None:
    memory: Any = InMemory()
    assert memory.load() is None
    memory.save(Kept("me"))
    assert memory.load() == Kept("me")
    assert isinstance(handoff_of(*handed(1)), Handoff)

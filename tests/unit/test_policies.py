"""Rules by prefix: the longest one that says something about a path wins, field by field; and what they refuse, with which words."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.namespace.paths import drawn, levels, matching, name_of
from callboard.storage.model.addresses import check_path
from callboard.storage.model.errors import NotPermitted
from callboard.storage.model.policies import AgentsMay, Edge, Rule, Rules

SEGMENTS = st.sampled_from(["a", "b", "ab", "a.b", "a-b", "0"])
PATHS = st.lists(SEGMENTS, max_size=4).map(lambda segments: "/" + "/".join(segments))
RULES = st.builds(
    Rule,
    PATHS,
    st.none() | st.sampled_from(Edge),
    st.none() | st.sampled_from(AgentsMay),
    st.none() | st.booleans(),
    st.none() | st.booleans(),
)


def above(path: str) -> list[str]:
    """A path and all prefixes of it, the longest first: written anew, one segment after the other."""
    found = [path]
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        found.append(path)
    return found


@pytest.mark.spec("NS-4")
@given(st.lists(RULES, unique_by=lambda rule: rule.prefix), PATHS | st.none())
def test_each_field_comes_from_the_nearest_prefix_that_says_it(rules: list[Rule], path: str | None) -> None:
    by_prefix = {rule.prefix: rule for rule in rules}

    def nearest(name: str) -> Any:
        for prefix in above("/" if path is None else path):
            said = getattr(by_prefix.get(prefix, Rule("/")), name)
            if said is not None:
                return said
        return None

    for order in (rules, rules[::-1]):
        known = Rules(tuple(order))
        for default in Edge:
            assert known.edge(path, default) == (nearest("edge") or default)
        if path is not None:
            assert known.agents_may(path) == (nearest("agents") or AgentsMay.NONE)
            assert known.handoff(path) is (nearest("handoff") is not False)
            assert known.confirm(path) is (nearest("confirm") is True)


def test_a_prefix_is_whole_segments() -> None:
    rules = Rules((Rule("/ops", confirm=True),))
    assert {path: rules.confirm(path) for path in ("/", "/ops", "/ops/deploy", "/ops-x", "/ops.d", "/o", "/x/ops")} == {
        "/": False,
        "/ops": True,
        "/ops/deploy": True,
        "/ops-x": False,
        "/ops.d": False,
        "/o": False,
        "/x/ops": False,
    }


@pytest.mark.spec("NS-4")
def test_a_message_needs_both_its_ends_to_collaborate_and_the_refusal_names_connect_user() -> None:
    rules = Rules(
        (Rule("/", Edge.HANDOFF_ONLY), Rule("/team", Edge.COLLABORATE), Rule("/team/front", Edge.HANDOFF_ONLY))
    )
    rules.check_send("/team/a", "/team/b", Edge.HANDOFF_ONLY)
    for source, target in (
        ("/a", "/b"),
        ("/team/a", "/b"),
        (None, "/team/a"),
        ("/team/a", "/team/front"),
        (None, None),
    ):
        for ends in ((source, target), (target, source)):
            with pytest.raises(NotPermitted, match="connect_user") as caught:
                rules.check_send(*ends, Edge.COLLABORATE)
            assert (caught.value.code, caught.value.status) == ("not_permitted", 403)
    Rules().check_send("/a", None, Edge.COLLABORATE)
    with pytest.raises(NotPermitted):
        Rules().check_send("/a", "/b", Edge.HANDOFF_ONLY)


@given(st.lists(RULES, unique_by=lambda rule: rule.prefix), st.sampled_from(Edge), PATHS | st.none(), PATHS | st.none())
def test_where_all_collaborate_nothing_is_refused(
    rules: list[Rule], default: Edge, source: str | None, target: str | None
) -> None:
    known = Rules(tuple(rules))
    if known.all_collaborate(default):
        known.check_send(source, target, default)
    # And it says so wherever no rule speaks of messages.
    silent = Rules(tuple(attrs.evolve(rule, edge=None) for rule in rules))
    assert silent.all_collaborate(Edge.COLLABORATE)
    assert not silent.all_collaborate(Edge.HANDOFF_ONLY)


@pytest.mark.spec("NS-2")
@given(st.lists(PATHS, unique=True))
def test_a_tree_has_every_path_once_parents_first_and_levels_without_a_session(paths: list[str]) -> None:
    tree = levels(paths)
    shown = [level.path for level in tree]
    assert shown[0] == "/"
    assert len(set(shown)) == len(shown)
    assert {level.path for level in tree if level.known} == set(paths)
    for place, level in enumerate(tree):
        check_path(level.path)
        assert level.depth == (0 if level.path == "/" else level.path.count("/"))
        assert level.name == name_of(level.path)
        for prefix in above(level.path)[1:]:
            assert prefix in shown[:place]
    assert {level.path for level in tree} == {prefix for path in [*paths, "/"] for prefix in above(path)}


def test_a_tree_is_drawn() -> None:
    told = {"/": "front-desk", "/ops/deploy": "deploy", "/ops-x": "x"}
    assert drawn(told) == ["/           front-desk", "  ops", "    deploy  deploy", "  ops-x     x"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("deploy", ["/ops/deploy"]),
        ("/ops/deploy", ["/ops/deploy"]),
        ("ops", ["/ops", "/x/ops"]),
        ("/", ["/"]),
        ("ploy", []),
        ("Deploy", []),
        ("/deploy", []),
        ("ops/deploy", []),
    ],
)
def test_a_name_is_short_for_the_paths_that_end_in_it(name: str, found: list[str]) -> None:
    assert matching(name, ["/", "/ops", "/ops/deploy", "/x/ops"]) == found

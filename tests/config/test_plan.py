"""Plans of binary joins as texts: what is written comes back, and each mistake is named with what was wanted."""

import pytest

from mpijoin.config.plan import Binary, PlanError, members_of, parse_plan, text_of

NAMES = ["a", "b", "c", "d"]


@pytest.mark.parametrize("text", ["(((a b) c) d)", "((a c) (d b))", "(d (c (b a)))"])
def test_a_plan_comes_back_as_it_was_written(text):
    plan = parse_plan(text.replace(" ", "  ").replace(")", " ) "), NAMES)
    assert text_of(plan, NAMES) == text and sorted(members_of(plan)) == [0, 1, 2, 3]
    assert parse_plan("((b a) c)", ["a", "b", "c"]) == Binary(Binary(1, 0), 2)


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("", "it ends too early"),
        ("((a b) (c d)", "it ends too early"),
        ("((a b) (c d)))", "got ')' behind the whole plan"),
        ("(a b c d)", "got 'c' where ')' was wanted: each pair of brackets joins two"),
        ("((a b) ())", "got ')' where a stream or '(' was wanted"),
        ("((a b) (c e))", "got 'e', wanted one of the streams a b c d"),
        ("((a b) c)", "stream d is missing: wanted each stream once"),
        ("((a b) (c (d a)))", "stream a is there more than once"),
    ],
)
def test_each_mistake_is_named(text, wanted):
    with pytest.raises(PlanError) as caught:
        parse_plan(text, NAMES)
    assert wanted in str(caught.value)


def test_two_streams_have_only_one_plan():
    with pytest.raises(PlanError, match="two have only one plan"):
        parse_plan("(a b)", ["a", "b"])

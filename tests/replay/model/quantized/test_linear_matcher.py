import fnmatch
import re
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.model.quantized.expression_parser import NotRead, parse_expression, parse_glob
from replay.model.quantized.linear_matcher import Effort, Matcher, matcher_of

MUCH = 10**9


def matcher(*expressions: str, effort: int = MUCH) -> Matcher:
    return matcher_of([parse_expression(each) for each in expressions], effort=Effort(effort))


PIECES = st.sampled_from(
    [
        *("a", "b", ".", r"\.", "1", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", "[ab]", "[^a1]", "[a-c.]", r"[\d_]"),
        *(r"[\w-]", "_", "^", "$", r"\b", r"\B", r"\A", r"\Z", r"\-", "x"),
    ]
)  # fmt: skip
REPEATS = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{,2}", "{2,}", "{0}"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda both: f"(?:{both[0]}|{both[1]})"),
        st.tuples(inner, REPEATS).map(lambda both: f"({both[0]}){both[1]}"),
        inner.map(lambda one: f"(?!{one})"),
        inner.map(lambda one: f"(?={one})"),
        inner.map(lambda one: f"(?P<x>{one})"),
    )


@settings(max_examples=600, deadline=None)
@given(
    expression=st.recursive(PIECES, grown, max_leaves=8),
    texts=st.lists(st.text("ab1._- x", min_size=1, max_size=8), min_size=1, max_size=5),
)
def test_a_text_matches_where_re_matches_it(expression: str, texts: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = re.compile(expression)
        except re.error:
            return
    ours = matcher(expression)
    assert [ours.match(text) for text in texts] == [theirs.match(text) is not None for text in texts]
    for text in texts:
        if len(text) > 2:
            heads, middle, tail = ("", "a", "b."), text[0], text[1:]
            expected = any(theirs.match(head + text) for head in heads)
            assert ours.fits_any(heads, middle, tail) is expected


@settings(max_examples=300, deadline=None)
@given(glob=st.text("ab.*?[]!-", max_size=8), text=st.text("ab.-", max_size=8))
def test_a_text_fits_a_glob_where_fnmatch_says_so(glob: str, text: str) -> None:
    ours = matcher_of([parse_glob(glob)], effort=Effort(MUCH))
    assert ours.match(text) is (re.match(fnmatch.translate(glob), text) is not None)


@settings(max_examples=100, deadline=None)
@given(
    expressions=st.lists(st.recursive(PIECES, grown, max_leaves=3), min_size=2, max_size=3),
    text=st.text("ab1.", max_size=6),
)
def test_several_expressions_match_where_one_does(expressions: list[str], text: str) -> None:
    try:
        each = [matcher(expression).match(text) for expression in expressions]
    except NotRead:
        return
    assert matcher(*expressions).match(text) is any(each)


@pytest.mark.parametrize(
    "expression", [".?" * 60 + "%", "(.|..)*%", "(.*a)*b", "(a+)+b", ".*" * 20 + "%", "(?!(a|aa)*%)(a*)*%"]
)
def test_a_text_of_twice_the_length_takes_about_twice_the_work(expression: str) -> None:
    def work(length: int) -> int:
        effort = Effort(MUCH)
        assert not matcher_of([parse_expression(expression)], effort=effort).match("a" * length)
        return MUCH - effort.left

    assert work(8_000) < 3 * work(4_000)
    begin = time.process_time()
    matcher(expression).match("a" * 20_000)
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    "expression",
    [
        *("(", "a)", "[a", "*a", "a**", "a{2}{3}", r"\1", "(?<=a)b", "(?i)a", "(?P=x)", "[b-a]", "a{3,2}", "a{2000}"),
        *("\\", "^*", "(" * 60 + ")" * 60),
    ],
)  # fmt: skip
def test_another_form_is_refused_with_its_reason(expression: str) -> None:
    with pytest.raises(NotRead) as refused:
        matcher(expression)
    assert 3 < len(str(refused.value)) < 120


def test_work_without_end_is_refused() -> None:
    with pytest.raises(NotRead, match="take too long together"):
        matcher(".*a.*b", effort=1_000).match("a" * 5_000)
    with pytest.raises(NotRead, match="characters with their repeats written out"):
        matcher("((a{1000}){1000}){1000}")


def test_a_brace_that_bounds_nothing_is_a_character() -> None:
    assert matcher("a{x}").match("a{x}")
    assert matcher("a{").match("a{")
    assert not matcher("a{1}").match("b")

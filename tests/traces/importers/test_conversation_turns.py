"""Turns of conversations in other tools' records: their order, what they add, and what is not known."""

from __future__ import annotations

from traces.importers.conversation_turns import NOT_KNOWN, Turn, conversations_of


def turn(name: str | None, place: int | None, prompt: int | None, output: int | None) -> Turn:
    return Turn(conversation=name, turn=place, prompt=prompt, output=output)


def test_a_prompt_that_holds_what_came_before_adds_the_rest() -> None:
    found = conversations_of(
        [
            turn("a", 1, 160, 30),
            turn("b", 0, 90, 10),
            turn("a", 0, 100, 30),
            turn("b", 3, 100, 5),
            turn(None, None, 7, 1),
        ]
    )
    assert found.session == ["a", "b", "a", "b", None]
    assert found.round_index == [1, 0, 0, 1, None]
    assert found.new_input_tokens == [30, 90, 100, 0, None]
    assert len(found.notes) == 1
    assert found.notes[0].startswith("2 conversations of several turns: each prompt is taken to hold")


def test_a_prompt_that_is_too_short_shares_nothing_that_is_known() -> None:
    found = conversations_of(
        [turn("a", 0, 100, 30), turn("a", 1, 129, 5), turn("b", 0, 5, None), turn("b", 1, 50, 5)]
    )
    assert found.session == ["a", "a", "b", "b"]
    assert found.new_input_tokens == [None] * 4
    assert found.columns()["new_input_tokens"] is None
    assert NOT_KNOWN in found.notes[0]


def test_a_conversation_of_one_turn_is_none() -> None:
    found = conversations_of([turn("a", 0, 100, 30), turn("b", 0, 100, 30)])
    assert not found.has_any
    assert found.columns() == {}
    assert found.notes == ()

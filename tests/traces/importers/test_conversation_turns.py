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


def test_a_script_that_is_held_twice_is_two_conversations() -> None:
    said = [turn("a", 0, 100, 30), turn("a", 0, 100, 30), turn("a", 1, 150, 5), turn("a", 1, 160, 5)]
    found = conversations_of(said)
    assert found.session == ["a", "a~2", "a", "a~2"]
    assert found.new_input_tokens == [100, 100, 20, 30]
    assert not conversations_of([turn("a", 0, 100, 30), turn("a", 0, 90, 30)]).has_any


def test_think_times_are_known_where_all_turns_show_them() -> None:
    def at(place: int, sent: int, answered: int | None) -> Turn:
        return Turn(
            conversation="a", turn=place, prompt=10 * place, output=1, sent_us=sent, answered_us=answered
        )

    assert conversations_of([at(0, 0, 50), at(1, 80, 90)]).think_time_us == [None, 30]
    assert conversations_of([at(0, 0, None), at(1, 80, 90)]).think_time_us == [None, None]
    assert conversations_of([at(0, 0, None), at(1, 80, 90)]).columns()["think_time_us"] is None
    assert conversations_of([at(0, 0, 50), at(1, 80, 90)]).columns()["think_time_us"] == [None, 30]
    assert conversations_of([at(0, 0, 50), at(1, 50, 90)]).think_time_us == [None, 0]
    assert conversations_of([at(0, 0, 50), at(1, 40, 90)]).think_time_us == [None, None]


def test_a_conversation_of_one_turn_is_none() -> None:
    found = conversations_of([turn("a", 0, 100, 30), turn("b", 0, 100, 30)])
    assert not found.has_any
    assert found.columns() == {}
    assert found.notes == ()


def test_turns_without_a_number_are_in_the_order_of_the_record() -> None:
    found = conversations_of([turn("a", None, 10, 1), turn("b", None, 10, 1), turn("a", None, 12, 1)])
    assert found.session == ["a", None, "a"]
    assert found.round_index == [0, None, 1]
    assert found.notes[0].startswith("1 conversation of several turns: each prompt is taken to hold")


def test_conversations_of_either_kind_are_counted() -> None:
    held = [turn(name, place, 10 + 20 * place, 5) for name in "ab" for place in (0, 1)]
    apart = [turn(name, place, 10, 5) for name in "cde" for place in (0, 1)]
    found = conversations_of([*held, *apart])
    assert [note.partition(":")[0] for note in found.notes] == [
        "2 conversations of several turns",
        "3 conversations of several turns",
    ]
    assert conversations_of(apart).has_any

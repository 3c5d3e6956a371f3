"""Values of options at the ends of numbers, and paths without a name of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click
import pytest
import typer
import typer.main

from traces.console.values import MOST_INTEGER, refuse_impossible

found: list[object] = []


def command() -> click.Command:
    app = typer.Typer(add_completion=False)

    @app.command()
    def called(
        number: Annotated[float, typer.Option()] = 0.0,
        count: Annotated[int, typer.Option()] = 0,
        output: Annotated[Path | None, typer.Option(metavar="STEM")] = None,
        trace: Annotated[Path | None, typer.Option(metavar="STEM")] = None,
        folder: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
        file: Annotated[Path | None, typer.Option()] = None,
    ) -> None:
        found[:] = [number, count, output, trace, folder, file]

    made = typer.main.get_command(app)
    refuse_impossible(made)  # type: ignore[arg-type] # the library's own
    return made  # type: ignore[no-any-return]


def given(*words: str) -> list[object]:
    command().main(list(words), standalone_mode=False)
    return [each for each in found if each not in (0, None)]


def refusal(*words: str) -> str:
    with pytest.raises(click.BadParameter) as error:
        given(*words)
    return error.value.format_message()


def test_the_largest_integer_is_taken_and_the_next_is_not() -> None:
    assert given("--count", str(MOST_INTEGER)) == [MOST_INTEGER]
    assert given("--count", str(-MOST_INTEGER)) == [-MOST_INTEGER]
    assert f"expected an integer of at most {MOST_INTEGER:,}" in refusal("--count", str(MOST_INTEGER + 1))
    assert given("--number", "1e300") == [1e300]
    assert "got nan, expected a number" in refusal("--number", "nan")


def test_a_folder_stays_as_it_is_where_one_is_meant_and_becomes_its_name_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for option in ("--output", "--folder"):
        assert given(option, ".") == [Path()]
        assert given(option, "..") == [Path("..")]
    for option in ("--trace", "--file"):
        assert given(option, ".") == [tmp_path]
        assert given(option, "..") == [tmp_path.parent]
        assert given(option, "t.csv") == [Path("t.csv")]


@pytest.mark.parametrize(
    ("option", "wanted"),
    [("--trace", "a trace's name"), ("--output", "a trace's name"), ("--file", "a path")],
)
def test_no_name_is_refused_with_what_is_wanted(option: str, wanted: str) -> None:
    assert f"got an empty path (a variable that is not set?), expected {wanted}" in refusal(option, "")
    assert f"got /, expected {wanted}" in refusal(option, "/")
    assert rf"got 'a\x00b', expected {wanted}" in refusal(option, "a\0b")

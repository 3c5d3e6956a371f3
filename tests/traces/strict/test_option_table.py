"""Options that commands share: a table's fields are options, in its place among the command's own."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from traces.strict.option_table import option_table, with_option_tables


@option_table
class Where:
    """Where to."""

    stem: Annotated[Path, typer.Option(help="Write here.")]
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace it.")] = False


@option_table
class How:
    """How often."""

    times: Annotated[int, typer.Option(min=1, help="So often.")] = 2


TOLD: list[tuple[str, Where, float, How]] = []


@with_option_tables
def draw(
    name: Annotated[str, typer.Argument()],
    where: Where,
    *,
    rate: Annotated[float, typer.Option(help="Requests/s.")] = 1.5,
    how: How,
) -> None:
    """Draw something."""
    TOLD.append((name, where, rate, how))


@pytest.fixture
def app() -> typer.Typer:
    TOLD.clear()
    made = typer.Typer()
    made.command()(draw)
    return made


def test_a_command_gets_its_tables_made(app: typer.Typer) -> None:
    asked = ["chat", "--stem", "a/b", "--overwrite", "--rate", "3", "--times", "7"]
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert [("chat", Where(stem=Path("a/b"), overwrite=True), 3.0, How(times=7))] == TOLD


def test_what_is_not_given_is_the_table_s_default(app: typer.Typer) -> None:
    assert CliRunner().invoke(app, ["chat", "--stem", "a"]).exit_code == 0
    assert [("chat", Where(stem=Path("a")), 1.5, How(times=2))] == TOLD


def test_a_field_without_a_default_must_be_given_and_bounds_hold(app: typer.Typer) -> None:
    missing = CliRunner().invoke(app, ["chat"])
    assert (missing.exit_code, "--stem" in missing.output) == (2, True)
    assert CliRunner().invoke(app, ["chat", "--stem", "a", "--times", "0"]).exit_code == 2
    assert TOLD == []


def help_of(app: typer.Typer) -> str:
    return CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120", "NO_COLOR": "1"}).output


def test_the_help_has_each_table_s_options_below_its_heading(app: typer.Typer) -> None:
    told = help_of(app)
    inside = (
        "Draw something.",
        "Options",
        "--rate",
        "Where to",
        "--stem",
        "--overwrite",
        "How often",
        "--times",
    )
    places = [told.index(each, told.index("Draw something.")) for each in inside]
    assert places == sorted(places)


@option_table
class Few:
    """A few."""

    one: Annotated[int, typer.Option(help="1.")] = 1


@option_table
class Many:
    """Many of them."""

    two: Annotated[int, typer.Option(help="2.")] = 2
    three: Annotated[int, typer.Option(help="3.")] = 3
    four: Annotated[int, typer.Option(help="4.", rich_help_panel="Apart")] = 4


@option_table
class Whole:
    """All of it."""

    few: Few = Few()
    many: Many = Many()


@with_option_tables
def count(whole: Whole) -> None:
    """Count."""


def test_a_command_s_only_table_has_no_heading_and_a_large_one_inside_has() -> None:
    made = typer.Typer()
    made.command()(count)
    told = help_of(made)
    assert "All of it" not in told
    assert "A few" not in told
    places = [told.index(each) for each in ("--one", "Many of them", "--two", "--three", "Apart", "--four")]
    assert places == sorted(places)


def test_a_table_does_not_change() -> None:
    table = How(times=3)
    with pytest.raises(AttributeError):
        table.times = 4  # type: ignore[misc]  # which is what must fail
    assert table == How(times=3)


@option_table
class Both:
    """A table with a table within."""

    first: Annotated[int, typer.Option()] = 1
    where: Where
    last: Annotated[int, typer.Option()] = 9


def test_a_table_within_a_table_has_its_options_in_its_place() -> None:
    told: list[Both] = []
    app = typer.Typer()

    @app.command()
    @with_option_tables
    def draw_both(asked: Both) -> None:
        told.append(asked)

    options = list(inspect.signature(draw_both).parameters)
    assert options == ["first", "stem", "overwrite", "last"]
    assert CliRunner().invoke(app, ["--stem", "a", "--last", "3"]).exit_code == 0
    assert told == [Both(first=1, where=Where(stem=Path("a")), last=3)]


def test_a_command_may_return_its_table() -> None:
    @with_option_tables
    def given(how: How) -> How:
        return how

    assert given(times=4) == How(times=4)

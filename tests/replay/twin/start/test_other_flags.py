"""An option that only another tool has is answered with vtwin's own way to say it, and that way exists."""

from __future__ import annotations

import click
import pytest
import typer

import vtwin
from replay.twin.config_keys import all_keys
from replay.twin.start.other_flags import KEYS, OPTIONS, own_way


def options_of(command: click.Command) -> set[str]:
    """Return every option of a command and of those below it."""
    found = {name for each in command.params for name in each.opts}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found |= options_of(below)
    return found


def test_every_key_and_every_option_that_is_named_exists() -> None:
    paths = {key.path for key in all_keys()} | {"cluster.pools", "cluster.routing.scorers"}
    assert {key for key in KEYS.values() if key not in paths} == set()
    whole = typer.main.get_command(vtwin.build_app(list(vtwin.COMMANDS)))
    assert set(OPTIONS.values()) <= options_of(whole)


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--total-kv-blocks", "engine.num_gpu_blocks in TWIN.yaml, or --set engine.num_gpu_blocks=…"),
        ("--max-num-seqs", "engine.max_num_seqs in TWIN.yaml, or --set engine.max_num_seqs=…"),
        ("--num-instances", "use --instances"),
        ("--routing-policy", "use --routing"),
        ("--replica_scheduler_config_type", "engine.batching in TWIN.yaml"),
    ],
)
def test_another_tool_s_flag_is_answered_with_our_own(
    flag: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main(["run", flag, "4"]) == 2
    line = capsys.readouterr().err
    assert flag in line
    assert says in " ".join(line.split())


def test_a_flag_of_nobody_s_and_an_option_that_this_command_lacks_get_no_hint() -> None:
    assert own_way("--no-such-flag", {"--set"}) is None
    assert own_way("--num-instances", {"--set"}) is None

"""Old spellings of commands and options are read as the new ones, and told in a line on stderr."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vtwin
from tests.twins import EIGHT_SEATS_ALONE
from traces.console.old_spellings import NewCommand, in_new_words

COMMANDS = {("old", "one"): NewCommand(words=("new", "--kind", "one"), options={"--many": "--one"})}
SPELLINGS = [
    (["split", "--rate", "60"], ["size", "--layout", "split", "--rate", "60"]),
    (
        ["disagg", "--rate", "60", "--no-verify"],
        ["size", "--layout", "disagg", "--rate", "60", "--no-verify"],
    ),
    (["whatif", "--rates", "60"], ["size", "--compare", "--rate", "60"]),
    (["whatif", "--rates", "50,90"], ["size", "--rate", "50,90"]),
]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, list[str]]:
    """Return the exit code, what stands on stdout, and the lines on stderr that tell of a new spelling."""
    capsys.readouterr()
    code = vtwin.main(list(words))
    said = capsys.readouterr()
    return code, said.out, [line for line in said.err.splitlines() if " is now " in line]


@pytest.fixture
def cdf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with lengths and two pools."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cdf.json").write_text(json.dumps([[300, 0.5], [1500, 0.9], [6000, 1.0]]))
    (tmp_path / "pools.yaml").write_text(
        "pools: [{name: s, profile: A100, up_to: 2048}, {name: l, profile: A100, up_to: 8192}]"
    )
    return tmp_path


@pytest.mark.parametrize(("old", "new"), SPELLINGS)
@pytest.mark.parametrize("limit", ["2s", "1ms"])
@pytest.mark.usefixtures("cdf")
def test_the_parts_of_fleet_size_answer_by_their_old_names(
    old: list[str], new: list[str], limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ["--workload", "cdf.json", "--slo", f"ttft_p99={limit}", "--json"]
    profile = "--profiles" if old[0] == "whatif" else "--profile"
    before = told(capsys, "fleet", *old, *both, profile, "A100")
    after = told(capsys, "fleet", *new, *both, "--profile", "A100")
    assert before[:2] == after[:2]
    assert after[2] == []
    assert before[2][0].startswith(f"note: `vtwin fleet {old[0]}` is now `vtwin fleet size --")


@pytest.mark.usefixtures("cdf")
def test_pools_are_a_layout_and_their_file_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [
        "pools.yaml",
        "--workload",
        "cdf.json",
        "--rate",
        "9",
        "--slo",
        "ttft_p99=2s",
        "--no-verify",
        "--json",
    ]
    old = told(capsys, "fleet", "pools", *asked)
    assert old[2] == ["note: `vtwin fleet pools` is now `vtwin fleet size --layout pools`"]
    for new in (["--layout", "pools"], []):
        assert told(capsys, "fleet", "size", *new, *asked) == (*old[:2], [])
    assert [each["name"] for each in json.loads(old[1])["pools"]] == ["s", "l"]


@pytest.mark.usefixtures("cdf")
def test_the_help_of_fleet_has_the_new_names_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["fleet", "--help"]) == 0
    shown = capsys.readouterr().out
    for name in ("split", "disagg", "whatif", "pools"):
        assert f" {name} " not in shown
    assert all(f" {name} " in shown for name in ("size", "routers", "flex", "reserve", "profile"))


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (["--router", "random"], "--router: got it with --layout one-pool, expected --layout pools"),
        (["--rate", "5,6", "--router", "random"], "--router: got it with --compare, expected --layout pools"),
        (["--layout", "disagg", "--rate", "5,6"], "--rate: got 2 with --layout disagg, expected one"),
        (["--layout", "pools"], "--profile: got it with --layout pools"),
        (
            ["--layout", "split", "--report", "p.html"],
            "--report: got it with --layout split without --split TOKENS",
        ),
        (["--layout", "one-pool", "--split", "900"], "--split: got it with --layout one-pool"),
        (["--kv-bandwidth", "9"], "--kv-bandwidth: got it with --layout one-pool, expected --layout disagg"),
        (["--layout", "disagg", "--compare"], "--compare: got it with --layout disagg"),
    ],
)
@pytest.mark.usefixtures("cdf")
def test_an_option_of_another_layout_is_refused(
    asked: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "fleet",
        "size",
        "--workload",
        "cdf.json",
        "--slo",
        "ttft_p99=2s",
        "--rate",
        "9",
        "--profile",
        "A100",
    ]
    assert vtwin.main([*words, *asked]) == 2
    assert complaint in capsys.readouterr().err


def test_lengths_from_is_like_in_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twin, stem = tmp_path / "twin.yaml", str(tmp_path / "t")
    twin.write_text(EIGHT_SEATS_ALONE)
    assert vtwin.main(["trace", "synth", "--rate", "5", "--num-requests", "50", "--output", stem]) == 0
    search = [
        "--config",
        str(twin),
        "--slo",
        "ttft_p99=2s",
        "--num-requests",
        "300",
        "--seeds",
        "1",
        "--json",
    ]
    for words in (
        ["trace", "synth", "--rate", "5", "--output", str(tmp_path / "drawn")],
        ["run", "--rate", "5", "--config", str(twin)],
        ["capacity", *search],
    ):
        new, old = told(capsys, *words, "--like", stem), told(capsys, *words, "--lengths-from", stem)
        assert new[0] == old[0] == 0
        assert new[1].partition('"engine_cpu_s"')[0] == old[1].partition('"engine_cpu_s"')[0]
        assert (new[2], old[2]) == ([], ["note: `--lengths-from` is now `--like`"])


def test_words_are_replaced_where_they_are_options() -> None:
    assert in_new_words(["old", "one", "--many=3", "x"], COMMANDS) == ["new", "--kind", "one", "--one=3", "x"]
    assert in_new_words(["run", "--", "--lengths-from"], COMMANDS) == ["run", "--", "--lengths-from"]
    assert in_new_words(["old", "two", "--many"], COMMANDS) == ["old", "two", "--many"]

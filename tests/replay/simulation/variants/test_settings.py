"""``--set`` and variants side by side: each is the simulation that a file with that value gives."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vtwin
from replay.simulation import simulated_run
from replay.simulation.variants.no_answer import mark_unanswered, unanswered_notes
from replay.simulation.variants.simulated import IDLE_END
from replay.timeline.watch_engine import ServerLooks, counted, short_of, waits_by_cause
from replay.twin.config_read import load_config
from replay.twin.keys.overlay import Setting, notes_of_variants, parse_settings, split_values, variants_of
from traces import ConfigError, read_trace
from traces.facts import SideBySide, terminal_lines
from traces.units import shown_time

CONFIG = """\
engine: {max_num_seqs: 16, max_num_batched_tokens: 256, num_gpu_blocks: 100, max_model_len: 300,
  async_scheduling: false}
latency:
  model: blackbox
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 3000, beta1: 10, beta2: 20}
"""
RUN = (
    *("run", "--config", "twin.yaml", "--rate", "60", "--num-requests", "60"),
    *("--prompt-tokens", "60", "--output-tokens", "20"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twin.yaml").write_text(CONFIG)
    return tmp_path


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    capsys.readouterr()
    assert vtwin.main([*arguments, "--json"]) == 0
    loaded: dict[str, object] = json.loads(capsys.readouterr().out)
    loaded.pop("engine_cpu_s", None)
    return loaded


# -- reading --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("64", ["64"]),
        ("32, 64,128", ["32", "64", "128"]),
        ("[0.8,0.6]", ["[0.8,0.6]"]),
        ("[0.8,0.6],[0.5]", ["[0.8,0.6]", "[0.5]"]),
        ("{a: 1, b: 2}", ["{a: 1, b: 2}"]),
        ("'a,b',c", ["'a,b'", "c"]),
        ('"a,b"', ['"a,b"']),
        ("", [""]),
    ],
)
def test_commas_part_values_but_not_in_brackets_or_quotes(text: str, values: list[str]) -> None:
    assert split_values(text) == values


@given(st.lists(st.text(alphabet="abc019.-", min_size=1), min_size=1))
def test_plain_values_are_parted_as_they_were_joined(values: list[str]) -> None:
    assert split_values(",".join(values)) == values


def test_every_combination_is_a_variant_the_last_key_changing_fastest() -> None:
    found = variants_of(parse_settings(["engine.a=1,2", "engine.b=x,y"]))
    assert [" ".join(map(str, each)) for each in found] == [
        "engine.a=1 engine.b=x",
        "engine.a=1 engine.b=y",
        "engine.a=2 engine.b=x",
        "engine.a=2 engine.b=y",
    ]


@pytest.mark.usefixtures("folder")
def test_what_lacks_beside_a_setting_is_told_where_its_section_begins(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert vtwin.main([*RUN, "--set", "engine.num_speculative_tokens=3"]) == 2
    assert capsys.readouterr().err.strip().endswith("or one (twin.yaml:1)")


@pytest.mark.parametrize(
    "text", ["", "engine", "=3", "engine.=3", "engine.a=", "engine.a=1,,2", "engine.a=1,1"]
)
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--set"):
        parse_settings([text])


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        parse_settings(["engine.a=1", "engine.a=2"])


# -- what a setting does --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "instead"),
    [
        (Setting("engine.max_num_seqs", "3"), ("max_num_seqs: 16", "max_num_seqs: 3")),
        (
            Setting("engine.enable_prefix_caching", "false"),
            ("engine: {", "engine: {enable_prefix_caching: false, "),
        ),
        (Setting("latency.coefficients.beta0", "9.5"), ("beta0: 3000", "beta0: 9.5")),
        (Setting("seed", "7"), ("latency:", "seed: 7\nlatency:")),
        (Setting("engine.num_gpu_blocks", "null"), ("num_gpu_blocks: 100, ", "")),
        (Setting("cluster.instances", "2"), ("latency:", "cluster: {instances: 2}\nlatency:")),
        (
            Setting("engine", "{max_num_seqs: 4}"),
            (CONFIG[: CONFIG.index("latency")], "engine: {max_num_seqs: 4}\n"),
        ),
    ],
)
def test_a_setting_is_the_file_with_that_value(
    folder: Path, setting: Setting, instead: tuple[str, str]
) -> None:
    assert instead[0] in CONFIG
    (folder / "other.yaml").write_text(CONFIG.replace(*instead))
    given_by_option = load_config("twin.yaml", settings=[setting])
    assert given_by_option == load_config("other.yaml")
    assert given_by_option != load_config("twin.yaml")


def test_a_setting_reaches_into_a_list_of_pools(folder: Path) -> None:
    pools = "cluster: {pools: [{name: a}, {name: b, engine: {max_num_seqs: 4}}]}\n"
    (folder / "twin.yaml").write_text(CONFIG + pools)
    twin = load_config("twin.yaml", settings=[Setting("cluster.pools[1].engine.max_num_seqs", "8")])
    assert [pool.engine.max_num_seqs for pool in twin.cluster.pools] == [16, 8]
    with pytest.raises(ConfigError, match="one of the 2 in the file"):
        load_config("twin.yaml", settings=[Setting("cluster.pools[2].name", "c")])


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("engine.max_num_seq=3", "engine.max_num_seq: unknown key, did you mean engine.max_num_seqs?"),
        ("max_num_seqs=3", "max_num_seqs: unknown key, did you mean engine.max_num_seqs?"),
        ("engine.max_num_seqs=no", 'engine.max_num_seqs: got "no", expected an integer >= 1'),
        ("engine.max_num_seqs=[1]", "engine.max_num_seqs: got a list"),
        ("engine.num_gpu_blocks=1", "engine.num_gpu_blocks: got 1"),
        ("latency.coefficients.beta9=1", "latency.coefficients.beta9: unknown key"),
        ("engine.max_num_seqs={", "YAML"),
        ("hardware.gpu=H1000", "hardware.gpu: got 'H1000', expected a GPU of the table"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_wrong_setting_is_refused_as_the_file_would_be_and_named(
    capsys: pytest.CaptureFixture[str], setting: str, complaint: str
) -> None:
    assert vtwin.main([*RUN, "--set", setting]) == 2
    told = capsys.readouterr().err
    assert complaint in told
    assert f"--set {setting}" in told
    assert told.count("\n") == 1


# -- variants -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_each_variant_is_the_run_with_that_setting_alone(capsys: pytest.CaptureFixture[str]) -> None:
    together = document(capsys, *RUN, "--set", "engine.max_num_seqs=2,16")
    variants = together["variants"]
    assert isinstance(variants, list)
    for value, variant in zip(("2", "16"), variants, strict=True):
        alone = document(capsys, *RUN, "--set", f"engine.max_num_seqs={value}")
        assert variant["set"] == {"engine.max_num_seqs": value}
        del variant["engine_cpu_s"]
        shared = {key: alone[key] for key in alone if key not in ("latency", "over_time", "warnings")}
        assert {key: variant[key] for key in shared} == shared
    assert variants[0]["waits_for"] == "seats"
    assert variants[0]["seats_in_use"]["max"] == 2


@pytest.mark.usefixtures("folder")
def test_the_file_as_it_is_stands_beside_several_changes_made_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ("--base", "--set", "engine.max_num_seqs=2", "--set", "engine.max_num_batched_tokens=64")
    base, changed = document(capsys, *RUN, *given)["variants"]  # type: ignore[misc]
    assert (base["set"], set(changed["set"])) == (
        {},
        {"engine.max_num_seqs", "engine.max_num_batched_tokens"},
    )
    assert base["ttft_us"] == document(capsys, *RUN)["ttft_us"] != changed["ttft_us"]
    assert vtwin.main([*RUN, *given]) == 0
    rows = [line.split("  ") for line in capsys.readouterr().out.splitlines()[:2]]
    cells = [[cell.strip() for cell in row if cell] for row in rows]
    assert cells == [["max_num_batched_tokens", "of twin.yaml", "64"], ["max_num_seqs", "of twin.yaml", "2"]]
    assert vtwin.main([*RUN, "--base"]) == 2
    assert "--base: got it without --set" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_run_that_keeps_up_and_misses_its_limits_says_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main([*RUN, "--slo", "ttft=1us"]) == 0
    assert "only 0.0% of the requests meet the SLO" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_a_sweep_is_a_run_per_rate(capsys: pytest.CaptureFixture[str]) -> None:
    options = (
        "--num-requests",
        "40",
        "--output-tokens",
        "5",
        "--prompt-tokens",
        "50",
        "--config",
        "twin.yaml",
    )
    together = document(capsys, "run", "--sweep", "5,50", *options)
    for rate, variant in zip(("5", "50"), together["variants"], strict=True):  # type: ignore[arg-type]
        alone = document(capsys, "run", "--rate", rate, *options)
        assert variant["ttft_us"] == alone["ttft_us"]
        assert variant["set"] == {"rate": rate}


@pytest.mark.usefixtures("folder")
def test_gaps_between_tokens_stand_in_the_table_and_a_sweep_without_an_end_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = [
        "--num-requests",
        "300",
        "--output-tokens",
        "5",
        "--prompt-tokens",
        "50",
        "--config",
        "twin.yaml",
    ]
    for rates, is_said in (("0.1,0.2", True), ("0.1,100000", False)):
        found = document(capsys, "run", "--sweep", rates, *options)
        assert vtwin.main(["run", "--sweep", rates, *options]) == 0
        shown = capsys.readouterr().out
        (row,) = [line for line in shown.splitlines() if line.startswith("ITL p99")]
        first = found["variants"][0]["itl_us"]["p99"]  # type: ignore[index]
        assert row.split("  ")[0] == "ITL p99"
        assert shown_time(first) in row
        assert ("the highest that was tried, is kept up with" in shown) is is_said


def test_traces_of_variants_go_into_a_folder(folder: Path) -> None:
    assert vtwin.main([*RUN, "--set", "engine.max_num_seqs=2,16", "--output", "out"]) == 0
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "max_num_seqs-16.csv",
        "max_num_seqs-16.yaml",
        "max_num_seqs-2.csv",
        "max_num_seqs-2.yaml",
    ]
    assert vtwin.main([*RUN, "--set", "engine.max_num_seqs=2", "--output", "alone"]) == 0
    assert (folder / "alone.csv").read_bytes() == (folder / "out/max_num_seqs-2.csv").read_bytes()


@pytest.mark.usefixtures("folder")
def test_without_output_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    before = set(Path().iterdir())
    assert vtwin.main(list(RUN)) == 0
    assert set(Path().iterdir()) == before
    assert "throughput" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_the_table_names_what_differs_and_shows_figures_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--set", "engine.max_num_seqs=2,16", "--set", "engine.num_gpu_blocks=100")
    assert vtwin.main([*RUN, *given]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["max_num_seqs", "2", "16"]
    assert "num_gpu_blocks" not in " ".join(out)
    names = [line.partition("  ")[0] for line in out]
    for name in (
        "requests/s",
        "TTFT p99",
        "TPOT p50",
        "E2E p99",
        "seats in use",
        "KV in use",
        "queue waits for",
    ):
        assert name in names


@pytest.mark.usefixtures("folder")
def test_a_question_without_an_answer_is_marked_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    for setting, starred in (
        ("engine.async_scheduling=false,true", True),
        ("engine.max_num_seqs=2,4", False),
    ):
        assert vtwin.main([*RUN, "--set", setting]) == 0
        head, *rest = capsys.readouterr().out.splitlines()
        assert head.split()[1:] == (["false", "true", "*"] if starred else ["2", "4"])
        assert any(line.startswith("* no answer here") for line in rest) is starred
    keys = [("engine.async_scheduling",), ()]
    columns = mark_unanswered([{"key": "false", "b": "1"}, {"key": "true", "b": "2"}], keys)
    assert "engine.async_scheduling" in unanswered_notes(keys)[0]
    assert unanswered_notes([(), ()]) == []
    assert columns == [{"key": "false *", "b": "1"}, {"key": "true", "b": "2"}]


@pytest.mark.usefixtures("folder")
def test_the_table_says_why_less_is_answered_than_offered(capsys: pytest.CaptureFixture[str]) -> None:
    for tokens, is_told in (("1", False), ("100", True)):
        options = ["--set", "engine.max_num_seqs=64,128", "--prompt-tokens", "20", "--output-tokens", tokens]
        assert (
            vtwin.main(["run", "--config", "twin.yaml", "--rate", "20", "--num-requests", "40", *options])
            == 0
        )
        out = capsys.readouterr().out.splitlines()
        assert ["offered", "20", "20"] in [line.split() for line in out]
        assert (IDLE_END in out) is is_told


@pytest.mark.usefixtures("folder")
def test_what_one_simulation_writes_is_refused_for_several(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main([*RUN, "--set", "engine.max_num_seqs=2,4", "--steps", "s.jsonl"]) == 2
    assert "--steps: cannot be combined with several variants" in capsys.readouterr().err


@pytest.mark.parametrize("width", [60, 80, 100, 120, None])
def test_columns_that_do_not_fit_stand_below_and_no_cell_is_cut(width: int | None) -> None:
    columns = [{"name": f"variant-{i}", "requests/s": f"{1234.5 * i:,.1f}"} for i in range(9)]
    lines = terminal_lines([SideBySide(columns)], width=width)
    assert width is None or max(map(len, lines)) <= width
    words = " ".join(lines).split()
    for each in columns:
        assert set(each.values()) <= set(words)
    if width is None:
        assert len(lines) == 2


# -- what is in use -------------------------------------------------------------------------------------------


def test_what_is_in_use_agrees_with_the_requests_own_times(folder: Path) -> None:
    assert vtwin.main([*RUN[:1], *RUN[1:], "--output", "s"]) == 0
    twin = load_config(folder / "twin.yaml")
    trace = read_trace("s")
    done = simulated_run.run(trace, twin)
    simulation, looked = done.simulation, done.usage
    known = counted(simulation.outcomes, duration_us=simulation.duration_us, num_seats=16)
    assert simulation.num_preemptions == 0
    # A step's results are seen at its end, its begin when it is scheduled: a step's worth of difference at most.
    assert abs(looked.running.mean() - known.running.mean()) < 0.5
    assert looked.running.max() <= 16
    assert looked.kv_frac is not None
    assert 0 < looked.kv_frac.max() <= 1


def test_the_queue_waits_for_what_is_short() -> None:
    ones = np.ones(10)

    def short(running: float, kv: float, waiting: float = 1.0) -> str:
        looks = ServerLooks(waiting=waiting * ones, running=running * ones, kv_frac=kv * ones, num_seats=8)
        return short_of(looks)

    assert short(8, 0.5) == "seats"
    assert short(5, 0.97) == "KV blocks"
    assert short(5, 0.5) == "step time"
    assert short(8, 0.97, waiting=0) == "none"


def test_requests_times_time_decide_what_the_queue_waits_for() -> None:
    """Two hundred wait for KV blocks at four looks in a hundred; at sixty others one waits for the next step."""
    waiting = np.r_[np.full(4, 200.0), np.ones(60), np.zeros(36)]
    kv = np.r_[np.full(4, 0.95), np.full(96, 0.4)]
    looks = ServerLooks(waiting=waiting, running=np.full(100, 6.0), kv_frac=kv, num_seats=8)
    assert waits_by_cause(looks) == {"seats": 0.0, "KV blocks": 800.0, "step time": 60.0}
    assert short_of(looks) == "KV blocks"
    lasts = np.r_[np.full(4, 0.01), np.ones(96)]
    assert short_of(replace(looks, lasts_us=lasts)) == "step time"


def test_a_prompt_waits_for_blocks_where_fewer_are_free_than_it_needs() -> None:
    ones = np.ones(10)
    looks = ServerLooks(waiting=ones, running=2 * ones, kv_frac=0.7 * ones, num_seats=8, need_frac=0.4 * ones)
    assert short_of(looks) == "KV blocks"
    assert short_of(replace(looks, need_frac=0.2 * ones)) == "step time"


@pytest.mark.parametrize(("seats", "blocks", "waits"), [(64, 40, "KV blocks"), (3, 2000, "seats")])
@pytest.mark.usefixtures("folder")
def test_a_cluster_waits_for_what_one_server_with_its_share_of_the_load_waits_for(
    capsys: pytest.CaptureFixture[str], seats: int, blocks: int, waits: str
) -> None:
    settings = ("--set", f"engine.max_num_seqs={seats},128", "--set", f"engine.num_gpu_blocks={blocks}")
    load = ("run", "--config", "twin.yaml", "--prompt-tokens", "60", "--output-tokens", "100")
    for rate, more in (("60", ()), ("120", ("--instances", "2"))):
        found: Any = document(capsys, *load, "--rate", rate, "--num-requests", "300", *more, *settings)
        first = found["variants"][0]
        assert first["waits_for"] == waits
        assert (first["num_preemptions"] > 0) is (waits == "KV blocks")


SCALED = """\
cluster:
  instances: 1
  routing: {policy: least-loaded}
  cost_per_gpu_hour: 3600
  startup: {loading_us: 300000}
  autoscaler: {policy: target, target: 6, max_instances: 4, interval_us: 200000, down_window_us: 1000000}
"""


def test_variants_of_an_autoscaler_say_what_they_cost(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "twin.yaml").write_text(CONFIG + SCALED)
    load = (
        *("run", "--config", "twin.yaml", "--rate", "100", "--num-requests", "400"),
        *("--output-tokens", "40", "--prompt-tokens", "60"),
    )
    asked = (*load, "--set", "cluster.autoscaler.max_instances=1,4")
    found: Any = document(capsys, *asked)
    small, large = found["variants"]
    single: Any = document(capsys, *load)
    alone = single["infrastructure"]
    assert large["infrastructure"] == alone
    assert large["ttft_us"] == single["ttft_us"]
    most = alone["pools"][0]["instances_most"]
    assert most > 1
    assert small["num_seats_up_mean"] == 16
    # Seats of instances that load the model are paid for and serve nobody.
    mean = alone["pools"][0]["instances_mean"]
    assert 16 < large["num_seats_up_mean"] < 16 * mean < large["num_seats"] == 64
    assert vtwin.main([*asked]) == 0
    rows = {line[:17].strip(): line[17:].split() for line in capsys.readouterr().out.splitlines()}
    assert rows["most at once"] == ["1", str(most)]
    assert rows["size changes"] == ["0", str(len(alone["scaling"]))]
    assert rows["cost"][1] == f"{alone['cost']:,.2f}"
    assert "failures" not in rows


@pytest.mark.usefixtures("folder")
def test_one_run_without_an_answer_says_so_where_its_figures_are(capsys: pytest.CaptureFixture[str]) -> None:
    for value, is_told in (("true", True), ("false", False)):
        assert vtwin.main([*RUN, "--set", f"engine.async_scheduling={value}"]) == 0
        assert ("no answer here to engine.async_scheduling" in capsys.readouterr().out) is is_told


@pytest.mark.parametrize(
    ("value_us", "shown"),
    [
        (433_391_000, "7.22 min"),
        (7_970, "7.97 ms"),
        (999_600, "1 s"),
        (999.6, "1 ms"),
        (1_210_000, "1.21 s"),
        (90e6, "90 s"),
        (2 * 3.6e9, "2 h"),
        (492, "492 µs"),
        (0, "0 ms"),
        (float("nan"), "-"),
    ],
)
def test_times_have_the_unit_in_which_people_read_them(value_us: float, shown: str) -> None:
    assert shown_time(value_us) == shown


# -- capacity -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_capacities_side_by_side_are_those_of_each_setting(capsys: pytest.CaptureFixture[str]) -> None:
    ask = (
        *("capacity", "--config", "twin.yaml", "--slo", "ttft_p99=200ms", "--seeds", "2"),
        *("--num-requests", "200", "--prompt-tokens", "60", "--output-tokens", "20"),
    )
    together = document(capsys, *ask, "--set", "engine.max_num_seqs=2,16")["variants"]
    alone = document(capsys, *ask, "--set", "engine.max_num_seqs=2")
    assert together[0]["rate"] == alone["rate"] < together[1]["rate"]  # type: ignore[index, operator]
    assert vtwin.main([*ask, "--set", "engine.max_num_seqs=2,16"]) == 0
    assert "bound by" in capsys.readouterr().out


@pytest.mark.parametrize(
    "varied", ["engine.max_num_seqs=2,8,32", "engine.scheduling_policy=fcfs,sjf", "cluster.instances=1,2"]
)
def test_a_page_compares_the_variants_with_the_table_s_figures(
    varied: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*RUN, "--set", varied, "--slo", "ttft=200ms"]
    values = varied.partition("=")[2].split(",")
    assert vtwin.main([*arguments, "--report", "page.html"]) == 0
    shown, page = capsys.readouterr().out, (folder / "page.html").read_text()
    assert f"<h1>{len(values)} variants of " in page
    cells = [
        re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in re.findall(r"<tr.*?</tr>", page, re.DOTALL)
    ]
    by_name = {row[0].strip("\u2003"): row[1:] for row in cells}
    lines = {
        re.split(r"  +", line.strip())[0]: re.split(r"  +", line.strip())[1:]
        for line in shown.splitlines()
        if line
    }
    assert next(iter(lines.values())) == values
    assert {name: by_name[name] for name in lines if len(lines[name]) == len(values)} == {
        name: each for name, each in lines.items() if len(each) == len(values)
    }
    assert len(by_name["KV in use"]) == len(values)
    assert "-" not in by_name["KV in use"]
    for name in ("median", "simulated"):
        dots = re.findall(rf'class="dots run {name}" d="([^"]*)"', page)
        assert [drawn.count("h0") for drawn in dots[:3]] == [len(values)] * 3
    assert "limit 200 ms" in page
    assert "NaN" not in page
    assert re.findall(r'(?:src|href)="(?!#)', page) == []


@pytest.mark.usefixtures("folder")
def test_a_note_of_many_variants_is_told_once_with_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    values = ",".join(map(str, range(2, 202)))
    vtwin.main([*RUN, "--prompt-tokens", "4000", "--set", f"engine.num_gpu_blocks={values}"])
    notes = [line for line in capsys.readouterr().err.splitlines() if "vLLM would refuse to start" in line]
    assert len(notes) == 1
    assert "; so in 18 of 200 variants, with other numbers" in notes[0]


def test_notes_that_all_variants_have_need_no_number() -> None:
    assert notes_of_variants([("a 1",)]) == ["a 1"]
    assert notes_of_variants([("a 1", "b")] * 3) == ["a 1", "b"]
    assert notes_of_variants([("a 1",), ("b",), ()]) == ["a 1", "b"]
    assert notes_of_variants([("b",), ("b",), ()]) == ["b; so in 2 of 3 variants"]
    assert notes_of_variants([("a 1",), ("a 2,000.5", "b")]) == [
        "a 1; so in 2 of 2 variants, with other numbers",
        "b",
    ]


@pytest.mark.parametrize(
    "asked",
    [
        *("engine={a:1}", "engine.kv_cache_groups=[{kind:full}]", "cluster={routing:{policy:random}}"),
        *("{a:1}", "cluster={instances:2,routing:{policy:random}}"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_mapping_that_lost_its_quotes_is_told_so(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--config", "twin.yaml", "--rate", "5", "--num-requests", "2", "--set"]
    assert vtwin.main([*words, asked]) == 2
    assert "quotes" in (line := capsys.readouterr().err.splitlines()[-1])
    assert line.endswith("""--set 'cluster={"instances": 4}'""")


@pytest.mark.parametrize("asked", ['cluster={"instances":2}', "cluster={instances: 2}"])
@pytest.mark.usefixtures("folder")
def test_a_mapping_in_quotes_or_with_spaces_is_read(asked: str) -> None:
    words = [
        "run",
        "--config",
        "twin.yaml",
        "--rate",
        "5",
        "--num-requests",
        "2",
        "--prompt-tokens",
        "9",
        "--output-tokens",
        "3",
        "--set",
    ]
    assert vtwin.main([*words, asked]) == 0


@pytest.mark.usefixtures("folder")
def test_a_mapping_that_the_shell_made_several_words_of_is_told_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [
        "--set",
        "cluster=instances:2",
        "cluster=seed:3",
    ]  # what a shell makes of cluster={instances:2,seed:3}
    assert vtwin.main(["run", "--config", "twin.yaml", "--rate", "5", *words]) == 2
    assert "--set: got cluster=seed:3 as a word of its own, expected quotes" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_table_over_numbers_of_sessions_has_the_number_above_each_column(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [
        "run",
        "--config",
        "twin.yaml",
        "--rate",
        "5",
        "--num-requests",
        "12",
        "--rounds",
        "2",
        "--seed",
        "1",
    ]
    words += ["--prompt-tokens", "40", "--output-tokens", "10", "--sessions", "2,4"]
    assert vtwin.main(words) == 0
    told = capsys.readouterr().out
    rows = {row.split("  ")[0].strip(): row.split()[-2:] for row in told.splitlines()}
    assert rows["sessions"] == ["2", "4"]
    assert "sessions complete" in rows
    assert "answers set the pace" in told


@pytest.mark.usefixtures("folder")
def test_the_option_of_a_policy_and_its_own_settings_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    scorers = ["--set", "cluster.routing.scorers={queue-depth: 1, running-requests: 2}"]
    asked = [*RUN, "--instances", "2"]
    by_option = document(capsys, *asked, "--routing", "weighted", *scorers)
    by_key = document(capsys, *asked, "--set", "cluster.routing.policy=weighted", *scorers)
    assert by_option["e2e_us"] == by_key["e2e_us"]
    assert by_option["e2e_us"] != document(capsys, *asked)["e2e_us"]

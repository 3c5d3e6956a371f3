"""What a fit writes beside its coefficients, by hand: ranges and how far a run is beyond them, errors, flags, tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from replay.twin.config_read import load_config
from replay.twin.fitted.fitted_on import FittedLoad, FittedOn, read_fitted_on
from replay.twin.fitted.fitted_range import (
    FittedRange,
    _inner,
    _ninety_ninth_of_few,
    _rate_over,
    _running,
    _widened,
    note_of_runs,
    open_loop_rate,
    range_of,
    range_of_run,
    read_fitted_range,
    union,
    ways_beyond,
)
from replay.twin.fitted.fitted_tiles import check_has_tiles, read_tiles, tiles_lines
from replay.twin.fitted.held_out import HeldOut, read_held_out
from replay.twin.fitted.leaves import AskedServer, same_gpu, same_model, same_version, ways_out
from replay.twin.fitted.pace import Pace, read_pace
from replay.twin.fitted.written_server import NOT_WRITTEN, NamedServer, named_server, text_with_server
from traces import ClosedLoop, ConfigError, Header, Trace, make_trace
from traces.strict.section import section_of_text

S = 1_000_000
NAN = float("nan")
section = partial(section_of_text, file="twin.yaml")


def run(
    sent_us: Sequence[int],
    *,
    e2e_us: int = S // 2,
    instances: Sequence[str | None] | None = None,
    failed: int = 0,
    loop: ClosedLoop | None = None,
) -> Trace:
    """Return requests of 100 tokens and 10 tokens of output, the last ``failed`` of them not finished."""
    sent, n = np.asarray(sent_us), len(sent_us)
    columns: dict[str, object] = {
        "request_id": [str(each) for each in range(n)],
        "arrival_time_us": sent,
        "send_time_us": sent,
        "first_token_time_us": sent + 1000,
        "last_token_time_us": sent + e2e_us,
        "input_tokens": np.full(n, 100),
        "output_tokens": np.full(n, 10),
        "status": ["ok"] * (n - failed) + ["error"] * failed,
    }
    if instances is not None:
        columns["instance"] = instances
    return make_trace(Header(tool="vtwin", mode="simulated", closed_loop=loop), columns)


def test_a_server_runs_no_more_requests_than_it_has_seats() -> None:
    seen = FittedRange(concurrency=(10.0, 80.0), rate_per_s=(1.0, 2.0))
    assert seen.within(64) == FittedRange(concurrency=(10.0, 64.0), rate_per_s=(1.0, 2.0))
    assert seen.within(4).concurrency == (4.0, 4.0)
    assert FittedRange().within(4).is_empty()
    assert not seen.is_empty()


def test_several_ranges_are_one_from_the_lowest_to_the_highest() -> None:
    parts = [
        FittedRange(rate_per_s=(2.0, 3.0), prompt_tokens=(7.0, 20.0)),
        FittedRange(rate_per_s=(1.0, 4.0), prompt_tokens=(5.0, 9.0)),
        FittedRange(rate_per_s=(1.5, 2.0)),
    ]
    assert union(parts) == FittedRange(rate_per_s=(1.0, 4.0), prompt_tokens=(5.0, 20.0))
    assert union([]).is_empty()


@pytest.mark.parametrize(
    ("seen", "asked", "told"),
    [
        (10.0, 10.99, None),
        (10.0, 11.0, "load by a factor 1.1 (11 requests/s, fitted up to 10)"),
        (0.5, 2.0, "load by a factor 4.0 (2 requests/s, fitted up to 0.5)"),
        (0.0, 2.0, None),
    ],
)
def test_a_tenth_more_than_the_fitted_load_is_beyond_it(seen: float, asked: float, told: str | None) -> None:
    fitted, other = FittedRange(rate_per_s=(0.0, seen)), FittedRange(rate_per_s=(0.0, asked))
    assert ways_beyond(fitted, other) == ([] if told is None else [told])
    assert ways_beyond(fitted, FittedRange()) == ways_beyond(FittedRange(), other) == []


def test_the_note_is_of_the_furthest_variant_and_of_the_fullest_instance() -> None:
    fitted = FittedRange(rate_per_s=(1.0, 10.0))
    runs = [FittedRange(rate_per_s=(rate, rate)) for rate in (5.0, 30.0)]
    beyond = "load by a factor 3.0 (30 requests/s, fitted up to 10)"
    assert note_of_runs(None, runs) is None
    assert note_of_runs(fitted, runs[:1]) is None
    assert note_of_runs(fitted, runs[1:]) == f"extrapolated beyond the fit: {beyond}"
    assert note_of_runs(fitted, runs, is_cluster=True) == (
        f"extrapolated beyond the fit, on the fullest instance, in the furthest of 2 variants: {beyond}"
    )


def test_an_instance_s_rate_is_of_its_own_times_or_of_the_run_s_where_it_has_few() -> None:
    """50 a second apart on the first; 5 on the second, of which one fails; one that went to none."""
    sent = [*range(0, 50 * S, S), *range(0, 5 * S, S), 60 * S]
    trace = run(sent, instances=["a"] * 50 + ["b"] * 5 + [None])
    found = range_of_run(trace)
    assert found.rate_per_s == (pytest.approx(5 / 49, rel=1e-3), 1.0)
    assert found.concurrency == (1.0, 1.0)
    assert found.prompt_tokens == (100.0, 100.0)
    assert found.output_tokens == (10.0, 10.0)
    one = run([*sent[:50], 49 * S], instances=["a"] * 50 + ["b"], failed=1)
    assert range_of_run(one).rate_per_s == (1.0, 1.0)
    assert range_of_run(run([], instances=[])).is_empty()
    just_enough = run([*range(0, 20 * S, S), 100 * S], instances=["a"] * 20 + ["b"])
    assert range_of_run(just_enough).rate_per_s == (0.01, 1.0)


def test_answers_that_set_the_pace_are_no_rate() -> None:
    sent = range(0, 30 * S, S)
    assert range_of([run(sent)], [None]).rate_per_s == (1.0, 1.0)
    assert range_of([run(sent, loop=ClosedLoop(concurrency=2))], [None]).rate_per_s is None
    looped = run(sent, instances=["a"] * 30, loop=ClosedLoop(concurrency=2))
    assert range_of_run(looped).rate_per_s is None
    chosen = np.arange(30) < 11
    assert range_of([run([*range(0, 11 * S, S), *[40 * S] * 19])], [chosen]).rate_per_s == (1.0, 1.0)
    assert range_of([run(sent)], [np.zeros(30, bool)]).is_empty()
    three = run([0, S // 10, S // 5])
    assert range_of([three], [None]).concurrency == pytest.approx((1.02, 2.98))


@pytest.mark.parametrize(
    ("start", "e2e", "rate"),
    [
        ([0, S, 2 * S, 3 * S], [S] * 4, 1.0),
        ([0, 2 * S], [2 * S] * 2, None),  # all were sent before the first was answered
        ([0, 2 * S], [1.9 * S] * 2, 0.5),
        ([0, 2 * S], [NAN] * 2, 0.5),
        ([0, 1], [NAN] * 2, 1e6),
        ([S, S], [NAN] * 2, None),
        ([S], [NAN], None),
    ],
)
def test_a_rate_is_the_gaps_over_their_time(start: list[float], e2e: list[float], rate: float | None) -> None:
    assert open_loop_rate(np.array(start, float), np.array(e2e, float)) == rate


def test_few_requests_are_a_rate_over_the_time_of_the_run() -> None:
    assert _rate_over(5, 2.0 * S) == (2.5, 2.5)
    assert _rate_over(5, 0.5) == (1e7, 1e7)
    assert _rate_over(5, 0.0) is None


def test_what_runs_has_begun_and_not_ended() -> None:
    start, begun, end = np.array([[0, 1, 2, 3.0], [0, 1, 5, 3.0], [2, NAN, 6, 4.0]])
    assert _running(start, begun, end).tolist() == [1, 2, 1, 2]
    assert _running(np.array([0, 10.0]), np.array([0, 20.0]), np.array([5, 30.0])).tolist() == [1, 1]


def test_the_ends_of_a_range_are_the_first_and_the_ninety_ninth_percentile() -> None:
    assert _inner(np.append(np.arange(101.0), NAN)) == (1.0, 99.0)
    assert _inner(np.array([NAN])) is _widened(np.array([NAN])) is None


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (np.append(np.arange(1000.0), NAN), 3.0, 996.0),  # 4 of 1,000 lie beyond at least
        (np.arange(400.0), 0.0, 399.0),
        (np.arange(1.0, 11.0), 1.0, 10.0),
        (np.append(np.zeros(45), np.full(5, 5.0)), 0.0, 5.0),
    ],
)
def test_a_fitted_range_reaches_as_far_as_its_percentiles_may(
    values: np.ndarray[tuple[int], np.dtype[np.float64]], low: float, high: float
) -> None:
    assert _widened(values) == (low, high)


def test_of_few_values_the_tail_tells_where_the_ninety_ninth_percentile_may_be() -> None:
    """100 values: the 10 largest are e^0.1 times the eleventh, so the index is 0.1 and its error a root of ten."""
    values = np.concatenate([np.zeros(89), [3.0], np.full(10, 3 * np.exp(0.1))])
    expected = 3 * 10 ** (0.1 * (1 + 1 / np.sqrt(10)))
    assert _ninety_ninth_of_few(values) == pytest.approx(expected)
    assert _widened(values) == (0.0, pytest.approx(expected, rel=1e-3))
    twenty = np.append(np.full(16, 0.5), np.full(4, 1.0))
    assert _ninety_ninth_of_few(twenty) == pytest.approx(0.5 * 20 ** (np.log(2) * 1.5))
    assert _ninety_ninth_of_few(twenty[1:]) == 1.0


@pytest.mark.parametrize(
    "pair", ["[1]", "[1, 2, 3]", "[2, 1]", "[true, 2]", "[0, .inf]", "[-1, 2]", "[a, 2]", "[[1], 2]"]
)
def test_a_range_is_two_numbers_that_do_not_fall(pair: str) -> None:
    with pytest.raises(
        ConfigError, match=r"fitted_range\.rate_per_s: got .*, expected \[low, high\], two numbers"
    ):
        read_fitted_range(section(f"fitted_range: {{rate_per_s: {pair}}}"))


def test_what_is_read_is_what_is_written() -> None:
    found = read_fitted_range(section("fitted_range: {rate_per_s: [0, 0], prompt_tokens: [2, 2]}"))
    assert found == FittedRange(rate_per_s=(0.0, 0.0), prompt_tokens=(2.0, 2.0))
    assert found.lines() == ["  fitted_range:", "    rate_per_s: [0.0, 0.0]", "    prompt_tokens: [2.0, 2.0]"]
    assert read_fitted_range(None) is read_held_out(None) is read_pace(None) is read_fitted_on(None) is None
    assert read_pace(section("pace: {within: 0, beyond: 0.5}")) == Pace(within=0.0, beyond=0.5)
    assert (
        read_pace(section("{}")) is read_held_out(section("{}")) is read_fitted_range(section("{}")) is None
    )


PER_REQUEST = "per request, on requests that the twin's fit had not seen"
LIMIT = "(more than 10% is far, per request or of a run's mean)"


@pytest.mark.parametrize(
    ("held", "far", "doubt"),
    [
        (HeldOut(ttft=0.10, e2e=0.02), (), ""),
        (HeldOut(ttft=0.11, far=()), (), ""),
        (
            HeldOut(ttft=0.11, e2e=0.02),
            ("ttft",),
            f"do not trust this twin's TTFT: its errors were TTFT 11%, E2E 2% {PER_REQUEST} {LIMIT}",
        ),
        (
            HeldOut(ttft=0.11, tpot=0.2),
            ("ttft", "tpot"),
            f"do not trust this twin yet: its errors were TTFT 11%, TPOT 20% {PER_REQUEST} {LIMIT}",
        ),
        (
            HeldOut(e2e=0.3),
            ("e2e",),
            f"do not trust this twin yet: its errors were E2E 30% {PER_REQUEST} {LIMIT}",
        ),
        (
            HeldOut(far=("tpot",)),
            ("tpot",),
            f"do not trust this twin yet: its error of TPOT was too large {LIMIT}",
        ),
    ],
)
def test_errors_above_a_tenth_are_far_unless_a_verdict_says_otherwise(
    held: HeldOut, far: tuple[str, ...], doubt: str
) -> None:
    assert (held.far_names, held.doubt) == (far, doubt)
    text = "\n".join(["latency:", *held.lines()])
    assert read_held_out(section(text).section("latency")) == held


def test_held_out_errors_that_nobody_knows_are_not_written() -> None:
    assert HeldOut().lines() == []
    assert HeldOut(date="2026-11-29", e2e_p99=0.5, far=()).lines() == [
        '  held_out: {date: "2026-11-29", e2e_p99: 0.5, far: []}'
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("held_out: {date: monday}", "held_out.date: got monday, expected a day"),
        (
            "held_out: {far: [ttft, itl]}",
            r"held_out.far: got \[ttft, itl\], expected a list of ttft, tpot, e2e",
        ),
        ("held_out: {e2e: -1}", "held_out.e2e: got -1, expected a fraction >= 0"),
    ],
)
def test_what_is_no_error_is_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_held_out(section(text))


def test_nothing_and_one_are_said_as_they_are() -> None:
    read = read_fitted_on(
        section("fitted_on: {tp: 1, flags: {num_speculative_tokens: 0}, loads: [{name: a}]}")
    )
    assert read == FittedOn(tp=1, flags={"num_speculative_tokens": 0}, loads=(FittedLoad(name="a"),))
    assert (
        read.server
        == "a model that nobody named on a GPU that nobody named, a version of vLLM that nobody told"
    )
    assert (
        FittedOn(model="m", gpu="H100", tp=2, vllm_version="0.24.0").server == "m on H100, tp 2, vLLM 0.24.0"
    )
    assert FittedLoad(name="a").line() == '{name: "a", role: fitted, num_requests: 0}'
    (load,) = read_fitted_on(section("fitted_on: {loads: [{name: a, num_requests: 0, e2e: 0}]}")).loads  # type: ignore[union-attr]
    assert (load.num_requests, load.e2e) == (0, 0.0)


@pytest.mark.parametrize(("tokens", "is_out"), [(999, False), (1100, False), (1101, True)])
def test_steps_of_a_tenth_more_tokens_stay_inside(tokens: int, *, is_out: bool) -> None:
    fitted = FittedOn(flags={"max_num_batched_tokens": 1000})
    found = ways_out(fitted, AskedServer(flags={"max_num_batched_tokens": tokens}))
    assert found == [f"steps of up to {tokens} tokens (max_num_batched_tokens), fitted with 1000"] * is_out


def test_names_of_one_thing_are_the_same() -> None:
    assert same_model("Org/M", "org/m") and same_model("m", "Org/M") and same_model("Org/M", "m")
    assert not (same_model("a/m", "b/m") or same_model("org", "org/m"))
    assert same_gpu("H100-SXM", "h100") and same_gpu("mine", "MINE")
    assert not (same_gpu("H100", "H200") or same_gpu("mine", "H100"))
    assert same_version("0.24.0", "0.24.3") and same_version("nightly", "nightly")
    assert not (same_version("0.24.0", "0.25.0") or same_version("nightly", "0.24.0"))


def test_tiles_are_eight_to_a_line() -> None:
    tiles = tuple((tokens, 1.5) for tokens in range(1, 10))
    lines = tiles_lines(tiles)
    assert lines[0] == "  tiles:"
    assert [line.count("1.5") for line in lines] == [0, 0, 8, 1, 0]
    assert read_tiles(section("\n".join(["latency:", *lines])).section("latency") or section("{}")) == tiles
    assert tiles_lines(()) == []
    assert read_tiles(section("{}")) == ()
    assert read_tiles(section("tiles: [[1, 0.01], [2, 100.0]]")) == ((1, 0.01), (2, 100.0))


@pytest.mark.parametrize("pair", ["[true, 1.0]", "[1, true]", "[1.5, 1.0]", "[1, a]", "[1, 1.0, 2]", "1"])
def test_a_tile_is_a_whole_number_and_a_factor(pair: str) -> None:
    with pytest.raises(ConfigError, match=r"tiles: got .*, expected pairs \[tokens, factor\]"):
        read_tiles(section(f"tiles: [{pair}]"))


def test_only_the_extended_model_with_coefficients_has_tiles(tmp_path: Path) -> None:
    check_has_tiles(section("{tiles: [], coefficients: {}}"), "extended")
    check_has_tiles(section("{coefficients: {}}"), "blackbox")
    for text, model in (("tiles: []", "extended"), ("{tiles: [], coefficients: {}}", "blackbox")):
        with pytest.raises(ConfigError, match="model: extended with coefficients"):
            check_has_tiles(section(text), model)
    path = tmp_path / "twin.yaml"
    path.write_text("latency: {model: roofline, tiles: [[1, 1.0]]}\n")
    with pytest.raises(ConfigError, match="tiles"):
        load_config(path)


SERVER = """\
hardware: {gpu: H100, tp: 2, nccl_launch_us: 8}
latency: {model: roofline, model_config: config.json, dtype: float16, quantization: null}
"""
WRITTEN = """\
engine: {max_num_seqs: 64}
latency:
  model: blackbox
  coefficients: {beta0: 1}
seed: 1
"""


def test_a_server_is_what_its_twin_s_file_says_and_options_in_its_place(tmp_path: Path) -> None:
    twin, config = tmp_path / "twin.yaml", tmp_path / "config.json"
    config.touch()
    twin.write_text(SERVER)
    model = {"model_config": str(config.resolve()), "dtype": "float16"}
    assert named_server(twin) == NamedServer(hardware={"gpu": "H100", "tp": 2}, latency=model)
    assert named_server(twin, gpu="H100", tp=4).hardware == {"gpu": "H100", "tp": 4}
    other = named_server(twin, gpu="H200", model_config="Qwen/Qwen3-8B")
    assert other == NamedServer(
        hardware={"gpu": "H200", "tp": 2}, latency={"model_config": "Qwen/Qwen3-8B", "dtype": "float16"}
    )
    assert named_server(twin, model_config=str(config)).latency == model
    for text, hardware in (("hardware: H100", {"gpu": "H100"}), ("seed: 1", {})):
        twin.write_text(text)
        assert named_server(twin) == NamedServer(hardware=hardware, latency={})
    nothing = NamedServer(hardware={}, latency={})
    assert named_server(None) == named_server(tmp_path / "absent.yaml") == named_server(None, tp=1) == nothing
    assert named_server(None, tp=2).hardware == {"tp": 2}
    assert named_server(None, gpu="H100", tp=1).hardware == {"gpu": "H100", "tp": 1}


@dataclass(frozen=True)
class Loaded:
    """A twin whose simulation depends on nothing; its faults and notes are those that a text is said to have."""

    will_not_start: tuple[str, ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    steps: str = ""


def test_as_much_of_the_server_is_written_as_leaves_the_simulation_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    model = str((tmp_path / "config.json").resolve())
    server = NamedServer(hardware={"gpu": "H100", "memory_gib": 90}, latency={"model_config": model})

    def tried(of_memory: Loaded, of_model: Loaded, **more: Loaded) -> str:
        def read(text: str, path: Path) -> Loaded:
            assert path == tmp_path / "new.yaml"
            if "memory_gib" in text:
                return of_memory
            if "gpu" in text and "model_config" not in text and "refused" in more:
                raise ConfigError("no such GPU")
            return (
                of_model if "model_config" in text else Loaded(will_not_start=("too long",), notes=("own",))
            )

        return text_with_server(WRITTEN, server, path=tmp_path / "new.yaml", notes=["told"], read=read)

    other = Loaded(steps="other")
    head = 'engine: {max_num_seqs: 64}\nhardware:\n  gpu: "H100"\n'
    config = '  model_config: "config.json"\n'
    latency, rest = "latency:\n  model: blackbox\n", "  coefficients: {beta0: 1}\nseed: 1\n"
    whole = f"{head}  memory_gib: 90\n{latency}{config}{rest}"
    for same in (Loaded(), Loaded(notes=("own", "told")), Loaded(will_not_start=("too long",))):
        assert tried(same, other) == whole
    for wrong in (other, Loaded(notes=("new",)), Loaded(will_not_start=("too small",))):
        assert tried(wrong, Loaded()) == f"{head}{latency}{config}{rest}"
        assert tried(wrong, wrong) == f"{NOT_WRITTEN}\n{head}{latency}{rest}"
        assert tried(wrong, wrong, refused=other) == f"{NOT_WRITTEN}\n{WRITTEN}"
    nothing = NamedServer(hardware={}, latency={})
    assert text_with_server(WRITTEN, nothing, path=tmp_path, notes=[], read=lambda *_: 1 / 0) == WRITTEN  # type: ignore[return-value]
    for one in (
        NamedServer(hardware={"gpu": "H100"}, latency={}),
        NamedServer(hardware={}, latency={"dtype": "half"}),
    ):
        found = text_with_server(WRITTEN, one, path=tmp_path / "new.yaml", notes=[], read=lambda *_: other)
        assert found == one.within(WRITTEN, folder=tmp_path)
    far = NamedServer(hardware={}, latency={"model_config": "/elsewhere/config.json"})
    assert '  model_config: "/elsewhere/config.json"\n' in far.within(WRITTEN, folder=tmp_path)
    assert "hardware" not in far.within(WRITTEN, folder=tmp_path)

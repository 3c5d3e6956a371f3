"""A fit refuses latencies that were not measured; a comparison uses what was, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

import vtwin
from calibrate.findings import NamedTrace
from calibrate.not_measured import cautions, refuse_unmeasured
from tests.traces.measured.test_stream_shape import STEADY, answers
from tests.twins import SIXTY_FOUR_SEATS
from traces import ClientInfo, Header, ServerInfo, Trace, TraceError, write_trace

HELD = [490_000] * 40


def named(trace: Trace) -> NamedTrace:
    return NamedTrace(name="monday", trace=trace, digest="d")


def test_a_trace_whose_first_tokens_were_not_seen_is_not_fitted() -> None:
    with pytest.raises(TraceError, match=r"monday: got 2 of 3 answers without the time of their first token"):
        refuse_unmeasured([named(answers(HELD, HELD, STEADY))])
    refuse_unmeasured([named(answers(HELD, STEADY, STEADY))])


def test_a_client_that_was_late_is_told_instead_of_a_proxy() -> None:
    late = answers(HELD).with_header(client=ClientInfo(late=True))
    with pytest.raises(TraceError, match="the client was late"):
        refuse_unmeasured([named(late)])


def test_a_first_text_behind_hidden_reasoning_is_no_first_token() -> None:
    with pytest.raises(TraceError, match="hidden reasoning"):
        refuse_unmeasured([named(answers(STEADY).with_columns(hidden_tokens=[20]))])


def test_findings_are_cautions() -> None:
    (line,) = cautions([named(answers(HELD))])
    assert line.startswith("monday: 1 of 1 answers came all at once")


def test_a_comparison_has_the_e2e_of_answers_that_were_held_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twin.yaml").write_text(SIXTY_FOUR_SEATS)
    sent = [50_000 * row + row * row for row in range(30)]
    times = [[each + 490_000] * 40 for each in sent]
    write_trace(answers(*times, arrival_time_us=sent, send_time_us=sent), tmp_path / "run")
    words = [
        "calibrate",
        tmp_path / "run",
        "--config",
        tmp_path / "twin.yaml",
        "--report",
        tmp_path / "report",
    ]
    assert vtwin.main([str(word) for word in words]) == 0
    out, err = capsys.readouterr()
    assert "E2E" in out
    assert "TTFT" not in out
    assert "warning: run: 30 of 30 answers came all at once" in err
    assert vtwin.main([*(str(word) for word in words), "--fit"]) == 3
    assert vtwin.main(["compare", str(tmp_path / "run"), str(tmp_path / "run")]) == 0
    assert "note: run: 30 of 30 answers came all at once" in capsys.readouterr().err


def test_several_engines_are_not_fitted_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = answers(*[STEADY] * 30)
    header = Header(mode="real", tool="vtwin", server=ServerInfo(num_instances=2, instance_names=("a", "b")))
    write_trace(trace.with_header(server=header.server), tmp_path / "run")
    words = ["calibrate", str(tmp_path / "run"), "--fit", "--report", str(tmp_path / "report")]
    assert vtwin.main(words) == 2
    assert "2 engines behind it" in capsys.readouterr().err

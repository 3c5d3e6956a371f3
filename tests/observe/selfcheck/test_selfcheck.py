"""The self-check: its server does what it says it does, and its table says what was measured."""

from __future__ import annotations

from unittest.mock import MagicMock

import numpy as np
import orjson
import pytest

import vtwin
from observe.response.stream_reader import StreamReader
from observe.selfcheck.local_workers import local_workers
from observe.selfcheck.measure import poisson, start_reference_server, users
from observe.selfcheck.reference_server import CHAT_TOKENS, ReferenceServer, StreamedAnswer, chunks_of
from observe.selfcheck.report import MeasuredFigure, Report, _workers, with_images
from traces import request_metrics


async def test_answers_come_when_they_are_due_and_the_stamps_agree_with_the_server() -> None:
    async with start_reference_server() as server:
        checked = await server.check(users(2, 6, tokens=5), first_us=30_000, gap_us=10_000)
        whole = await server.check(poisson(100.0, 5, tokens=5), first_us=1000, coalesced=True)
    assert checked.observation.num_ok == 6
    assert checked.num_events == 6 * 6
    metrics = request_metrics(checked.trace)
    assert (metrics["ttft_us"] > 29_000).all()
    assert (metrics["e2e_us"] > 69_000).all()
    assert np.abs(np.median(checked.last_error_us)) < 5000
    assert (checked.server_lag_us >= 0).all()
    assert checked.observation.cpu_s > 0
    assert checked.stretch.wall_s > 0.06
    assert whole.observation.num_ok == 5
    assert (request_metrics(whole.trace)["itl_mean_us"] == 0).all()


async def test_texts_and_images_are_sent_and_stamped_by_the_same_server() -> None:
    async with start_reference_server() as server:
        texts = await server.check(poisson(100.0, 12, tokens=3), first_us=1000, texts=True)
        workload = with_images(poisson(100.0, 6, tokens=3, prompt=CHAT_TOKENS), 16)
        images = await server.check(workload, first_us=1000, api="chat", image_side=28)
    assert texts.observation.num_ok == 12
    counted = texts.trace.cells("server_input_tokens").values
    assert len(set(counted.tolist())) > 6  # texts of a data set: each as long as it is
    assert (counted >= 50).all()
    client = texts.trace.header.client
    assert client is not None
    assert "texts.jsonl" in (client.prompt_source or "")
    assert images.trace.column("error_message").dropna().tolist() == []
    assert images.observation.num_ok == 6
    assert (images.trace.cells("image_tokens").values == 16).all()
    assert images.num_events == 6 * 4  # three tokens and the usage
    for checked in (texts, images):
        assert len(checked.first_error_us) == checked.observation.num_ok
        assert np.abs(np.median(checked.first_error_us)) < 20_000
        assert (checked.server_lag_us >= 0).all()


async def test_a_worker_of_a_cluster_on_this_machine_sends_a_load() -> None:
    async with start_reference_server() as server, local_workers(1) as cluster:
        checked = await server.check(poisson(100.0, 12, tokens=3), first_us=1000, machines=cluster)
    client = checked.trace.header.client
    assert client is not None
    assert checked.observation.num_ok == len(checked.first_error_us) == 12
    assert [(each.num_sent, each.machine is None) for each in client.processes] == [(12, False)]
    assert np.abs(np.median(checked.first_error_us)) < 20_000


async def test_without_dask_the_rows_of_workers_are_left_out_in_a_plain_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("observe.selfcheck.report.find_spec", lambda _: None)
    told: list[str] = []
    assert await _workers(MagicMock(), number=9, tell=told.append) == ()
    assert told == ["no workers: they need the extra, pip install 'vtwin[dask]'"]


def test_the_truth_speaks_as_vllm_does() -> None:
    body = b"".join(line for line in b"".join(chunks_of(7, 3)).split(b"\r\n") if line.startswith(b"data"))
    reader = StreamReader()
    reader.take(body, 1)
    reading = reader.finish(1, whole=True)
    assert (reading.output_tokens, reading.server_input_tokens, reading.finish_reason) == (3, 7, "length")
    assert reading.event_tokens == [1, 1, 1, 0]
    chat = b"".join(chunks_of(7, 3, chat=True))
    assert chat.count(b'"delta":{"content":" word"}') == 3
    assert b'"text":' not in chat


async def test_requests_without_an_id_are_logged_one_by_one() -> None:
    server = ReferenceServer()
    for name in ("", "", "named"):
        StreamedAnswer(server, MagicMock(), name=name, body=b'{"prompt": [1], "max_tokens": 2}')
    assert sorted(server.logs) == ["named", "unnamed-0", "unnamed-1"]


def test_a_figure_meets_its_bar_from_its_own_side() -> None:
    assert MeasuredFigure(name="a", value=2, unit="", bar=3).met is True
    assert MeasuredFigure(name="a", value=2, unit="", bar=3, sense="at least").met is False
    assert MeasuredFigure(name="a", value=2, unit="").met is None
    assert MeasuredFigure(name="a", value=float("nan"), unit="", bar=3).met is False


def test_a_missed_bar_is_said_in_the_table_and_in_the_document() -> None:
    figures = (
        MeasuredFigure(name="cost", value=30.5, unit="µs", bar=25, peers="40"),
        MeasuredFigure(name="b", value=1, unit=""),
    )
    report = Report(figures=figures, clock="mono", notes=("busy",))
    assert not report.all_met
    line = next(line for line in report.table().splitlines() if line.startswith("cost, µs"))
    assert line.split() == ["cost,", "µs", "30.5", "≤", "25", "missed", "40"]
    assert report.table().endswith("note: busy")
    document = orjson.loads(orjson.dumps(report.document()))
    assert [figure["met"] for figure in document["figures"]] == [False, None]


def test_a_missed_bar_is_exit_1_only_when_strict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(*, quick: bool, **_: object) -> Report:
        return Report(
            figures=(MeasuredFigure(name="cost", value=30 + quick, unit="µs", bar=25),), clock="", notes=()
        )

    monkeypatch.setattr("observe.selfcheck.question.check_client", measure)
    assert vtwin.main(["selfcheck"]) == 0
    out, err = capsys.readouterr()
    assert "cost, µs" in out
    assert err == ""
    assert vtwin.main(["selfcheck", "--quick", "--strict", "--json"]) == 1
    out, err = capsys.readouterr()
    assert orjson.loads(out)["figures"][0]["value"] == 31
    assert "missed" in err

"""A marker in every place where a secret can be given; every output of every command is searched for it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
import typer

import vtwin
from observe.senders.endpoint import parse_endpoint
from tests.docs.commands import commands_of
from tests.observe.servers import Behaviour, serving, serving_in_thread
from tests.observe.test_observation import workload
from traces import ConfigError, ServerError
from traces.strict.secrets import (
    Secrets,
    command_secrets,
    header_secrets,
    quoted_flag,
    redact_command,
    redact_text,
)

MARKER = "hush-7f3a9c-marker"
PLACES: dict[str, tuple[list[str], dict[str, str]]] = {
    # place: options, environment
    "--api-key": (["--api-key", MARKER], {}),
    "--api-key=": ([f"--api-key={MARKER}"], {}),
    "--api-key-env": (["--api-key-env", "MY_KEY"], {"MY_KEY": MARKER}),
    "--api-key-file": (["--api-key-file", "{folder}/key"], {}),
    "OPENAI_API_KEY": ([], {"OPENAI_API_KEY": MARKER}),
    "VLLM_API_KEY": ([], {"VLLM_API_KEY": MARKER}),
    "a bearer of one's own": (["--header", f"Authorization: Bearer {MARKER}"], {}),
    "a header on no list": ([f"--header=X-Team: {MARKER}"], {}),
    "a cookie": (["--header", f"Cookie: a=b; session={MARKER}"], {}),
    "the password in the URL": (["--url", "http://me:" + MARKER + "@{host}"], {}),
    "the user in the URL": (["--url", "http://" + MARKER + "@{host}"], {}),
    "a proxy": (["--header", f"X-Proxy: {MARKER}"], {"HTTPS_PROXY": f"http://me:{MARKER}@proxy:3128"}),
}


def arguments_of(place: str, *, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    options, environment = PLACES[place]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (folder / "key").write_text(f"{MARKER}\n")
    given = [option.format(folder=folder, host=url.removeprefix("http://")) for option in options]
    return given if "--url" in given else [*given, "--url", url]


def outputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Everything that was printed and written, the key's own file excepted."""
    out, err = capsys.readouterr()
    files = {
        path.name: path.read_text() for path in folder.rglob("*") if path.is_file() and path.name != "key"
    }
    return {"stdout": out, "stderr": err, **files}


@pytest.mark.parametrize("place", PLACES)
def test_no_output_of_observe_has_a_secret(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server says all that it was sent again: in errors, events, names, its version and its metrics."""
    with serving_in_thread() as server:
        server.echo_headers = True
        given = arguments_of(place, folder=tmp_path, url=server.url, monkeypatch=monkeypatch)
        load = ["--concurrency", "1", "--num-requests", "5", "--prompt-tokens", "8", "--output-tokens", "2"]
        command = ["observe", *given, *load, "--output", str(tmp_path / "run"), "--json", "--scrape", "1s"]
        monkeypatch.setattr(sys, "argv", ["vtwin", *command])
        assert vtwin.main(command) == 1  # most answers are errors
        assert len(server.requests) >= 3  # a connection may be closed as the next request comes
        sent = str([request.headers for request in server.requests])
    said = outputs(tmp_path, capsys)
    assert MARKER in sent or "Basic" in sent
    assert "***" in said["run.csv"]
    assert {name for name, text in said.items() if MARKER in text or "aHVzaC" in text} == set()
    assert vtwin.main(["trace", "info", str(tmp_path / "run")]) == 0
    assert MARKER not in "".join(outputs(tmp_path, capsys).values())


@pytest.mark.parametrize("command", ["observe", "validate"])
@pytest.mark.parametrize(
    "place", ["--api-key", "OPENAI_API_KEY", "a header on no list", "the password in the URL"]
)
def test_no_error_before_the_run_has_a_secret(
    command: str,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The server redirects, and names in its refusal what it was sent."""
    monkeypatch.setenv("VTWIN_DEBUG", "1")
    url = "http://127.0.0.1:1"
    given = arguments_of(place, folder=tmp_path, url=url, monkeypatch=monkeypatch)
    more = ["--rate", "5", "--num-requests", "5", "--output", str(tmp_path / "run")]
    assert vtwin.main([command, *given, *more]) == 4
    said = outputs(tmp_path, capsys)
    assert "cannot connect to 127.0.0.1:1" in said["stderr"]
    assert {name for name, text in said.items() if MARKER in text} == set()


def test_a_crash_has_no_secret_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise ZeroDivisionError(f"the key was {MARKER}")

    monkeypatch.setattr("observe.command.observe_once", crash)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command = ["observe", "--url", "h", "--output", str(tmp_path / "run"), "--rate", "1", "--api-key", MARKER]
    assert vtwin.main(command) == 70
    (kept,) = tmp_path.glob("vtwin-crash-*.txt")
    line = capsys.readouterr().err
    assert line.startswith("InternalError: ZeroDivisionError: the key was *** (")
    assert line.count("\n") == 1
    assert str(kept) in line
    assert "Traceback (most recent call last)" in kept.read_text()
    assert MARKER not in line + kept.read_text()
    kept.unlink()
    monkeypatch.setenv("VTWIN_DEBUG", "1")
    assert vtwin.main(command) == 70
    assert "Traceback (most recent call last)" in (said := capsys.readouterr().err)
    assert MARKER not in said
    assert list(tmp_path.glob("vtwin-crash-*")) == []


def test_what_the_machine_refuses_is_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "place")

    monkeypatch.setattr("observe.command.observe_once", full)
    assert vtwin.main(["observe", "--url", "h", "--output", str(tmp_path / "run"), "--rate", "1"]) == 2
    assert capsys.readouterr().err.startswith("FileError: got No space left on device")


LOAD = ["--rate", "5", "--num-requests", "5", "--prompt-tokens", "8", "--output-tokens", "2"]
TWIN = """\
engine: {max_num_seqs: 8, max_num_batched_tokens: 512, num_gpu_blocks: 400, max_model_len: 2048}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 6000, beta1: 10, beta2: 20}}
"""
SPEAKS_AND_ENDS = "import sys; print('args:', sys.argv, flush=True); sys.exit(3)"
TUNE = (
    f"tune --slo ttft_p99=9s --num-requests 1000 {shlex.join(LOAD[4:])} --seeds 1 --max-num-seqs 4,8 "
    "--max-num-batched-tokens 512"
)
TAKE_SECRETS = {
    # command, option: a call with a secret in it and its exit code; None: it is in PLACES
    **{
        ("observe", f"--{name}"): None for name in ("api-key", "api-key-env", "api-key-file", "header", "url")
    },
    ("validate", "--url"): (
        f"validate --url http://me:{MARKER}@127.0.0.1:1 --output out {shlex.join(LOAD)}",
        4,
    ),
    ("validate", "--serve"): (
        f"validate --url http://127.0.0.1:1 --serve 'vllm serve m --api-key {MARKER}' --api-key {MARKER} --output out",
        4,
    ),
    ("config from-serve", "command"): (
        f"config from-serve 'vllm serve m --api-key {MARKER} --no-such-flag 1'",
        0,
    ),
    ("tune", "--serve"): (
        f"{TUNE} --chunked-prefill true --config twin.yaml --url http://me:{MARKER}@127.0.0.1:1 "
        f"--serve '{sys.executable} server.py --api-key {MARKER}'",
        4,
    ),
    ("tune", "--url"): None,  # in the call above
    ("serve", "--api-key"): (f"serve --config twin.yaml --port 99999999 --api-key {MARKER}", 2),
}


def test_every_option_that_can_have_a_secret_is_tried() -> None:
    root = typer.main.get_command(vtwin.build_app(vtwin.COMMANDS))
    found = {
        (path.removeprefix("vtwin "), parameter.opts[0])
        for path, command in commands_of(root, "vtwin")
        for parameter in command.params
        if any(word in parameter.opts[0] for word in ("key", "header", "url", "--serve", "command", "token="))
    }
    assert found == set(TAKE_SECRETS)


@pytest.mark.parametrize("taker", [each for each, call in TAKE_SECRETS.items() if call], ids=" ".join)
def test_no_output_of_another_command_has_a_secret(
    taker: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = TAKE_SECRETS[taker]
    assert call is not None
    (tmp_path / "twin.yaml").write_text(TWIN)
    (tmp_path / "server.py").write_text(SPEAKS_AND_ENDS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VTWIN_API_KEY", MARKER)
    arguments = shlex.split(call[0])
    monkeypatch.setattr(sys, "argv", ["vtwin", *arguments])
    assert vtwin.main(arguments) == call[1], capsys.readouterr().err
    assert {name for name, text in outputs(tmp_path, capsys).items() if MARKER in text} == set()


async def test_no_redirect_is_followed() -> None:
    from observe import observe_trace

    async with serving() as other, serving(Behaviour(status={"/v1/models": 307})) as server:
        with pytest.raises(
            ServerError, match=r"/v1/models: HTTP 307: redirects.*expected --url of the server itself"
        ):
            await observe_trace(workload([0]), url=server.url, api_key=MARKER)
        assert other.asked == []


@pytest.mark.parametrize(
    ("url", "more"),
    [
        (f"http://me:{MARKER}@h:8", {"api_key": "k"}),
        (f"http://me:{MARKER}@h:8", {"headers": ["authorization: Bearer k"]}),
        (f"http://me:{MARKER}@h:99999", {}),
        (f"ftp://me:{MARKER}@h", {}),
        (f"http://me:{MARKER}@h/?a=b", {}),
        ("http://h", {"headers": [MARKER]}),
        ("http://h", {"headers": [f"X-A: a\r\nX-B: {MARKER}"]}),
        ("http://h", {"api_key": f"{MARKER}\nX"}),
    ],
)
def test_what_is_wrong_with_a_secret_is_said_without_it(url: str, more: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_endpoint(url, **more)  # type: ignore[arg-type]
    assert MARKER not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--api-key", "a", "--api-key-env", "B"], "got several of"),
        (["--api-key-env", "NO_SUCH_VARIABLE"], "expected the name of a variable that is set"),
        (["--api-key-file", "/no/such/file"], "expected a file with the key on one line"),
    ],
)
def test_a_key_comes_from_one_place_that_has_it(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["observe", "--url", "h", "--output", str(tmp_path / "run"), "--rate", "1", *options]
    assert vtwin.main(command) == 2
    assert said in capsys.readouterr().err


def test_secrets_are_found_in_the_forms_in_which_they_come_back() -> None:
    hide = Secrets.of([*header_secrets("Basic bWU6aHVzaC1odXNo"), "a/b c+d"]).redact
    assert hide("me:hush-hush and hush-hush and bWU6aHVzaC1odXNo") == "*** and *** and ***"
    assert hide("a/b c+d a%2Fb%20c%2Bd") == "*** ***"
    assert hide("see http://me:secret@host/v1") == "see http://***@host/v1"


def test_a_command_line_within_a_command_line_is_shown_without_its_key() -> None:
    line = ["vtwin", "validate", "--serve", f"vllm serve m --api-key {MARKER} -tp 2"]
    assert MARKER not in redact_command(line)
    assert command_secrets(line, {}).redact(f"x{MARKER}y") == "x***y"


QUERIES = ("api_key", "api-key", "key", "access_token", "X-Amz-Signature", "sig", "code")


@pytest.mark.parametrize("name", QUERIES)
def test_a_key_in_a_url_is_hidden_wherever_the_url_is_shown(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:1/v1?version=2&{name}={MARKER}&x=1"
    command = ["vtwin", "observe", "--url", url, "--output", str(tmp_path / "t")]
    hidden = url.replace(MARKER, "***")
    assert redact_command(command) == f"vtwin observe --url '{hidden}' --output {tmp_path / 't'}"
    assert redact_command([*command[:2], f"--url={url}"]) == f"vtwin observe '--url={hidden}'"
    assert Secrets().redact(f"cannot reach {url}") == f"cannot reach {hidden}"
    assert (
        MARKER in command_secrets(command, {}).values
    )  # what the process list hides, and what a server says again
    assert vtwin.main([*command[1:], "--rate", "5", "--num-requests", "2"]) == 2
    said = capsys.readouterr()
    assert f"--url: got '{hidden}', expected no query" in said.err
    assert MARKER not in said.out + said.err


def test_what_is_no_key_of_a_url_stays() -> None:
    text = "GET /v1?page=2&keys=a max_tokens=5 monkey=b"
    assert Secrets().redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        f"vllm serve m --api-key one {MARKER} three",
        f"vllm serve m --api_key={MARKER} --port 8",
        f"docker run -e HF_TOKEN={MARKER} --env 'AWS_SECRET_ACCESS_KEY={MARKER}' image m",
        f"vllm serve m --otlp-traces-endpoint https://me:{MARKER}@host/v1",
        f"kind: Pod\nenv:\n  HF_TOKEN: {MARKER}\n  VLLM_API_KEY: '{MARKER}'\n",
    ],
)
def test_a_server_s_command_that_is_shown_again_has_no_key(text: str) -> None:
    assert MARKER not in redact_text(text)
    assert MARKER not in redact_command(["vtwin", "config", "from-serve", text])
    assert MARKER not in command_secrets(["config", "from-serve", text], {}).redact(text)


@pytest.mark.parametrize(
    "text", ["--max-num-seqs 8 --api-server-count 2", "monkey=1", "KEYS: none", "a: b", "x=y"]
)
def test_what_is_no_key_is_left_as_it_is(text: str) -> None:
    assert redact_text(text.replace("KEYS", "KIND")) == text.replace("KEYS", "KIND")


def test_a_flag_is_quoted_with_its_value_only_where_that_is_used() -> None:
    assert quoted_flag("--max-num-seqs", "8", is_used=True) == "--max-num-seqs 8"
    assert quoted_flag("--x", f"https://me:{MARKER}@h", is_used=True) == "--x https://***@h"
    assert quoted_flag("--x", MARKER, is_used=False) == "--x …"
    assert quoted_flag("--x", None, is_used=False) == "--x"
    assert quoted_flag(f"-p{MARKER}", None, is_used=False) == "-p…"

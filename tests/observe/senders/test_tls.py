"""Certificates that must not be taken, and TLS that breaks: one line, exit code 4, and nothing is sent."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import vtwin
from traces import read_trace

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(
    OPENSSL is None, reason="certificates are made with openssl, which is not here"
)
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
ANSWER = (
    b'data: {"choices":[{"text":"x","finish_reason":"length"}],"usage":{"completion_tokens":1,"prompt_tokens":4}}'
    b"\n\ndata: [DONE]\n\n"
)
LOAD = ["--rate", "50", "--num-requests", "2", "--prompt-tokens", "4", "--output-tokens", "1"]


def openssl(*words: object) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *map(str, words)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority (ca.pem) and certificates: good, expired, elsewhere, and one signed by itself."""
    folder = tmp_path_factory.mktemp("certificates")
    itself = ("-addext", "subjectAltName=IP:127.0.0.1", "-days", 2, "-subj", "/CN=127.0.0.1")
    for name, more in (("ca", ("-subj", "/CN=made here", "-days", 2)), ("itself", itself)):
        out = ("-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem")
        openssl("req", "-x509", *KEY, *out, *more)
    for name, host, days in (
        ("good", "IP:127.0.0.1", 2),
        ("expired", "IP:127.0.0.1", -1),
        ("elsewhere", "DNS:elsewhere.example", 2),
    ):
        asked, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={host}\n")
        openssl("req", *KEY, "-keyout", folder / f"{name}.key", "-out", asked, "-subj", "/CN=x")
        signed_by = ("-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-CAcreateserial")
        out = ("-out", folder / f"{name}.pem", "-days", days, "-extfile", extensions)
        openssl("x509", "-req", "-in", asked, *signed_by, *out)
    return folder


class Completions(BaseHTTPRequestHandler):
    """One model, answers of a token; counts what it is asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        is_list = self.path == "/v1/models"
        self._say(200 if is_list else 404, json.dumps({"data": [{"id": "m"}]}).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._say(200, ANSWER)

    def _say(self, status: int, body: bytes) -> None:
        self.server.paths.append(self.path)  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Quiet(ThreadingHTTPServer):
    """A server whose broken handshakes are nobody's news."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Completions)
        self.paths: list[str] = []

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


Change = Callable[[ssl.SSLContext], None]


@contextmanager
def serving(made: Path, name: str, change: Change = lambda _: None) -> Iterator[Quiet]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made / f"{name}.pem", made / f"{name}.key")
    change(context)
    server = Quiet()
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=True)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def old(context: ssl.SSLContext) -> None:
    """Nothing newer than TLS 1.1."""
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")


def of_clients(context: ssl.SSLContext) -> None:
    """A certificate of the client, in the handshake of TLS 1.2."""
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_default_certs()
    context.maximum_version = ssl.TLSVersion.TLSv1_2


def of_clients_later(context: ssl.SSLContext) -> None:
    """The same after the handshake, as TLS 1.3 has it."""
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_default_certs()
    context.minimum_version = ssl.TLSVersion.TLSv1_3


FAULTS: dict[str, tuple[str, Change, str]] = {
    # certificate, the server's context, what the line has
    "expired": ("expired", lambda _: None, "certificate has expired"),
    "another host's": ("elsewhere", lambda _: None, "certificate is not valid for '127.0.0.1'"),
    "signed by itself": ("itself", lambda _: None, "self-signed certificate"),
    "old protocol": ("good", old, "protocol version"),
    "a client's certificate": ("good", of_clients, "handshake failure"),
    "a client's certificate, asked for later": ("good", of_clients_later, "certificate required"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_tls_is_one_line_and_nothing_is_sent(
    fault: str,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, change, said = FAULTS[fault]
    monkeypatch.setenv("SSL_CERT_FILE", str(made / "ca.pem"))
    with serving(made, name, change) as server:
        url = f"https://127.0.0.1:{server.server_port}"
        assert vtwin.main(["observe", "--url", url, *LOAD, "--output", str(tmp_path / "run")]) == 4
        assert server.paths == []
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ServerError: {url}/v1/models: TLS: ")
    assert said in line
    assert ", expected " in line or "; expected " in line
    assert "_ssl.c" not in line
    assert list(tmp_path.iterdir()) == []


def test_an_authority_of_ones_own_is_named_by_ssl_cert_file(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(made, "good") as server:
        url = f"https://127.0.0.1:{server.server_port}"
        words = ["observe", "--url", url, *LOAD, "--output", str(tmp_path / "run")]
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        assert vtwin.main(words) == 4
        assert "unable to get local issuer certificate" in capsys.readouterr().err
        assert server.paths == []
        monkeypatch.setenv("SSL_CERT_FILE", str(made / "ca.pem"))
        assert vtwin.main(words) == 0
        assert "/v1/completions" in server.paths
    assert "not checked" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "why"), [("none.pem", "No such file"), ("good.ext", "no certificate in it")]
)
def test_a_file_of_authorities_that_has_none_is_refused(
    name: str,
    why: str,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """OpenSSL passes over such a file, and every certificate would be refused for a reason that is not named."""
    monkeypatch.setenv("SSL_CERT_FILE", str(made / name))
    words = ["observe", "--url", "https://127.0.0.1:1", *LOAD, "--output", str(tmp_path / "run")]
    assert vtwin.main(words) == 2
    line = capsys.readouterr().err
    assert line.startswith("ConfigError: SSL_CERT_FILE: got ")
    assert why in line


def test_any_certificate_is_taken_only_when_asked_for_and_the_trace_says_so(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(made, "expired") as server:
        url = f"https://127.0.0.1:{server.server_port}"
        words = ["observe", "--url", url, "--insecure", *LOAD, "--output", str(tmp_path / "run")]
        assert vtwin.main(words) == 0
    said = "the server's certificate is not checked (--insecure)"
    assert said in capsys.readouterr().err
    client = read_trace(tmp_path / "run").header.client
    assert client is not None
    assert said in client.notes


def test_a_server_that_negotiates_again_is_answered(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In TLS 1.2, in the middle of each question; openssl's own server does it at an ``R`` on its stdin."""
    monkeypatch.setenv("SSL_CERT_FILE", str(made / "ca.pem"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        OPENSSL,
        "s_server",
        "-accept",
        f"127.0.0.1:{port}",
        "-tls1_2",
        "-cert",
        "good.pem",
        "-key",
        "good.key",
    ]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=made, **pipes) as server:  # type: ignore[call-overload]
        told: list[bytes] = []
        while (line := server.stdout.readline()) and line != b"ACCEPT\n":
            pass
        answering = Thread(target=answer_after_negotiating_again, args=(server, told), daemon=True)
        answering.start()
        words = ["observe", "--url", f"https://127.0.0.1:{port}", *LOAD, "--output", str(tmp_path / "run")]
        try:
            assert vtwin.main(words) == 4
        finally:
            server.kill()
            answering.join(timeout=10)  # before the pipe that it reads is closed
    assert "HTTP 503: after the second handshake" in capsys.readouterr().err
    assert any(b"GET /v1/models" in line for line in told)
    assert any(b"SSL_do_handshake -> 1" in line for line in told)


def answer_after_negotiating_again(server: subprocess.Popen[bytes], told: list[bytes]) -> None:
    """Negotiate again at the end of each request's head, then refuse the request."""
    assert server.stdin is not None
    assert server.stdout is not None
    for line in server.stdout:
        told.append(line)
        if line == b"\r\n":
            server.stdin.write(b"R\n")
            server.stdin.flush()
        if line.startswith(b"SSL_do_handshake"):
            time.sleep(0.05)  # what is written before it reads the handshake to its end would be lost
            server.stdin.write(b"HTTP/1.1 503 No\nContent-Length: 27\n\nafter the second handshake\n")
            server.stdin.flush()

"""What the answers themselves say of the server is kept in the header."""

from __future__ import annotations

import pytest

from observe.trace_header import with_fingerprint
from traces import ServerInfo

SOURCE = "system_fingerprint of the answers"


@pytest.mark.parametrize(
    ("fingerprint", "version"),
    [
        ("vllm-0.24.0-5f4c9222", "0.24.0"),
        ("vllm-0.24.1rc1.dev3-tp2-5f4c9222", "0.24.1rc1.dev3"),
        ("vllm-0.24.0", "0.24.0"),
        ("fp_0123456789", None),
        ("vllm-main", None),
        (None, None),
    ],
)
def test_the_version_is_in_vllm_s_fingerprint(fingerprint: str | None, version: str | None) -> None:
    found = with_fingerprint(ServerInfo(), fingerprint)
    assert (found.system_fingerprint, found.version) == (fingerprint, version)
    assert found.sources.get("version") == (SOURCE if version else None)


def test_what_the_server_itself_told_counts() -> None:
    told = ServerInfo().learn("/version", version="0.23.0")
    found = with_fingerprint(told, "vllm-0.24.0-5f4c9222")
    assert (found.version, found.sources["version"]) == ("0.23.0", "/version")

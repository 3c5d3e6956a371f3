"""What starts a server, given as a text or as the name of a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from replay.twin.start.launches import EXPECTED, Launch, launch_of_command
from replay.twin.start.manifests import launch_in, read_documents
from traces import ConfigError
from traces.strict.whole_file import is_there, whole_file

_PATH: Final = re.compile(r"[^\s=]*\.(?:ya?ml|json|sh|txt|conf|service)")
MOST_BYTES: Final = 1 << 20
"""The largest text or file that is read: a manifest has a few thousand bytes."""
LONGEST_NAME: Final = 4096


def launch_of(given: str) -> Launch:
    """Return how the server is started that a text, or the file that it names, describes.

    Raises ConfigError where there is none, or the file cannot be read.
    """
    text, file = _text_of(given)
    documents = read_documents(text, file=file or "the manifest")
    return launch_of_command(text) if documents is None else launch_in(documents)


def _text_of(given: str) -> tuple[str, str]:
    """Return the text, and the name of its file, "" where it was given as it is."""
    is_name = len(given) < LONGEST_NAME and "\n" not in given and given.strip() != ""
    if not is_name or not (is_there(Path(given)) or _PATH.fullmatch(given)):
        if len(given) > MOST_BYTES:
            raise ConfigError(f"command: got {len(given):,} characters, expected at most {MOST_BYTES:,}")
        return given, ""
    path = Path(given)
    try:
        content = whole_file(path, most=MOST_BYTES).decode("utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"command: got no file of this name, expected {EXPECTED} ({path})") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "bytes that are not UTF-8"
        raise ConfigError(f"command: got {reason}, expected a text file with {EXPECTED} ({path})") from error
    return content, path.name

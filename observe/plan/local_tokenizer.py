"""Counting tokens with a local tokenizer, for servers without ``/tokenize``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from traces import ConfigError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class LocalTokenizer:
    """Counts a text's tokens by a ``tokenizer.json``, special tokens and chat template left out."""

    def __init__(self, path: Path) -> None:
        """Read ``path``, the file or a folder that holds it. Raises ConfigError."""
        self.path = path / "tokenizer.json" if path.is_dir() else path
        self._tokenizer = _load(self.path)

    def count(self, text: str) -> int:
        """Return how many tokens ``text`` makes."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _load(path: Path) -> Tokenizer:
    if not path.is_file():
        raise ConfigError(f"--tokenizer: got no such file, expected a tokenizer.json or its folder ({path})")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigError(
            "--tokenizer: got no tokenizers library, expected the extra: pip install 'vtwin[tokenizer]'"
        ) from error
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise ConfigError(f"--tokenizer: got {error}, expected a tokenizer.json ({path})") from error

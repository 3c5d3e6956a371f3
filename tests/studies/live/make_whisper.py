"""Write a Whisper that nobody trained: two layers, a tokenizer of single bytes and the marks of transcriptions.

Runs under the Python of the vLLM environment: `python make_whisper.py FOLDER`. vLLM fills the weights at random
(`--load-format dummy`); its encoder reads 30 s of sound, as Whisper's does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tokenizers import pre_tokenizers
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperTokenizer

END, BEGIN = "<|endoftext|>", "<|startoftranscript|>"
TASKS = ("<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>")
MARKS = (BEGIN, *TASKS, "<|nospeech|>", "<|notimestamps|>")
NUM_TIMES = 1501  # one every 20 ms of 30 s
WIDTH = {"d_model": 128, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256}
DEPTH = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
}


def write_tokenizer(folder: Path) -> WhisperTokenizer:
    """Write a tokenizer whose tokens are bytes, the end, the marks and the times; return it."""
    alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), END]
    (folder / "vocab.json").write_text(json.dumps({text: number for number, text in enumerate(alphabet)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = WhisperTokenizer(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
    times = [f"<|{number * 0.02:.2f}|>" for number in range(NUM_TIMES)]
    tokenizer.add_tokens([*MARKS, *times], special_tokens=True)
    tokenizer.save_pretrained(folder)
    return tokenizer


def main(folder: Path) -> None:
    """Write tokenizer and feature extractor, then config.json: a folder that has the latter is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = write_tokenizer(folder)
    WhisperFeatureExtractor(feature_size=80).save_pretrained(folder)
    preprocessor = folder / "preprocessor_config.json"
    said = json.loads(preprocessor.read_text()) | {"processor_class": "WhisperProcessor"}
    preprocessor.write_text(json.dumps(said))
    end, begin = tokenizer.convert_tokens_to_ids([END, BEGIN])
    WhisperConfig(
        vocab_size=len(tokenizer),
        num_mel_bins=80,
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=begin,
        architectures=["WhisperForConditionalGeneration"],
        dtype="float32",
        **WIDTH,
        **DEPTH,
    ).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

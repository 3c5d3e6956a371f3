import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vtwin
from replay.twin.start.flag_table import FLAGS
from replay.twin.start.from_serve import start_from_serve, twin_text
from replay.twin.start.serve_flags import parse_serve
from traces import ConfigError

SWITCHES = [name for name, flag in FLAGS.items() if flag.kind == "switch"]
UNUSED = [
    name for name, flag in FLAGS.items() if not flag.key and name not in ("model", "speculative-config")
]
ALPHABET = string.ascii_letters + string.digits


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize(
    ("value", "is_on"), [("False", False), ("false", False), ("0", False), ("True", True), ("1", True)]
)
def test_a_switch_s_value_is_its_value_with_a_space_or_a_sign(name: str, value: str, is_on: bool) -> None:
    found = [parse_serve(f"vllm serve m --{name}{between}{value}") for between in (" ", "=")]
    plain = parse_serve(f"vllm serve m --{'' if is_on else 'no-'}{name}")
    for served in found:
        assert (served.engine, served.hardware) == (plain.engine, plain.hardware)
        assert any(f"is taken as {str(is_on).lower()}" in note for note in served.notes)


@pytest.mark.parametrize("flags", ["--enable-prefix-caching=maybe", "--no-enable-prefix-caching False"])
def test_a_switch_s_value_that_says_nothing_clear_is_refused(flags: str) -> None:
    with pytest.raises(ConfigError, match="expected true or false, or no value"):
        parse_serve(f"vllm serve m {flags}")


def test_a_model_behind_a_switch_is_the_model() -> None:
    assert parse_serve("vllm serve --enforce-eager org/model").model == "org/model"


def said(capsys: pytest.CaptureFixture[str], command: str) -> str:
    vtwin.main(["config", "from-serve", command])
    shown = capsys.readouterr()
    return shown.out + shown.err


@settings(max_examples=100)
@given(
    secret=st.text(ALPHABET, min_size=16, max_size=40),
    name=st.sampled_from(
        [*UNUSED, "otlp-traces-endpoint", "allowed-headers", "ssl-keyfile", "some-new-flag"]
    ),
    form=st.sampled_from(
        [
            "{n} {s}",
            "{n}={s}",
            '{n} \'{{"a": "{s}"}}\'',
            "{n}.token {s}",
            "{n} https://me:{s}@host/x?token={s}",
            "{n} '[\"{s}\"]'",
        ]
    ),
)
def test_a_value_that_the_twin_does_not_use_is_never_repeated(secret: str, name: str, form: str) -> None:
    flag = form.format(n=f"--{name}", s=secret)
    try:
        text, notes = twin_text(start_from_serve(f"vllm serve m --max-num-seqs 8 {flag}"))
        shown = text + "".join(notes)
    except ConfigError as error:
        shown = str(error)
    assert secret not in shown


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve m --api-key one hunter2hunter2 three",
        "vllm serve m --api_key=hunter2hunter2",
        "vllm serve m -x hunter2hunter2 -phunter2hunter2",
        "docker run -e HF_TOKEN=hunter2hunter2 --env API=hunter2hunter2 vllm/vllm-openai:v0.12.0 m",
        "HF_TOKEN=hunter2hunter2 vllm serve m",
        "HF_TOKEN=hunter2hunter2 sglang serve m",
        "docker run -e HF_TOKEN=hunter2hunter2 sglang m",
        "vllm serve https://me:hunter2hunter2@host/m",
        "vllm serve m --allowed-headers '[\"a\"]' hunter2hunter2",
        "vllm serve m --kv-transfer-config hunter2hunter2",
        "vllm serve m --kv-transfer-config.kv_connector hunter2hunter2",
        "vllm serve m --hf-overrides hunter2hunter2 --hf-overrides.a 1",
        "vllm serve m --scheduler-cls hunter2hunter2",
        "vllm serve m --mamba-cache-mode hunter2hunter2",
        "vllm serve m --speculative-config hunter2hunter2",
        'vllm serve m --speculative-config \'{"method": "mtp", "num_speculative_tokens": 1, "t": "hunter2hunter2"}\'',
        'vllm serve m --speculative-config \'{"method": "mtp", "token": "hunter2hunter2"}\'',
        "kind: Pod\nspec: {containers: [{image: 'vllm/vllm-openai:v0.12.0', env: [{name: HF_TOKEN, value: "
        "hunter2hunter2}], args: [--model=m, --api-key, $(HF_TOKEN), hunter2hunter2]}]}",
        "services: {a: {image: nginx, environment: [HF_TOKEN=hunter2hunter2]}}",
        "kind: hunter2 hunter2hunter2\n",
    ],
)  # fmt: skip
def test_no_key_of_a_command_is_printed_or_written(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "hunter2hunter2" not in said(capsys, command)


def test_a_variable_without_a_value_is_named_and_other_words_are_counted() -> None:
    notes = parse_serve("vllm serve m $EXTRA_ARGS stray ${MORE} stray").notes
    assert "$EXTRA_ARGS: a variable whose value the text does not say" in notes
    assert "${MORE}: a variable whose value the text does not say" in notes
    assert "2 words behind no flag that takes them: not understood" in notes

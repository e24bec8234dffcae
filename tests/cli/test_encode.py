"""`bertpt encode` from the outside: the numbers it prints or writes, its lines, its status."""

import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from bertpt import progress
from bertpt.config import EncodeConfig
from bertpt.evaluation.encode import TextEncoder
from bertpt_cli.output import print_vectors

COMMAND = [sys.executable, "-m", "bertpt_cli", "encode"]
WIDTH, POSITIONS = 12, 32  # of the model in `trained`
TEXTS = ["The old dog sees a stone.", "", "Our cat!", "the river " * 9, "Unseen zebra — 日本"]
LONG = "the river " * 40


def library(model, texts, **chosen):
    """The vectors that the command should have got."""
    encoder = TextEncoder(model, EncodeConfig(device="cpu", **chosen))
    return [one.vectors for one in encoder.encode(texts)]


def objects(result):
    assert result.stdout.endswith("\n")
    return [json.loads(line) for line in result.stdout.split("\n")[:-1]]


def only_object(result):
    [output] = objects(result)
    return output


def assert_same(found, expected):
    """Compares printed numbers with float32 vectors, every bit of them."""
    found = np.array(found)
    assert found.shape == expected.shape
    assert np.array_equal(found.astype(np.float32), expected)


def shell(line):
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=False, timeout=100
    )


# -------------------------------------------------------------------------------------- JSON Lines


@pytest.mark.parametrize(
    "chosen",
    [{}, {"pooling": "cls"}, {"pooling": "pooler"}, {"layer": 0, "normalize": True}],
    ids=str,
)
def test_a_text_is_one_object_with_the_float32_of_the_library(done, trained, chosen):
    options = [
        word
        for name, value in chosen.items()
        for word in ([f"--{name}"] if value is True else [f"--{name}", value])
    ]
    output = objects(done("encode", trained, *TEXTS, *options))
    assert [list(one) for one in output] == [["text", "embedding"]] * len(TEXTS)
    assert [one["text"] for one in output] == TEXTS
    for one, expected in zip(output, library(trained, TEXTS, **chosen), strict=True):
        assert expected.shape == (WIDTH,)
        assert_same(one["embedding"], expected)


def test_a_texts_tokens_have_an_embedding_each(done, trained):
    output = objects(done("encode", trained, *TEXTS, "--pooling", "tokens"))
    theirs = transformers.AutoTokenizer.from_pretrained(trained / "model")
    for one, text, expected in zip(
        output, TEXTS, library(trained, TEXTS, pooling="tokens"), strict=True
    ):
        assert list(one) == ["text", "tokens", "embeddings"]
        assert one["text"] == text
        assert one["tokens"] == theirs.convert_ids_to_tokens(theirs(text)["input_ids"])
        assert_same(one["embeddings"], expected)


def test_a_pair_is_printed_as_text_and_text_pair(done, trained):
    pairs = [("The dog", "sees a cat."), ("", "a stone"), ("a stone", "")]
    lines = ["\t".join(pair) for pair in pairs]
    for pooling, names in (("mean", ["embedding"]), ("tokens", ["tokens", "embeddings"])):
        output = objects(done("encode", trained, *lines, "--pair", "--pooling", pooling))
        assert [list(one) for one in output] == [["text", "text_pair", *names]] * 3
        assert [(one["text"], one["text_pair"]) for one in output] == pairs
        for one, expected in zip(output, library(trained, pairs, pooling=pooling), strict=True):
            assert_same(one[names[-1]], expected)
    assert output[0]["tokens"].count("[SEP]") == 2


def test_a_tab_without_pair_is_a_space_like_any_other(done, trained):
    tabbed, spaced = objects(done("encode", trained, "the\tdog", "the dog"))
    assert tabbed["text"] == "the\tdog"
    assert tabbed["embedding"] == spaced["embedding"]


def test_the_vector_is_that_of_transformers(done, trained):
    output = only_object(done("encode", trained, "The old dog sees a stone."))
    model = transformers.AutoModel.from_pretrained(trained / "model").eval()
    tokens = transformers.AutoTokenizer.from_pretrained(trained / "model")
    with torch.no_grad():
        hidden = model(**tokens("The old dog sees a stone.", return_tensors="pt"))
    expected = hidden.last_hidden_state[0].mean(dim=0).numpy()
    np.testing.assert_allclose(output["embedding"], expected, rtol=0, atol=1e-5)


def test_printed_numbers_give_any_float32_back(capsys):
    bits = np.random.default_rng(0).integers(0, 1 << 32, size=20_000, dtype=np.uint32)
    numbers = bits.view(np.float32)
    numbers = numbers[np.isfinite(numbers)]
    print_vectors({"text": 'a "quote" }'}, numbers)
    output = json.loads(capsys.readouterr().out)
    assert output["text"] == 'a "quote" }'
    assert_same(output["embedding"], numbers)


def test_json_changes_nothing_where_vectors_are_printed(done, trained):
    plain = done("encode", trained, *TEXTS)
    assert done("encode", trained, *TEXTS, "--json").stdout == plain.stdout


def test_the_batch_size_changes_no_result(done, trained):
    one, seven = (
        np.array([o["embedding"] for o in objects(done("encode", trained, *TEXTS, *size))])
        for size in (["--batch-size", 1], ["--batch-size", 7])
    )
    np.testing.assert_allclose(one, seven, rtol=0, atol=1e-6)


def test_a_run_its_model_and_its_checkpoint_give_the_same(done, trained):
    places = (trained, trained / "model", trained / "checkpoints" / "step-4")
    assert len({done("encode", place, *TEXTS).stdout for place in places}) == 1


def test_options_may_stand_in_a_config_file(done, trained, tmp_path):
    (tmp_path / "c.toml").write_text('pooling = "cls"\nnormalize = true\nbatch-size = 2\n')
    output = objects(done("encode", trained, *TEXTS, "--config", tmp_path / "c.toml"))
    expected = library(trained, TEXTS, pooling="cls", normalize=True, batch_size=2)
    for one, vector in zip(output, expected, strict=True):
        assert_same(one["embedding"], vector)


# ---------------------------------------------------------------------------------- standard input


@pytest.mark.parametrize(
    ("stdin", "texts"),
    [
        (b"the dog\nthe cat\n", ["the dog", "the cat"]),
        (b"the dog\nthe cat", ["the dog", "the cat"]),
        (b"the dog\r\nthe cat\r\n", ["the dog", "the cat"]),
        (b"\xef\xbb\xbfthe dog\n\xef\xbb\xbfthe cat\n", ["the dog", "\ufeffthe cat"]),
        (b"the dog\n\n \nthe cat\n\n", ["the dog", "", " ", "the cat", ""]),
        (b"the \xff\xfe dog\ncaf\xc3\n", ["the \ufffd\ufffd dog", "caf\ufffd"]),
        ("the\u2028dog\x0bcat\x85\n日\n".encode(), ["the\u2028dog\x0bcat\x85", "日"]),
        (b"the\rdog\n\tcat\t\n", ["the\rdog", "\tcat\t"]),
        (b"\n", [""]),
        (b"", []),
    ],
)
def test_a_line_of_standard_input_is_a_text(done, trained, stdin, texts):
    result = done("encode", trained, "-", stdin=stdin)
    output = [json.loads(line) for line in result.stdout.split("\n")[:-1]]
    assert [one["text"] for one in output] == texts
    for one, expected in zip(output, library(trained, texts), strict=True):
        assert_same(one["embedding"], expected)
    assert result.stderr == ""


def test_many_lines_come_back_in_their_order(done, trained, text):
    lines = [line for line in text.splitlines() if line] * 3
    lines = [line[: 3 + 17 * number % 90] for number, line in enumerate(lines)]
    output = objects(done("encode", trained, "-", "--batch-size", 2, stdin="\n".join(lines)))
    assert [one["text"] for one in output] == lines
    alone = {one["text"]: one for one in objects(done("encode", trained, *lines[:9]))}
    for one in output[:9]:
        expected = alone[one["text"]]["embedding"]
        np.testing.assert_allclose(one["embedding"], expected, rtol=0, atol=1e-6)


def test_standard_input_may_stand_among_texts(done, trained):
    output = objects(done("encode", trained, "first", "-", "last", stdin="one\ntwo\n"))
    assert [one["text"] for one in output] == ["first", "one", "two", "last"]


@pytest.mark.slow
def test_a_closed_standard_input_is_named(trained, tmp_path):
    command = shlex.join([*COMMAND, str(trained), "-", "--out", str(tmp_path / "v.npy"), "--quiet"])
    result = shell(f"{command} <&-")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "error: standard input is closed\n"
    assert list(tmp_path.iterdir()) == []


def test_bytes_of_a_shell_that_are_no_utf8_are_printed_as_u_fffd(done, trained):
    """Python has a byte of the command line that is no UTF-8 as a lone surrogate."""
    output = objects(done("encode", trained, "the \udcff dog", "the dog"))
    assert [one["text"] for one in output] == ["the \ufffd dog", "the dog"]
    pair = only_object(done("encode", trained, "the \udcff dog\t\udcfe", "--pair"))
    assert (pair["text"], pair["text_pair"]) == ("the \ufffd dog", "\ufffd")


@pytest.mark.slow
def test_a_closed_stdout_ends_an_endless_input_quietly(trained):
    command = shlex.join([*COMMAND, str(trained), "-", "--batch-size", "1"])
    result = shell(f"yes 'the dog' | {command} | head -n 1; echo ${{PIPESTATUS[1]}}")
    first, status = result.stdout.splitlines()
    assert json.loads(first)["text"] == "the dog"
    assert int(status) in (0, 128 + signal.SIGPIPE)
    assert result.stderr == ""


# ------------------------------------------------------------------------------------------- files


def test_vectors_go_into_an_npy_file_and_a_line_tells(done, trained, tmp_path):
    out = tmp_path / "v.npy"
    result = done("encode", trained, *TEXTS, "--out", out, "--quiet")
    assert (result.stdout, result.stderr) == (f"5 texts in {out}, vectors of 12\n", "")
    assert_same(np.load(out, allow_pickle=False), np.stack(library(trained, TEXTS)))
    assert list(tmp_path.iterdir()) == [out]


def test_vectors_of_tokens_go_into_a_safetensors_file(done, trained, tmp_path):
    out = tmp_path / "new" / "v.safetensors"
    done("encode", trained, *TEXTS, "--pooling", "tokens", "--out", out)
    expected = library(trained, TEXTS, pooling="tokens")
    found = safetensors.numpy.load_file(out)
    assert found["lengths"].tolist() == [len(vectors) for vectors in expected]
    assert_same(found["embeddings"], np.concatenate(expected))


@pytest.mark.parametrize("stdin", ["the dog\nthe cat\n", ""])
def test_json_tells_a_file_in_one_object(done, trained, tmp_path, stdin):
    out = tmp_path / "v.safetensors"
    result = done("encode", trained, "-", "--out", out, "--json", stdin=stdin)
    number = stdin.count("\n")
    output = only_object(result)
    assert output == {"out": str(out), "num_texts": number, "hidden_size": WIDTH}
    assert safetensors.numpy.load_file(out)["embeddings"].shape == (number, WIDTH)


def test_thousands_are_printed_with_a_comma(done, trained, tmp_path):
    out = tmp_path / "v.npy"
    result = done("encode", trained, "-", "--out", out, "--quiet", stdin="the dog\n" * 1234)
    assert result.stdout == f"1,234 texts in {out}, vectors of 12\n"
    assert np.load(out).shape == (1234, WIDTH)


def test_a_file_name_may_be_invalid_utf8(done, trained, tmp_path):
    out = tmp_path / os.fsdecode(b"caf\xe9.npy")
    shown = tmp_path / "caf\ufffd.npy"
    output = only_object(done("encode", trained, "the dog", "--out", out, "--json"))
    assert output["out"] == str(shown)
    assert np.load(out).shape == (1, WIDTH)
    result = done("encode", trained, "the dog", "--out", out, "--overwrite")
    assert result.stdout == f"1 text in {shown}, vectors of 12\n"


def test_a_file_is_replaced_only_when_asked(run, done, trained, tmp_path):
    out = tmp_path / "v.npy"
    done("encode", trained, *TEXTS, "--out", out)
    before = out.read_bytes()
    result = run("encode", trained, "the dog", "--out", out, "--quiet")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"error: {out} exists; give another --out, or --overwrite to replace it\n"
    )
    assert out.read_bytes() == before
    done("encode", trained, "the dog", "--out", out, "--overwrite")
    assert_same(np.load(out), np.stack(library(trained, ["the dog"])))


def test_a_folder_at_the_place_of_the_file_is_refused_before_any_work(run, trained, tmp_path):
    for out in (tmp_path / "empty.npy", tmp_path / "full.npy"):
        out.mkdir()
    (tmp_path / "full.npy" / "letter").touch()
    for out in (tmp_path / "empty.npy", tmp_path / "full.npy"):
        result = run("encode", trained, "the dog", "--out", out)
        assert (result.exit_code, result.stdout) == (1, "")
        assert re.fullmatch(rf"error: {out}.*\n", result.stderr), result.stderr


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_leaves_nothing(trained, tmp_path):
    """Simulates a full disk with a limit on the size of files."""
    result = subprocess.run(
        [*COMMAND, str(trained), "-", "--out", "v.npy", "--quiet"],
        cwd=tmp_path,
        input="the dog\n" * 500,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert (result.returncode, result.stdout) == (1, "")
    line = r"error: [^\n]*v\.npy[^\n]*too large[^\n]*\n"
    assert re.fullmatch(line, result.stderr), result.stderr
    assert ".tmp-" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)
def test_a_signal_removes_an_unfinished_file(trained, tmp_path, number, status):
    process = subprocess.Popen(
        [*COMMAND, str(trained), "-", "--out", str(tmp_path / "v.npy")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        process.stdin.write("the dog\n")
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert list(tmp_path.iterdir()) != []
        assert not (tmp_path / "v.npy").exists()
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (status, "")
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------------------- log lines


def test_progress_is_shown_on_stderr_only_when_writing_a_file(done, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    printed = done("encode", trained, "-", stdin="the dog\n" * 99)
    assert len(objects(printed)) == 99
    assert printed.stderr == ""
    out = ("--out", tmp_path / "v.npy", "--overwrite")
    written = done("encode", trained, "-", *out, "--batch-size", 5, stdin="the dog\n" * 99)
    assert written.stdout.count("\n") == 1
    assert "99text" in written.stderr.splitlines()[-1]
    for control in (b"\r", b"\x1b", b"\n\n"):
        assert control not in written.stderr_bytes
    quiet = done("encode", trained, "-", *out, "--quiet", stdin="the dog\n" * 99)
    assert quiet.stderr == ""


def test_texts_that_were_cut_are_counted_in_a_warning(done, trained):
    warning = "warning: 2 of 3 texts were truncated to the model's maximum of 32 tokens\n"
    result = done("encode", trained, LONG, "the dog", f"{LONG} dog")
    assert result.stderr == warning
    assert [one["text"] for one in objects(result)] == [LONG, "the dog", f"{LONG} dog"]
    pairs = done("encode", trained, "--pair", f"{LONG}\ta", "a\tb", f"a\t{LONG}")
    assert pairs.stderr == warning
    assert done("encode", trained, LONG, "--quiet").stderr == ""
    whole = " ".join(["the"] * (POSITIONS - 2))
    assert done("encode", trained, whole).stderr == ""
    tokens = only_object(done("encode", trained, LONG, "--pooling", "tokens"))["tokens"]
    assert len(tokens) == POSITIONS
    assert tokens[-1] == "[SEP]"


def test_a_warning_is_also_shown_when_writing_a_file(done, trained, tmp_path):
    result = done("encode", trained, LONG, "the dog", "--out", tmp_path / "v.npy")
    assert "warning: 1 of 2 texts" in result.stderr
    assert result.stdout == f"2 texts in {tmp_path / 'v.npy'}, vectors of 12\n"


def test_what_is_left_out_of_a_classifier_is_named(done, trained, tmp_path):
    classifier = transformers.BertForSequenceClassification.from_pretrained(trained / "model")
    classifier.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(trained / "model").save_pretrained(tmp_path)
    result = done("encode", tmp_path, "the dog")
    assert result.stderr == f"{tmp_path}: ignored classifier.bias, classifier.weight\n"
    quiet = done("encode", tmp_path, "the dog", "--quiet")
    assert quiet.stderr == ""
    assert quiet.stdout == result.stdout == done("encode", trained, "the dog").stdout


# ------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(("line", "tabs"), [("the dog", "0 tabs"), ("a\tb\tc", "2 tabs")])
def test_a_line_without_a_pair_is_named(run, trained, tmp_path, line, tabs):
    stdin = f"the dog\tsees\n\t\n{line}\nthe cat\tsees\n"
    for options in ((), ("--out", tmp_path / "v.npy", "--quiet")):
        result = run("encode", trained, "-", "--pair", *options, stdin=stdin)
        assert result.exit_code == 1
        assert re.fullmatch(rf"error: line 3: --pair .*{tabs}.*\n", result.stderr), result.stderr
    assert list(tmp_path.iterdir()) == []
    result = run("encode", trained, line, "--pair")
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(rf"error: --pair .*{tabs}.*\n", result.stderr), result.stderr


def test_a_layer_above_the_models_is_named_with_their_number(run, trained):
    result = run("encode", trained, "the dog", "--layer", 5)
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(r"error: --layer 5 is above the 1 .*\n", result.stderr), result.stderr


def test_the_pooler_of_a_model_without_one_is_refused(run, trained, tmp_path):
    model = transformers.BertModel.from_pretrained(trained / "model", add_pooling_layer=False)
    model.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(trained / "model").save_pretrained(tmp_path)
    result = run("encode", tmp_path, "the dog", "--pooling", "pooler")
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(rf"error: {tmp_path} has no pooler .*\n", result.stderr), result.stderr

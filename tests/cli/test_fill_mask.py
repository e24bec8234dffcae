"""`bertpt fill-mask` from the outside, and `eval-mlm` on folders that other classes saved."""

import json
import math
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest
import safetensors.torch
import torch
import transformers

COMMAND = [sys.executable, "-m", "bertpt_cli", "fill-mask"]
TEXTS = ["The old [MASK] sees a stone.", "[MASK] cat [MASK][MASK]", "our [MASK]"]


def objects(result):
    return [json.loads(line) for line in result.stdout.split("\n")[:-1]]


def only_object(result):
    [output] = objects(result)
    return output


def save_with_tokenizer(model, trained, folder):
    """Saves a model of transformers, and beside it the tokenizer of the run it came from."""
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(trained / "model").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def restless(trained, tmp_path_factory):
    """A model that has learned nothing and is sure of it: the run's, its weights at random."""
    model = transformers.BertForPreTraining.from_pretrained(trained / "model")
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5, generator=generator)
    return save_with_tokenizer(model, trained, tmp_path_factory.mktemp("restless"))


# ------------------------------------------------------------------------------------- candidates


@pytest.mark.parametrize("top_k", [1, 4, 99])
def test_candidates_equal_the_transformers_pipeline(done, restless, top_k):
    fill = transformers.pipeline(
        "fill-mask", model=str(restless), tokenizer=str(restless), device="cpu", top_k=top_k
    )
    output = objects(done("fill-mask", restless, *TEXTS, "--top-k", top_k, "--json"))
    for text, one in zip(TEXTS, output, strict=True):
        expected = fill(text) if text.count("[MASK]") > 1 else [fill(text)]
        assert list(one) == ["text", "masks"]
        assert one["text"] == text
        for ours, theirs in zip(one["masks"], expected, strict=True):
            assert len(ours) == top_k
            names = fill.tokenizer.convert_ids_to_tokens([c["token"] for c in theirs])
            assert [c["token"] for c in ours] == names
            scores = [c["score"] for c in theirs]
            assert [c["score"] for c in ours] == pytest.approx(scores, abs=1e-4)


def test_joint_filling_tells_order_score_and_the_text_with_all_masks_filled(done, restless):
    output = only_object(done("fill-mask", restless, TEXTS[1], "--joint", "--json"))
    assert list(output) == ["text", "masks", "order", "sequence", "score"]
    assert sorted(output["order"]) == [0, 1, 2]
    assert "[MASK]" not in output["sequence"]
    # What was put in first depends on nothing else.
    alone = only_object(done("fill-mask", restless, TEXTS[1], "--json"))
    first = output["order"][0]
    assert output["masks"][first] == alone["masks"][first]
    lines = done("fill-mask", restless, TEXTS[1], "--joint").stdout.split("\n")
    assert lines[-3:] == [f"{output['sequence']}  {100 * output['score']:.1f}%", "", ""]


def test_a_word_is_masked_for_you(done, restless):
    text, masked = "The dog sees THE cat.", "[MASK] dog sees [MASK] cat."
    by_word = only_object(done("fill-mask", restless, text, "--mask-word", "tHe", "--json"))
    by_mask = only_object(done("fill-mask", restless, masked, "--json"))
    assert by_word == {"text": text, "masks": by_mask["masks"]}
    assert len(by_word["masks"]) == 2


def test_options_may_stand_in_a_config_file(done, trained, tmp_path):
    (tmp_path / "c.toml").write_text('mask-word = "the"\njoint = true\ntop_k = 2\njson = true\n')
    output = only_object(
        done("fill-mask", trained, "the dog sees", "--config", tmp_path / "c.toml", "--top-k", 3)
    )
    assert [len(candidates) for candidates in output["masks"]] == [3]
    assert output["order"] == [0]


# ---------------------------------------------------------------------------------- standard input


@pytest.mark.parametrize(
    ("stdin", "texts"),
    [
        (b"a [MASK]\nthe [MASK] dog\n", ["a [MASK]", "the [MASK] dog"]),
        (b"a [MASK]\nthe [MASK] dog", ["a [MASK]", "the [MASK] dog"]),
        (b"a [MASK]\r\nthe [MASK] dog\r\n", ["a [MASK]", "the [MASK] dog"]),
        (b"\xef\xbb\xbf[MASK]\n\xef\xbb\xbf[MASK]\n", ["[MASK]", "\ufeff[MASK]"]),
        (b"\xff [MASK] \xc3\n", ["\ufffd [MASK] \ufffd"]),
        ("日\u2028[MASK]\x85\n".encode(), ["日\u2028[MASK]\x85"]),
        (b"", []),
    ],
)
def test_a_line_of_standard_input_gives_one_object(done, restless, stdin, texts):
    result = done("fill-mask", restless, "-", "--top-k", 2, stdin=stdin)
    output = objects(result)
    assert [one["text"] for one in output] == texts
    assert all(len(one["masks"]) == 1 and len(one["masks"][0]) == 2 for one in output)
    assert result.stderr == ""


def test_a_line_is_filled_as_the_same_text_given_as_an_argument(done, restless):
    by_line = done("fill-mask", restless, "-", stdin="\n".join(TEXTS))
    assert by_line.stdout == done("fill-mask", restless, *TEXTS, "--json").stdout
    assert done("fill-mask", restless, "-", "--json", stdin="\n".join(TEXTS)).stdout == (
        by_line.stdout
    )


def test_lines_that_cannot_be_filled_are_named_and_the_others_come_out(run, restless):
    lines = ["a [MASK]", "no mask", "", "the [MASK]", f"[MASK]{' a' * 31}", "[MASK] end", "\t"]
    result = run("fill-mask", restless, "-", "--quiet", stdin="\r\n".join(lines))
    assert result.exit_code == 1
    assert [one["text"] for one in objects(result)] == [lines[0], lines[3], lines[5]]
    nothing = "no [MASK] to fill in the text"
    too_long = "the text has 34 tokens, the model reads at most 32"
    assert result.stderr.splitlines() == [
        f"error: line 2: {nothing} 'no mask'",
        f"error: line 3: {nothing} ''",
        f"error: line 5: {too_long}: '[MASK]{' a' * 25} ...'",
        rf"error: line 7: {nothing} '\t'",
    ]


def test_arguments_that_cannot_be_filled_are_named_and_the_others_come_out(run, restless):
    result = run("fill-mask", restless, "no mask", "a [MASK]", "none", "--json")
    assert result.exit_code == 1
    assert only_object(result)["text"] == "a [MASK]"
    assert result.stderr.splitlines() == [
        f"error: no [MASK] to fill in the text '{text}'" for text in ("no mask", "none")
    ]


def test_a_word_that_a_line_lacks_is_one_error_line(run, restless):
    stdin = "the dog\na cat\nthey dog\na dog, the\n"
    result = run("fill-mask", restless, "-", "--mask-word", "the", stdin=stdin)
    assert result.exit_code == 1
    assert [one["text"] for one in objects(result)] == ["the dog", "a dog, the"]
    assert result.stderr.splitlines() == [
        "error: line 2: no 'the' to mask in the text 'a cat'",
        "error: line 3: no 'the' to mask in the text 'they dog'",
    ]


def test_a_word_that_is_not_in_the_vocabulary_ends_the_command(run, restless):
    result = run("fill-mask", restless, "-", "--mask-word", "日本", stdin="日本\nthe dog\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: --mask-word '日本' is not in the vocabulary\n"


@pytest.mark.parametrize("options", [(), ("--json",), ("--mask-word", "the", "--json")])
def test_bytes_of_a_shell_that_are_no_utf8_do_not_crash(done, restless, options):
    """Python has a byte of the command line that is no UTF-8 as a lone surrogate."""
    result = done("fill-mask", restless, "the \udcff dog [MASK]", *options)
    if options:
        assert only_object(result)["text"] == "the \ufffd dog [MASK]"


def test_each_line_is_answered_before_the_next_is_read(restless):
    with subprocess.Popen(
        [*COMMAND, str(restless), "-", "--top-k", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for text in ("a [MASK]", "the [MASK]"):
            process.stdin.write(f"{text}\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["text"] == text
        process.stdin.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=30) == 0


def test_a_closed_stdout_ends_an_endless_input_quietly(restless):
    command = shlex.join([*COMMAND, str(restless), "-"])
    result = subprocess.run(
        ["bash", "-c", f"yes 'a [MASK]' | {command} | head -n 1; echo ${{PIPESTATUS[1]}}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    first, status = result.stdout.splitlines()
    assert json.loads(first)["text"] == "a [MASK]"
    assert int(status) in (0, 128 + signal.SIGPIPE)
    assert result.stderr == ""


def test_a_closed_standard_input_is_named(restless):
    command = shlex.join([*COMMAND, str(restless), "-"])
    result = subprocess.run(
        ["bash", "-c", f"{command} <&-"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "error: standard input is closed\n"


# ------------------------------------------------------------------------- folders of other classes


def test_a_task_head_is_ignored_and_named(done, restless, tmp_path):
    folder = shutil.copytree(restless, tmp_path / "both")
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights["classifier.weight"] = torch.ones(3, 12)
    weights["classifier.bias"] = torch.ones(3)
    safetensors.torch.save_file(weights, folder / "model.safetensors")
    result = done("fill-mask", folder, *TEXTS, "--json")
    assert result.stderr == f"{folder}: ignored classifier.bias, classifier.weight\n"
    assert result.stdout == done("fill-mask", restless, *TEXTS, "--json").stdout
    quiet = done("fill-mask", folder, *TEXTS, "--json", "--quiet")
    assert (quiet.stdout, quiet.stderr) == (result.stdout, "")


@pytest.mark.parametrize(
    "kind", ["BertModel", "BertForSequenceClassification", "BertForNextSentencePrediction"]
)
def test_a_model_without_an_mlm_head_is_refused_and_the_head_named(
    run, trained, data, tmp_path, kind
):
    model = getattr(transformers, kind).from_pretrained(trained / "model")
    folder = save_with_tokenizer(model, trained, tmp_path)
    for command in (("fill-mask", folder, "a [MASK]"), ("eval-mlm", folder, data)):
        result = run(*command)
        assert (result.exit_code, result.stdout) == (1, "")
        line = rf"error: {folder} has no MLM head \(cls\.predictions\.\*\); .+\n"
        assert re.fullmatch(line, result.stderr), result.stderr


@pytest.fixture
def only_mlm(trained, restless, tmp_path):
    model = transformers.BertForMaskedLM.from_pretrained(restless)
    return save_with_tokenizer(model, trained, tmp_path / "only-mlm")


def test_a_model_with_the_mlm_head_only_fills_as_one_with_both(done, restless, only_mlm):
    found, expected = (
        done("fill-mask", folder, *TEXTS, "--json", "--joint") for folder in (only_mlm, restless)
    )
    assert found.stdout == expected.stdout


def test_eval_mlm_omits_nsp_for_a_model_without_its_head(done, data, restless, only_mlm):
    both = only_object(done("eval-mlm", restless, data, "--json", "--quiet"))
    result = done("eval-mlm", only_mlm, data, "--json")
    output = only_object(result)
    assert any(
        "no trained NSP head" in line and "skipping NSP" in line
        for line in result.stderr.splitlines()
    )
    assert output["nsp_loss"] is None
    assert output["nsp_accuracy"] is None
    assert output["num_pairs"] == 0 < both["num_pairs"]
    assert both["nsp_loss"] > 0
    for key in ("mlm_loss", "mlm_perplexity", "mlm_accuracy", "mlm_top5_accuracy"):
        assert math.isclose(output[key], both[key], rel_tol=1e-6), key
    for key in ("num_examples", "num_targets", "mlm_accuracy_by_input", "baselines"):
        assert output[key] == both[key], key
    assert output["loss"] == output["mlm_loss"]
    assert done("eval-mlm", only_mlm, data, "--json", "--quiet").stderr == ""


def test_eval_mlm_prints_a_dash_for_an_nsp_that_is_left_out(done, data, only_mlm):
    result = done("eval-mlm", only_mlm, data, "--quiet")
    rows = {line[:39].strip(): line[39:].split() for line in result.stdout.splitlines()[1:]}
    assert rows["NSP"] == ["-", "-"]
    assert len(rows["MLM"]) == 4


def test_fill_mask_gives_an_object_for_each_text(done, trained):
    texts = ["The old [MASK] sees a stone.", "[MASK] cat [MASK]"]
    result = done("fill-mask", trained, *texts, "--top-k", 3, "--json")
    output = [json.loads(line) for line in result.stdout.splitlines()]
    assert [entry["text"] for entry in output] == texts
    assert [len(entry["masks"]) for entry in output] == [1, 2]
    for candidates in (mask for entry in output for mask in entry["masks"]):
        scores = [candidate["score"] for candidate in candidates]
        assert len(scores) == 3
        assert 1 > scores[0] >= scores[1] >= scores[2] > 0
    best = output[0]["masks"][0][0]
    assert best["sequence"].startswith("the old")
    assert "[MASK]" not in best["sequence"]


def test_fill_mask_prints_a_line_for_each_candidate(done, trained):
    output = json.loads(done("fill-mask", trained, "a [MASK].", "--top-k", 4, "--json").stdout)
    lines = done("fill-mask", trained, "a [MASK].", "--top-k", 4).stdout.split("\n")
    assert lines[4:] == ["", ""]
    for line, candidate in zip(lines, output["masks"][0], strict=False):
        token, score, sequence = line.split(maxsplit=2)
        assert token == candidate["token"]
        assert score == f"{100 * candidate['score']:.1f}%"
        assert sequence == candidate["sequence"]

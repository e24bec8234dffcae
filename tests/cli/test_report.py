"""The figures of build-data and inspect: in JSON, in the table, and for folders of old."""

import json
import re
import shutil

import pytest

from bertpt.data.dataset import Dataset
from bertpt_cli.output import print_histogram

# 14 entries
VOCABULARY = "".join(f"{w}\n" for w in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh."])
# 2 documents of 3 sentences of 4 tokens and 7 characters; one sentence is there twice, and one of
# the tokens is not in the vocabulary.
TEXT = "a b c .\nd e f .\ng h a .\n\nb d f .\na b c .\nh x a .\n"
NEW = {
    *("characters", "characters_per_token", "unknown_share", "continuing_share"),
    *("duplicate_sentences", "duplicate_sentences_share", "duplicate_documents"),
    *("duplicate_documents_share", "longest_document", "majority_baseline"),
    *("masked_tokens_per_sequence", "slots_filled", "capped_examples", "length_histogram"),
}


@pytest.fixture
def build(done, tmp_path):
    """Builds a data folder of lines of the toy vocabulary; gives what is printed."""
    (tmp_path / "vocab.txt").write_text(VOCABULARY)

    def build(text, *options):
        (tmp_path / "text.txt").write_text(text)
        return done(
            *("build-data", tmp_path / "text.txt", "--out", tmp_path / "data"),
            *("--tokenizer", tmp_path / "vocab.txt", "--sentence-per-line", *options),
        )

    return build


def lines_of(result):
    return result.stdout.splitlines()


def row(result, name):
    """The columns behind a name in the table."""
    [line] = [line for line in lines_of(result) if line.strip().startswith(name)]
    return line.split(name)[1].split()


def test_the_figures_are_those_of_a_count_by_hand(build):
    output = json.loads(build(TEXT, "--json").stdout)
    assert output["characters"] == 42
    assert output["characters_per_token"] == 42 / 24
    assert output["unknown_tokens"] == 1
    assert output["unknown_share"] == 1 / 24
    assert output["continuing_share"] == 0
    assert output["duplicate_sentences"] == 1
    assert output["duplicate_sentences_share"] == 1 / 6
    assert output["duplicate_documents"] == 0
    assert output["duplicate_documents_share"] == 0
    assert output["longest_document"] == 3
    assert output["majority_baseline"]["valid"] is None
    assert output["length_histogram"]["valid"] == [0] * 8


def test_the_figures_of_examples_are_those_of_the_examples(build, tmp_path):
    documents = ("\n".join(f"{a} {b} . {a} {a}" for a in "abcdefg") for b in "abcdefgh" * 4)
    output = json.loads(build("\n\n".join(documents), "--seq-len", 20, "--json").stdout)
    data = Dataset(tmp_path / "data")
    for split in ("train", "valid"):
        stored = data.examples(split)
        examples = stored.take(range(len(stored)))
        lengths = [len(example.input_ids) for example in examples]
        labels = [example.next_sentence_label for example in examples]
        commoner = max(labels.count(0), labels.count(1))
        assert output["majority_baseline"][split] == commoner / len(labels)
        masked = sum(len(example.masked_positions) for example in examples)
        assert output["masked_tokens_per_sequence"][split] == masked / len(examples)
        assert output["slots_filled"][split] == sum(lengths) / (20 * len(lengths))
        # Twenty lengths in eight bins: three, two, three, two, ...
        up_to = [3, 5, 8, 10, 13, 15, 18, 20]
        assert output["length_histogram"]["up_to"] == up_to
        assert output["length_histogram"][split] == [
            sum(start < length <= end for length in lengths)
            for start, end in zip([0, *up_to], up_to, strict=False)
        ]


def test_inspect_tells_the_figures_of_build_data(done, build, tmp_path):
    built = json.loads(build(TEXT, "--json").stdout)
    inspected = json.loads(done("inspect", tmp_path / "data", "--json").stdout)
    assert built.keys() >= NEW
    assert {key: built[key] for key in NEW} == {key: inspected[key] for key in NEW}


def test_the_table_has_the_figures(done, build, tmp_path):
    result = build(TEXT)
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    majority = manifest["majority_baseline"]["train"]
    masked = manifest["masked_tokens_per_sequence"]["train"]
    assert row(result, "majority baseline") == [f"{100 * majority:.1f}%", "-"]
    assert row(result, "per sequence") == [f"{masked:.1f}", "-"]
    assert "1.75 characters per token, 4.2% of the tokens unknown" in lines_of(result)
    assert "duplicates: 16.7% of the sentences, 0.0% of the documents" in lines_of(result)
    assert result.stdout in done("inspect", tmp_path / "data", "--examples", 1).stdout


def test_the_report_fits_a_terminal_of_80_columns(build):
    text = "\n\n".join("\n".join(["a b c d ."] * 50) for _ in range(40))
    result = build(text, "--seq-len", 65_535, "--dupe-factor", 3)
    assert max(map(len, lines_of(result))) <= 80
    assert result.stdout.isascii()


def test_a_histogram_is_drawn_to_scale(capsys):
    print_histogram({"up_to": [5, 10, 15, 20], "train": [1000, 500, 1, 0], "valid": [9] * 4})
    heading, *bars = capsys.readouterr().out.splitlines()
    assert heading == "training examples by length:"
    assert [bar.split()[:2] for bar in bars] == [
        ["1-5", "1,000"],
        ["6-10", "500"],
        ["11-15", "1"],
        ["16-20", "0"],
    ]
    longest, half, least, empty = (bar.count("#") for bar in bars)
    assert longest == 2 * half > 20
    assert (least, empty) == (1, 0)


def test_no_examples_draw_no_bars(capsys):
    print_histogram({"up_to": [5, 10], "train": [0, 0], "valid": [0, 0]})
    assert "#" not in capsys.readouterr().out


def test_a_folder_without_the_newer_figures_is_inspected_all_the_same(done, data, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(data, old)
    manifest = json.loads((old / "manifest.json").read_text())
    kept = {key: value for key, value in manifest.items() if key not in NEW}
    del kept["settings"]["objective"]
    (old / "manifest.json").write_text(json.dumps(kept))
    result = done("inspect", old, "--examples", 1)
    assert row(result, "majority baseline") == ["-", "-"]
    assert row(result, "per sequence") == ["-", "-"]
    assert row(result, "documents")[0] == str(kept["documents"]["train"])
    assert "- characters per token, - of the tokens unknown" in lines_of(result)
    assert "duplicates: - of the sentences, - of the documents" in lines_of(result)
    assert "training examples by length: -" in lines_of(result)
    assert not NEW & json.loads(done("inspect", old, "--json").stdout).keys()


# ---------------------------------------------------------------------------------------- warnings


def test_repeated_lines_are_reported_and_kept(build):
    """Thousands of repeated scraped lines made MLM stall (google-research/bert#746)."""
    result = build("a b c .\n" * 500 + f"\n{TEXT}", "--json")
    output = json.loads(result.stdout)
    assert sum(output["sentences"].values()) == 506
    assert output["duplicate_sentences"] == 501
    assert output["duplicate_sentences_share"] > 0.98
    assert "warning: 99.0% of the sentences repeat an earlier one" in result.stderr


def letters(number):
    """Documents of sentences that are all different."""
    sentences = [f"{a} {b} {c} {d}" for a in "abcdefgh" for b in "abcd" for c in "ef" for d in "gh"]
    return "\n\n".join("\n".join(sentences[i : i + 16]) for i in range(0, 16 * number, 16))


@pytest.mark.parametrize(("cap", "capped"), [(2, True), (9, True), (10, False)])
def test_a_cap_on_the_predictions_is_reported_where_it_applies(build, cap, capped):
    """20 predictions of 512 tokens are 4%, not 15% (google-research/albert#51).

    An example of 64 tokens has round(9.6) = 10 to predict.
    """
    options = ("--seq-len", 64, "--valid-fraction", 0, "--max-predictions-per-seq", cap)
    result = build(letters(8), *options, "--json")
    output = json.loads(result.stdout)
    warning = re.search(
        r"--max-predictions-per-seq (\d+) limits .*: ([\d.]+)% of the tokens are predicted "
        r"instead of 15.0%; raise it to 10",
        result.stderr,
    )
    assert (warning is not None) == capped == (output["capped_examples"]["train"] > 0)
    if warning:
        rate = output["masked_tokens"]["train"] / output["example_tokens"]["train"]
        assert warning.groups() == (str(cap), f"{100 * rate:.1f}")


@pytest.mark.parametrize(("number", "output"), [(1000, False), (1001, True)])
def test_a_text_without_blank_lines_is_reported(build, number, output):
    sentences = [
        f"{a} {b} {c} {d}" for a in "abcdefgh" for b in "abcdefgh" for c in "abcd" for d in "abcd"
    ]
    result = build("\n".join(sentences[:number]) + "\n\ne f\ng h\n", "--valid-fraction", 0)
    assert ("are there no blank lines?" in result.stderr) == output

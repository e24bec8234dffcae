"""Pairs, masks, data files: faults that users of other tools met, and the right value."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from helpers import TINY, digests

from bertpt.data.dataset import Dataset
from bertpt.data.hf_view import transformers_view

# -------------------------------------------------------------------------------------------- pairs


def test_a_long_pair_is_cut_at_the_ends_of_its_segments_and_none_is_lost(build):
    """Long pairs stayed too long, lost their second segment, or were left out.

    (huggingface/transformers#12188, google-research/bert#627)
    """
    documents = [
        [f"{'a ' * 100}.", "b c ."],
        ["d e .", f"{'f ' * 100}."],
        ["g h .", "a b ."],
    ]
    text = "\n\n".join("\n".join(document) for document in documents)
    found = build(text, "--seq-len", 16, "--dupe-factor", 100)
    lengths, num_next = set(), 0
    for example in found.examples():
        lengths.add(len(example.tokens))
        num_next += example.is_next
        assert example.tokens[0] == "[CLS]"
        assert example.tokens[-1] == "[SEP]"
        assert example.tokens.count("[SEP]") == 2
        assert example.a
        assert example.b
        homes = [
            [i for i, document in enumerate(documents) if segment in " ".join(document)]
            for segment in (example.a, example.b)
        ]
        assert all(homes), "a segment is one stretch of a document"
        if example.is_next:
            assert set(homes[0]) & set(homes[1])
    assert max(lengths) == 16
    # Two sentences are paired until they are paired truly: once a document and pass.
    assert num_next == found.manifest["label_counts"]["train"]["is_next"] == 300
    short = {(e.a, e.b) for e in found.examples() if e.is_next and e.a == "g h ."}
    assert short == {("g h .", "a b .")}


# -------------------------------------------------------------------------------------------- masks


@pytest.fixture(scope="module")
def many(build, two):
    """Thousands of examples of a vocabulary of nine words, most of their places empty."""
    return build(two, "--seq-len", 32, "--dupe-factor", 2000)


def test_only_words_are_predicted_and_the_true_token_is_stored(many, two, runs):
    """[CLS], [SEP] and padding were predicted, which made the loss low for nothing.

    (AnswerDotAI/ModernBERT#212, huggingface/transformers#11155)
    """
    whole, num_examples = runs(two), 0
    for example in many.examples():
        num_examples += 1
        assert {example.a, example.b} <= whole
        assert example.targets == sorted(set(example.targets))
        assert example.targets[0] >= 1
        assert example.targets[-1] <= len(example.tokens) - 2
        assert not {"[PAD]", "[CLS]", "[SEP]"} & {example.tokens[i] for i in example.targets}
    assert num_examples > 8000


def test_random_replacements_are_never_special_and_every_word_occurs(many, letters):
    """A random replacement drew [PAD] and [CLS], and such a place was then hidden from attention.

    (graykode/nlp-tutorial#40)
    """
    seen = {word for example in many.examples() for word in example.seen}
    assert seen == {"[MASK]", *letters}


def test_padding_is_known_by_the_length_and_labels_are_the_true_tokens(many):
    """Attention left out whatever looked like padding. (CompEpigen/methylbert#28)"""
    view = transformers_view(Dataset(many.folder))[:2000]
    for row, example in enumerate(many.examples()):
        if row == 2000:
            break
        length = len(example.tokens)
        assert view["attention_mask"][row].tolist() == [1] * length + [0] * (32 - length)
        labels = view["labels"][row].tolist()
        true = {position: example.tokens[position] for position in example.targets}
        labelled = {i: many.vocab[label] for i, label in enumerate(labels) if label != -100}
        assert labelled == true


def test_a_vocabulary_of_one_word_does_not_search_forever(build):
    """A replacement other than the token itself was looked for until there is one.

    (graykode/nlp-tutorial#40)
    """
    found = build("a a\na a\n\na a\na a\n", "--dupe-factor", 50, words=["a"])
    seen = set()
    for example in found.examples():
        assert example.is_next, "no sentence is unlike the next one"
        assert (example.a, example.b) == ("a a", "a a")
        seen.update(example.seen)
    assert seen == {"[MASK]", "a"}


def test_the_data_decides_the_number_of_predictions(run, build, two, tmp_path):
    """Two commands needed the same number, and training failed if they differed.

    (google-research/bert#752, google-research/bert#1365)
    """
    found = build(two, "--seq-len", 64, "--max-predictions-per-seq", 10)
    out = ("--out", tmp_path / "run", *TINY, "--steps", 1, "--quiet")
    refused = run("pretrain", found.folder, *out, "--max-predictions-per-seq", 5)
    assert refused.exit_code == 2
    assert re.fullmatch(r"error: .*--max-predictions-per-seq.*\n", refused.stderr)
    assert list(tmp_path.iterdir()) == []
    assert run("pretrain", found.folder, *out).exit_code == 0


def test_the_rate_that_a_cap_leaves_is_printed(build, row):
    """20 predictions in 512 tokens are 4% instead of 15%. (google-research/albert#51)"""
    words = "abcdefgh"
    sentences = [f"{a} {b} {c} {d}" for a in words for b in words for c in words for d in words]
    text = "\n".join(sentences * 4) + "\n\n" + "\n".join(sentences[::-1] * 4) + "\n"
    options = ("--seq-len", 512, "--max-predictions-per-seq", 20, "--short-seq-prob", 0)
    found = build(text, *options)
    examples = list(found.examples())
    for example in examples:
        assert len(example.targets) == min(20, round(0.15 * len(example.tokens)))
    # Only the ends of the two documents are shorter.
    assert sum(len(example.tokens) < 512 for example in examples) < 0.05 * len(examples)
    assert row(found.report, "tokens to predict") == ["3.9%", "-"]  # 20 / 512
    assert re.search(
        r"^warning: --max-predictions-per-seq 20 limits [\d.]+% of the examples: 3\.9% of the "
        r"tokens are predicted instead of 15\.0%; raise it to 77$",  # 0.15 x 512 = 76.8
        found.log,
        re.MULTILINE,
    )


UNAFFABLE = "unaffable unaffable\na unaffable\n\nunaffable\nb unaffable\n"


@pytest.mark.parametrize(
    ("text", "share", "sizes"),
    [
        (UNAFFABLE, 0.15, {1}),  # of 11 tokens or 14, two at most: "a" or "b"
        (UNAFFABLE, 0.4, {1, 3, 4}),
        (re.sub("[ab] ", "", UNAFFABLE), 0.15, {3}),  # no word fits, and one is predicted
    ],
)
def test_every_piece_of_a_word_is_predicted_or_none_and_every_example_has_one(
    build, text, share, sizes
):
    """Parts of a word were masked; where all words were long, nothing was predicted.

    (huggingface/transformers#12998, huggingface/transformers#11768)
    """
    words = [*"abcdefgh.", "un", "##aff", "##able"]
    options = ("--whole-word", "--masked-lm-prob", share, "--dupe-factor", 500)
    found, num_targets = build(text, *options, words=words), set()
    for example in found.examples():
        targets = set(example.targets)
        num_targets.add(len(targets))
        assert len(example.targets) == len(example.seen) == len(targets)
        for start in (i for i, token in enumerate(example.tokens) if token == "un"):
            assert example.tokens[start : start + 3] == ["un", "##aff", "##able"]
            assert len(targets & set(range(start, start + 3))) in (0, 3)
    assert num_targets <= sizes
    assert max(num_targets) == max(sizes)


# --------------------------------------------------------------------------------------- data files


AFTER_TORCH = """
if __name__ == "__main__":
    import sys
    import torch
    from bertpt.build import workers
    from bertpt_cli.main import app

    torch.rand(300, 300, requires_grad=True).matmul(torch.rand(300, 300)).sum().backward()
    workers.TASKS_ALONE = 0  # or so little text would be done here
    app(sys.argv[1:])
"""


def test_hash_seeds_workers_and_earlier_runs_change_no_byte(corpus, done, tmp_path):
    """The same command gave other data, by the interpreter's hashes or the order of the workers.

    Or it waited for ever, for workers that were forked after torch had started its threads.
    (huggingface/transformers#2306, huggingface/datasets#620)
    """
    (tmp_path / "script.py").write_text(AFTER_TORCH)
    build = ["build-data", "corpus.txt", "--vocab-size", "99", "--quiet"]
    build += ["--dupe-factor", "9"]  # so that there are tasks for all workers
    found = []
    for hash_seed, number in (("0", "1"), ("42", "3")):
        folder = tmp_path / number
        folder.mkdir()
        shutil.copy(corpus, folder / "corpus.txt")
        options = ["--out", "o", "--seed", "1", "--workers", number]
        subprocess.run(
            [sys.executable, tmp_path / "script.py", *build, *options],
            cwd=folder,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            timeout=120,
        )
        found.append(digests(folder / "o"))
    assert found[0] == found[1]
    manifest = json.loads((tmp_path / "1/o/manifest.json").read_text())
    shards = {shard["file"]: shard["sha256"] for shard in manifest["shards"]}
    assert set(shards) == {"train/data-00000.arrow", "valid/data-00000.arrow"}
    assert shards.items() <= found[0].items()
    other = [corpus if word == "corpus.txt" else word for word in build]
    done(*other, "--out", tmp_path / "other", "--seed", 2)
    assert not shards.items() & digests(tmp_path / "other").items()


SIX = "\n\n".join("\n".join(f"a doc{d} sentence{i} ." for i in range(4)) for d in range(6))


def test_no_sentence_is_in_both_splits_even_as_a_random_b(build):
    """Copies of one document were both trained on and held out. (tomhosking/hrq-vae#2)"""
    words = ["a", ".", *(f"doc{d}" for d in range(6)), *(f"sentence{i}" for i in range(4))]
    found = build(SIX, "--dupe-factor", 5, "--valid-fraction", 0.34, words=words)
    assert found.manifest["documents"] == {"train": 4, "valid": 2}
    documents = {
        split: {token for e in found.examples(split) for token in e.tokens if "doc" in token}
        for split in ("train", "valid")
    }
    assert {split: len(names) for split, names in documents.items()} == {"train": 4, "valid": 2}
    assert not documents["train"] & documents["valid"]
    for split in ("train", "valid"):
        assert {e.is_next for e in found.examples(split)} == {True, False}


def test_too_few_documents_to_hold_any_out_give_a_warning(build):
    """A part of one document has no other to draw from. (google-research/bert#1332)"""
    text = "\n\n".join(SIX.split("\n\n")[:3])
    found = build(text, "--valid-fraction", 0.34)
    assert found.manifest["documents"] == {"train": 3, "valid": 0}
    assert "warning: 3 documents are too few to hold any out, so valid/ is empty\n" in found.log


def test_data_of_another_vocabulary_is_never_mistaken_for_this_one(run, done, build, two, tmp_path):
    """Data built with another vocabulary was used again for having the same name.

    (huggingface/transformers#7632)
    """
    first, other = build(two), build(two, words=".hgfedcba")
    before = digests(first.folder)
    prints = [found.manifest["tokenizer_sha256"] for found in (first, other)]
    assert prints[0] != prints[1]
    again = (
        *("build-data", *first.manifest["inputs"], "--out", first.folder, "--quiet"),
        *("--tokenizer", other.manifest["tokenizer"], "--sentence-per-line", "--valid-fraction", 0),
    )
    refused = run(*again)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"error: {first.folder} exists; give another --out, or --overwrite to replace it\n"
    )
    assert digests(first.folder) == before

    model = tmp_path / "run"
    done("pretrain", first.folder, "--out", model, *TINY, "--steps", 1, "--quiet")
    done(*again, "--overwrite")
    for call in (
        ("eval-mlm", model, first.folder, "--split", "train"),
        ("pretrain", first.folder, "--out", tmp_path / "next", "--init-from", model),
    ):
        refused = run(*call, "--quiet")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert re.fullmatch(r"error: .+\n", refused.stderr)
        assert all(name[:12] in refused.stderr for name in prints)
    assert not (tmp_path / "next").exists()
    refused = run("pretrain", first.folder, "--out", model, "--resume", "--quiet")
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"error: {model} was trained on {first.folder} (")

    manifests = (json.loads((f.folder / "manifest.json").read_text()) for f in (first, other))
    ours, theirs = ({**manifest, "inputs": None} for manifest in manifests)
    assert ours == theirs, "all is of the new vocabulary"
    rebuilt, other_seed = digests(first.folder), digests(other.folder)
    assert {**rebuilt, "manifest.json": ""} == {**other_seed, "manifest.json": ""}
    assert rebuilt["train/data-00000.arrow"] != before["train/data-00000.arrow"]

"""Reading the corpus: faults that users of other pretraining tools met, and the right value."""

import gzip
import re
import subprocess
import sys

import pytest
from helpers import digests

from bertpt.build import workers

# ---------------------------------------------------------------------------------- few documents


def test_with_two_documents_every_random_b_comes_from_the_other(build, row):
    """True continuations were labelled random, B being drawn from A's own document.

    (NVIDIA/DeepLearningExamples#421)
    """
    one, other = ["a b"], ["c d e", "f g h", "a c e"]
    found = build("a b\n\nc d e\nf g h\na c e\n", "--dupe-factor", 200)
    labels = {True: 0, False: 0}
    for example in found.examples():
        labels[example.is_next] += 1
        document, elsewhere = (one, other) if example.a == "a b" else (other, one)
        if example.is_next:
            assert f"{example.a} {example.b}" in " ".join(document)
        else:
            assert example.b in " ".join(elsewhere)
        assert example.a in " ".join(document)
    assert min(labels.values()) >= 200  # each pass: one true pair of the three, one random of "a b"
    assert row(found.report, "documents") == ["2", "0"]


def test_documents_of_one_sentence_are_never_paired_with_themselves(build, row):
    """A blank line after every line gave labels that were all alike, or a crash, without a word.

    (google-research/bert#125)
    """
    sentences = {"a b .", "c d .", "e f ."}
    found = build("a b .\n\nc d .\n\ne f .\n", "--dupe-factor", 100)
    examples = list(found.examples())
    assert len(examples) == 300
    for example in examples:
        assert not example.is_next
        assert {example.a, example.b} < sentences
        assert example.a != example.b
    assert found.manifest["label_counts"]["train"] == {"is_next": 0, "random": 300}
    assert row(found.report, "B is random") == ["100.0%", "-"]
    assert "warning: 3 of 3 documents have one sentence and give random pairs only" in found.log


# ---------------------------------------------------------------------------------- odd characters


UTF8 = "".join(
    "".join(f"\u2019\u6211\u7231 {i}\u2019\n" for i in range(5)) + "\n" for _ in range(40)
)


@pytest.fixture
def of_multibyte_characters(build, runs):
    """Builds from characters of three bytes, and holds every segment against the lines."""
    spaced = UTF8.replace("\u2019", " \u2019 ").replace("\u6211", "\u6211 ")
    lines = "\n".join(" ".join(line.split()) for line in spaced.splitlines())
    whole = runs(lines.removesuffix("\n"))

    def check(*options):
        found = build(UTF8, *options, words="\u2019\u6211\u723101234")
        assert found.manifest["documents"]["train"] == 40
        assert found.manifest["replaced_lines"] == found.manifest["unknown_tokens"] == 0
        examples = list(found.examples())
        assert len(examples) >= 40
        assert {segment for e in examples for segment in (e.a, e.b)} <= whole
        return digests(found.folder / "train")

    return check


def test_no_seed_cuts_a_character_or_a_line(of_multibyte_characters):
    """B was looked up at a random byte, in the middle of a character or of a line.

    (dhlee347/pytorchic-bert#1)
    """
    different = {tuple(of_multibyte_characters("--seed", seed).values()) for seed in range(1, 31)}
    assert len(different) == 30


def test_workers_cut_no_character_or_line(of_multibyte_characters, monkeypatch):
    """Parts of a file for parts of the work were bounded by bytes.

    (dhlee347/pytorchic-bert#1)
    """
    alone = of_multibyte_characters("--workers", 1)
    monkeypatch.setattr(workers, "TASKS_ALONE", 0)  # or so little text would be done here
    assert of_multibyte_characters("--workers", 2) == alone


def test_nul_characters_are_deleted_and_never_enter_a_vocabulary(build):
    """A NUL lost its line, or made a row of the vocabulary that could not be loaded.

    (google/sentencepiece#331)
    """
    text = b"a\0b c .\nd e .\n\nf \0 g .\nh a .\n"
    found = build(text, "--vocab-size", 50, "--min-frequency", 1, words=None)
    assert found.manifest["sentences"]["train"] == 4
    assert (
        "warning: 2 lines contained NUL characters, which were removed; the first is " in found.log
    )
    segments = {segment for e in found.examples() for segment in (e.a, e.b)}
    assert segments == {"ab c .", "d e .", "f g .", "h a ."}
    assert "ab" in found.vocab
    assert not [word for word in found.vocab if "\0" in word or word in ("", "##")]


HALVES = {
    "rows.jsonl": b'{"text":"a \\ud83d b ."}\n{"text":"c d ."}\n',
    "text.txt": b"a \xed\xa0\xbd b .\n\nc d .\n",  # the same in CESU-8
}


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("rows.jsonl", "1 rows contained half a surrogate pair, which became U+FFFD"),
        ("text.txt", "1 lines were not valid UTF-8; the bad bytes became U+FFFD"),
    ],
)
def test_half_a_surrogate_pair_is_replaced_with_a_warning(build, name, warning):
    """Half a surrogate pair raised UnicodeEncodeError far from its line.

    (huggingface/transformers#8886)
    """
    found = build(HALVES[name], name=name)
    assert re.search(f"warning: {re.escape(warning)}; the first is .*{name}: line 1\n", found.log)
    # U+FFFD is then cleaned away, as BERT's cleaning has it.
    assert {segment for e in found.examples() for segment in (e.a, e.b)} == {"a b .", "c d ."}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("rows.jsonl", "contains half a surrogate pair"),
        ("text.txt", "is not valid UTF-8"),
    ],
)
@pytest.mark.parametrize("command", ["build-data", "train-tokenizer"])
def test_half_a_surrogate_pair_is_refused_with_its_line_if_asked(
    run, tmp_path, name, problem, command
):
    """The same error named no line, and left half a result. (openai/tiktoken#82)"""
    path = tmp_path / name
    path.write_bytes(HALVES[name])
    result = run(command, path, "--out", tmp_path / "out", "--strict", "--quiet")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: {path}: line 1 {problem}; repair it, or leave out --strict\n"
    assert list(tmp_path.iterdir()) == [path]


# -------------------------------------------------------------------------------------- compressed


@pytest.mark.parametrize("command", ["build-data", "train-tokenizer"])
def test_compressed_text_gives_the_data_of_plain_text(done, tmp_path, two, command):
    """One stage unpacked its input and another took the packed bytes for text.

    (piskvorky/gensim#3246)
    """
    found = []
    for name, content in {
        "two.txt": two.encode(),
        "two.txt.gz": gzip.compress(two.encode()),
        "renamed.txt": gzip.compress(two.encode()),
    }.items():
        (tmp_path / name).write_bytes(content)
        out = tmp_path / f"{name}.out"
        done(command, tmp_path / name, "--out", out, "--vocab-size", 40, "--quiet")
        found.append({k: v for k, v in digests(out).items() if k != "manifest.json"})
    assert found[0] == found[1] == found[2]
    assert len(found[0]) >= 3


# ------------------------------------------------------------------------------- --------- memory

TELL_MEMORY = """
import resource, subprocess, sys
command = [sys.executable, "-m", "bertpt_cli", *sys.argv[1:]]
subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.slow
def test_ten_passes_take_the_memory_of_one(tmp_path, vocabulary):
    """All passes over the text were held in memory until the process was killed.

    (google-research/bert#117)
    """
    words = [f"w{i}" for i in range(30_517)]
    sentence = [" ".join(words[(i * i + 7 * k) % 30_517] for k in range(18)) for i in range(2_000)]
    document = "\n".join(sentence[:40])
    with (tmp_path / "big.txt").open("w") as file:
        while file.tell() < 17_000_000:
            start = file.tell() % 1_900
            file.write("\n".join(sentence[start : start + 40]) + "\n\n")
    (tmp_path / "small.txt").write_text(f"{document}\n\n{document}\n")
    vocab = vocabulary(words)

    def peak(name, dupe_factor):
        out = tmp_path / f"{name}-{dupe_factor}"
        command = ["build-data", tmp_path / name, "--out", out, "--tokenizer", vocab, "--quiet"]
        command += ["--dupe-factor", dupe_factor, "--workers", 2]
        child = subprocess.run(
            [sys.executable, "-c", TELL_MEMORY, *map(str, command)],
            check=True,
            capture_output=True,
            text=True,
        )
        return int(child.stdout) * (1 if sys.platform == "darwin" else 1024)

    base, once, tenfold = peak("small.txt", 1), peak("big.txt", 1), peak("big.txt", 10)
    assert tenfold < 1.3 * once
    assert tenfold - base < 15 * 17_000_000

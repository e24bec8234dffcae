"""`bertpt train-tokenizer` from the outside."""

import pytest
from helpers import SPECIAL_TOKENS, only_object

from bertpt.tokenizer.tokenizer import load_tokenizer


def test_a_vocabulary_starts_with_the_special_tokens(done, corpus, tmp_path):
    out = tmp_path / "tokenizer"
    result = done("train-tokenizer", corpus, "--out", out, "--vocab-size", 99, "--json")
    assert only_object(result)["vocab_size"] == 99
    vocab = (out / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert vocab[:5] == SPECIAL_TOKENS
    assert len(set(vocab)) == 99
    assert {path.name for path in out.iterdir()} == {
        "tokenizer.json",
        "vocab.txt",
        "tokenizer_config.json",
    }


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [True, False])
def test_transformers_gives_the_same_ids(done, corpus, tmp_path, lowercase, strip_accents):
    transformers = pytest.importorskip("transformers")
    options = [
        "--lowercase" if lowercase else "--no-lowercase",
        "--strip-accents" if strip_accents else "--no-strip-accents",
    ]
    done("train-tokenizer", corpus, "--out", tmp_path / "t", "--vocab-size", 99, *options)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "t")
    assert theirs.convert_tokens_to_ids(SPECIAL_TOKENS) == [0, 1, 2, 3, 4]
    ours = load_tokenizer(tmp_path / "t")
    for text in ("The old dog sees a stône.", "OUR CAT 中文 hears,\tthe ríver!", "unseen"):
        [ids] = ours.encode_batch([text])
        assert theirs(text)["input_ids"] == [2, *ids, 3]


@pytest.mark.parametrize(
    ("options", "kept", "gone"),
    [
        (["--lowercase", "--strip-accents"], "ce", "CÉé"),
        (["--lowercase", "--no-strip-accents"], "cé", "CÉ"),
        (["--no-lowercase", "--strip-accents"], "CcEe", "Éé"),
        (["--no-lowercase", "--no-strip-accents"], "CcÉé", ""),
    ],
)
def test_lower_casing_and_accent_stripping_are_separate(done, tmp_path, options, kept, gone):
    (tmp_path / "text.txt").write_text("Café CAFÉ café\n" * 3, encoding="utf-8")
    done("train-tokenizer", tmp_path / "text.txt", "--out", tmp_path / "t", *options, "--quiet")
    words = (tmp_path / "t" / "vocab.txt").read_text(encoding="utf-8").splitlines()[5:]
    characters = set("".join(words))
    assert characters.issuperset(kept)
    assert characters.isdisjoint(gone)


def test_a_vocabulary_is_extended(done, tmp_path, corpus, trained):
    out = tmp_path / "more"
    call = ("train-tokenizer", corpus, "--extend", trained, "--add", 5, "--out", out, "--quiet")
    found = only_object(done(*call, "--json"))
    assert found["num_added"] == 5
    before, after = (found["tokens_per_word"][when] for when in ("before", "after"))
    assert 1 < after < before
    first, second = done(*call, "--overwrite").stdout.splitlines()
    assert first == f"{out}: 5 tokens added to {trained}, {found['vocab_size']} in all"
    gain = f"{before:.3f} -> {after:.3f}, {1 - after / before:.1%} fewer"
    assert second == f"tokens per word: {gain}; unknown words: 0.00% -> 0.00%"
    done("build-data", corpus, "--tokenizer", out, "--seq-len", 32, "--out", tmp_path / "data")
    start = ("--init-from", trained, "--steps", 1, "--out", tmp_path / "run")
    log = done("pretrain", tmp_path / "data", *start).stderr
    assert f"{trained}/model: added 5 tokens; each starts as the mean of its pieces\n" in log


@pytest.fixture
def extend(run, tmp_path, corpus):
    """Calls train-tokenizer, which must fail and leave nothing; returns the error."""

    def extend(*options):
        result = run("train-tokenizer", corpus, "--out", tmp_path / "out", *options)
        assert result.exit_code in (1, 2)
        assert list(tmp_path.iterdir()) == []
        return result.stderr

    return extend


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--add", 5), "--add 5 needs --extend MODEL, whose vocabulary it adds to"),
        (("--extend", "RUN", "--add", 0), "--add 0 must be at least 1"),
        (
            ("--extend", "RUN", "--no-lowercase"),
            "--lowercase is for learning a vocabulary; --extend RUN keeps that one",
        ),
        (("--extend", "missing"), "no such tokenizer: missing"),
    ],
)
def test_wrong_ways_to_extend_are_one_line(extend, trained, options, line):
    words = [str(trained) if option == "RUN" else option for option in options]
    assert extend(*words) == f"error: {line.replace('RUN', str(trained))}\n"

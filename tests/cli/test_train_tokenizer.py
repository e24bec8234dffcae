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

import os
import random
import subprocess
import sys

import pytest
import transformers

from bertpt.config import TokenizerConfig
from bertpt.errors import InputError, OutputError, SettingError
from bertpt.progress import Progress
from bertpt.tokenizer.tokenizer import load_tokenizer, normalizer
from bertpt.tokenizer.train import count_words, learn, train_tokenizer

LETTERS = "Wel come to the lib Tok en izers libr ary ."  # every merge is a tie
LEARN = """
import sys
from bertpt.config import TokenizerConfig
from bertpt.tokenizer.tokenizer import normalizer
from bertpt.tokenizer.train import learn
config = TokenizerConfig(vocab_size=60, min_frequency=1)
print(learn([sys.argv[1]], config).vocab)
"""


def test_the_vocabulary_does_not_depend_on_the_hash_seed():
    found = {
        subprocess.run(
            [sys.executable, "-c", LEARN, LETTERS],
            env={**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads},
            capture_output=True,
            check=True,
        ).stdout
        for seed, threads in (("0", "1"), ("1", "2"), ("2", "4"), ("3", "1"))
    }
    assert len(found) == 1


def test_twenty_trainings_give_the_same_vocabulary():
    """tokenizers' own trainer numbers characters in hash order and gives several."""
    config = TokenizerConfig(vocab_size=60, min_frequency=1)
    assert len({tuple(learn([LETTERS], config).vocab) for _ in range(20)}) == 1


def test_the_order_of_the_lines_does_not_matter():
    lines = ["the cat sat", "on the mat", "the dog dug", "the mat sat"]
    config = TokenizerConfig(vocab_size=60, min_frequency=1)
    shuffled = random.Random(1).sample(lines, len(lines))
    assert learn(lines, config).fingerprint == learn(shuffled, config).fingerprint


def test_special_tokens_come_first_then_characters_then_merges():
    tokens = learn(["ab ab ab", "ba"], TokenizerConfig(vocab_size=50, min_frequency=2)).vocab
    assert tokens == [
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        *("a", "b", "##a", "##b"),
        "ab",
    ]


def test_nothing_rarer_than_the_minimum_is_merged():
    text = ["xy xy xy", "zw zw"]
    assert "zw" in learn(text, TokenizerConfig(vocab_size=50, min_frequency=2)).vocab
    assert "zw" not in learn(text, TokenizerConfig(vocab_size=50, min_frequency=3)).vocab


def test_the_vocabulary_is_never_larger_than_asked():
    words = [f"{a}{b}{c}" for a in "abcd" for b in "efgh" for c in "ijkl"]
    for size in (30, 40, 55):
        assert len(learn(words, TokenizerConfig(vocab_size=size, min_frequency=1)).vocab) == size


def test_a_vocabulary_smaller_than_the_alphabet_is_refused_with_what_it_needs():
    # 5 special tokens, a b c d e f, ##b ##d ##f
    with pytest.raises(SettingError, match=r"`vocab_size` 13 is too small.* need 14"):
        learn(["ab cd ef"], TokenizerConfig(vocab_size=13))
    assert len(learn(["ab cd ef"], TokenizerConfig(vocab_size=14)).vocab) == 14


def test_a_smaller_alphabet_keeps_the_most_frequent_characters():
    config = TokenizerConfig(vocab_size=13, limit_alphabet=2, min_frequency=1)
    tokens = learn(["a a a b b c", "ab ac"], config)
    assert tokens.vocab == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b", "ab"]
    assert tokens.encode_batch(["c"])[0].tolist() == [tokens.unk_id]


def test_words_are_counted_after_cleaning_and_splitting():
    text = ["Don't stop, l\u00e9a! \u4f60\u597d", "stop", f"stop {'x' * 101}", "y" * 40]
    assert count_words(text, normalizer(lowercase=True, strip_accents=True)) == {
        "don": 1,
        "'": 1,
        "t": 1,
        "stop": 3,
        ",": 1,
        "lea": 1,
        "!": 1,
        "\u4f60": 1,
        "\u597d": 1,
        "y" * 40: 1,
    }


def test_no_text_is_an_error():
    with pytest.raises(InputError, match="no text"):
        learn(["", "\u200b"], TokenizerConfig())


def test_nul_and_empty_entries_never_occur():
    tokens = learn(["a\0b c", "\0", "d \ufffd"], TokenizerConfig(vocab_size=50)).vocab
    assert not any("\0" in token or token in ("", "##") for token in tokens)


def test_transformers_loads_the_folder_and_gives_the_same_ids(tmp_path):
    (tmp_path / "text.txt").write_text("Caf\u00e9 society. The caf\u00e9s of Paris\n" * 3)
    config = TokenizerConfig(vocab_size=60, lowercase=False, strip_accents=False)
    result = train_tokenizer([str(tmp_path / "text.txt")], tmp_path / "out", config=config)
    ours = load_tokenizer(tmp_path / "out")
    assert result == {"vocab_size": len(ours.vocab), "tokenizer_sha256": ours.fingerprint}
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = ["The Caf\u00e9s", "paris Paris", "unseen w\u00f6rds"]
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    assert [ids.tolist() for ids in ours.encode_batch(texts)] == expected
    assert [theirs.convert_tokens_to_ids(t) for t in ("[PAD]", "[UNK]", "[CLS]")] == [0, 1, 2]
    assert (theirs.sep_token_id, theirs.mask_token_id) == (3, 4)


def test_a_folder_that_is_not_a_tokenizer_is_never_replaced(tmp_path):
    (tmp_path / "text.txt").write_text("a b a b\n")
    out = tmp_path / "out"
    config = TokenizerConfig(vocab_size=20)
    train_tokenizer([str(tmp_path / "text.txt")], out, config=config)
    train_tokenizer([str(tmp_path / "text.txt")], out, config=config, overwrite=True)
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="not made by this command"):
        train_tokenizer([str(tmp_path / "text.txt")], out, config=config, overwrite=True)
    assert (out / "thesis.txt").read_text() == "years of work"


def test_what_is_wrong_with_a_text_is_logged(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"id,text\n1,\xff one two\n" * 9)
    heard = []
    progress = Progress()
    progress.log = heard.append
    config = TokenizerConfig(vocab_size=40)
    train_tokenizer([str(tmp_path / "a.txt")], tmp_path / "out", config=config, progress=progress)
    assert heard[0] == (
        "warning: 9 lines were not valid UTF-8; the bad bytes became U+FFFD; the first is "
        f"{tmp_path}/a.txt: line 2"
    )
    assert heard[1].startswith("warning: 1 inputs look like JSON, CSV or TSV")

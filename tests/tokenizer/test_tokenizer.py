import gzip
import unicodedata

import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from bertpt.config import TokenizerConfig
from bertpt.errors import InputError, SettingError
from bertpt.tokenizer.tokenizer import from_vocab, load_tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LINES_OF_EACH_LANGUAGE = 200


def write_vocab(path, tokens):
    path.write_bytes("".join(f"{token}\n" for token in tokens).encode())
    return path


def toy(tmp_path, *words):
    return load_tokenizer(write_vocab(tmp_path / "vocab.txt", [*SPECIAL, *words]))


def ids(tokens, text):
    return tokens.encode_batch([text])[0].tolist()


# --------------------------------------------------------------------------------- text to ids


def test_ids_match_the_published_vocabulary(shared):
    tokens = load_tokenizer(shared / "vocab/bert-base-uncased.txt")
    found = ids(tokens, "This is a text sentence.")
    assert [tokens.cls_id, *found, tokens.sep_id] == [101, 2023, 2003, 1037, 3793, 6251, 1012, 102]


@pytest.mark.parametrize(
    ("vocab", "text"),
    [
        ("bert-base-chinese.txt", "zh.d2l.txt.gz"),
        ("bert-base-uncased.txt", "zh.songci.txt.gz"),
        ("bert-base-uncased.txt", "hi.xquad.txt.gz"),
        ("bert-base-uncased.txt", "th.xquad.txt.gz"),
        ("bert-base-uncased.txt", "ar.xquad.txt.gz"),
        ("bert-base-uncased.txt", "ru.xquad.txt.gz"),
        ("bert-base-uncased.txt", "en.wikitext2_test.txt.gz"),
    ],
)
@pytest.mark.parametrize("lowercase", [True, False])
def test_ids_equal_transformers_in_every_script(shared, vocab, text, lowercase):
    tokens = load_tokenizer(shared / "vocab" / vocab, TokenizerConfig(lowercase=lowercase))
    # Made from the vocabulary by transformers itself, not from our tokenizer.json.
    known = {token: i for i, token in enumerate(tokens.vocab)}
    oracle = transformers.BertTokenizer(vocab=known, do_lower_case=lowercase)
    with gzip.open(shared / "corpora" / text, "rt", encoding="utf-8", newline="\n") as file:
        lines = [line for line in file if line.strip()][:LINES_OF_EACH_LANGUAGE]
    assert len(lines) == LINES_OF_EACH_LANGUAGE
    expected = oracle(lines, add_special_tokens=False)["input_ids"]
    found = [line.tolist() for line in tokens.encode_batch(lines)]
    # transformers takes "[UNK]" and the like in a text for control tokens; these texts have none
    assert found == expected


def test_special_tokens_spelled_in_a_text_are_plain_text(tmp_path):
    tokens = toy(tmp_path, "a", "[", "]", "sep", "mask")
    assert [tokens.vocab[i] for i in ids(tokens, "a [SEP][MASK] a")] == [
        *("a", "[", "sep", "]", "[", "mask", "]", "a")
    ]
    tokens.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert ids(again, "a [SEP][MASK] a") == ids(tokens, "a [SEP][MASK] a")


@given(text=st.text())
def test_no_text_gives_a_control_token(text):
    tokens = from_vocab(
        [*SPECIAL, *"abcdefghijklmnopqrstuvwxyz[]"], lowercase=True, strip_accents=True
    )
    assert not tokens.never_predicted[ids(tokens, text)].any()


def test_symbols_are_kept_and_a_word_with_an_emoji_is_unknown(tmp_path):
    tokens = toy(tmp_path, "a", "b", "c", "d")
    unk, c, a, d = tokens.unk_id, *(tokens.vocab.index(letter) for letter in "cad")
    assert ids(tokens, "ab\U0001f600 c") == [unk, c]
    assert ids(tokens, "$ + = < > ~ a") == [unk] * 6 + [a]
    family = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
    assert ids(tokens, f"{family} d") == [unk, d]


@pytest.mark.parametrize("text", ["\u200d", "\u200b", "\u00ad", "\0", "\ufffd", ""])
def test_characters_removed_by_cleaning_give_no_ids(tmp_path, text):
    assert ids(toy(tmp_path, "a"), text) == []


def test_lowercasing_and_accents_are_two_settings(tmp_path):
    path = write_vocab(tmp_path / "vocab.txt", [*SPECIAL, "É", "é", "E", "e"])
    found = {
        (lower, strip): load_tokenizer(path, TokenizerConfig(lowercase=lower, strip_accents=strip))
        for lower in (True, False)
        for strip in (True, False)
    }
    spelled = {key: tokens.vocab[ids(tokens, "É")[0]] for key, tokens in found.items()}
    assert {key: unicodedata.normalize("NFC", word) for key, word in spelled.items()} == {
        (True, True): "e",
        (True, False): "é",
        (False, True): "E",
        (False, False): "É",
    }


# -------------------------------------------------------------------------------------- loading


def test_the_line_number_is_the_id_even_if_a_line_is_a_separator(tmp_path):
    odd = ["\u2028", "\x85", "\u3000"]
    path = write_vocab(tmp_path / "vocab.txt", [*SPECIAL, "a", *odd, "b", *"cdefgh."])
    tokens = load_tokenizer(path)
    assert tokens.vocab.index("b") == 9
    assert len(tokens.vocab) == 17
    tokens.save(tmp_path / "saved")
    assert (tmp_path / "saved/vocab.txt").read_bytes() == path.read_bytes()
    assert load_tokenizer(tmp_path / "saved").vocab == tokens.vocab


def test_the_published_vocabularies_survive_loading_and_saving(shared, tmp_path):
    for name in ("bert-base-uncased.txt", "bert-base-chinese.txt"):
        load_tokenizer(shared / "vocab" / name).save(tmp_path / name)
        assert (tmp_path / name / "vocab.txt").read_bytes() == (
            shared / "vocab" / name
        ).read_bytes()


def test_ids_above_65535_are_kept(tmp_path):
    tokens = toy(tmp_path, *(f"w{i}" for i in range(70_000)))
    assert ids(tokens, "w65531 w65536 w32768") == [65_536, 65_541, 32_773]


@pytest.mark.parametrize("lacking", SPECIAL)
def test_a_vocabulary_without_a_special_token_is_refused(tmp_path, lacking):
    path = write_vocab(tmp_path / "vocab.txt", [t for t in SPECIAL if t != lacking] + ["a"])
    with pytest.raises(InputError) as error:
        load_tokenizer(path)
    assert str(error.value) == f"{path} lacks {lacking}; a BERT vocabulary needs all five"


def test_blank_and_repeated_lines_are_refused_with_their_numbers(tmp_path):
    blank = write_vocab(tmp_path / "blank.txt", [*SPECIAL, "a", "", "b"])
    with pytest.raises(InputError, match="line 7 is empty"):
        load_tokenizer(blank)
    repeated = write_vocab(tmp_path / "repeated.txt", [*SPECIAL, "a", "b", "a"])
    with pytest.raises(InputError, match="line 8 repeats line 6, 'a'"):
        load_tokenizer(repeated)


def test_a_vocabulary_folder_states_whether_it_is_cased(tmp_path):
    write_vocab(tmp_path / "vocab.txt", [*SPECIAL, "A", "a"])
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert ids(load_tokenizer(tmp_path), "A") == [5]
    # and what is asked for by hand wins
    assert ids(load_tokenizer(tmp_path / "vocab.txt", TokenizerConfig(lowercase=True)), "A") == [6]


def test_accents_follow_case_by_default():
    for lowercase in (True, False):
        config = TokenizerConfig(lowercase=lowercase)
        assert config.strips_accents == lowercase
        assert TokenizerConfig(lowercase=lowercase, strip_accents=not lowercase).strips_accents == (
            not lowercase
        )


def test_a_tokenizer_json_refuses_other_cleaning(tmp_path):
    toy(tmp_path, "a").save(tmp_path / "saved")
    with pytest.raises(SettingError, match=r"`lowercase` .* has its own settings"):
        load_tokenizer(tmp_path / "saved", TokenizerConfig(lowercase=False))


def test_transformers_reads_a_tokenizer_with_other_cleaning_alike(tmp_path):
    """The BERT of the tokenizers library's own tutorial, which is not BertNormalizer's."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    vocab = {token: i for i, token in enumerate([*SPECIAL, "ab,", "c", "ab", ","])}
    theirs = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    theirs.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]
    )
    theirs.pre_tokenizer = pre_tokenizers.Whitespace()
    theirs.add_special_tokens(SPECIAL)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    ours.save(tmp_path / "saved")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    expected = again("\u00c0B, C", add_special_tokens=False)["input_ids"]
    assert ids(ours, "\u00c0B, C") == expected == [7, 8, 6]


def test_a_tokenizer_that_is_not_wordpiece_is_refused(tmp_path):
    from tokenizers import Tokenizer, models

    Tokenizer(models.BPE()).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match="BPE"):
        load_tokenizer(tmp_path)


def test_padding_and_truncation_stored_in_a_tokenizer_are_ignored(tmp_path):
    tokens = toy(tmp_path, "a")
    tokens.backend.enable_truncation(2)
    tokens.backend.enable_padding(length=4)
    tokens.backend.save(str(tmp_path / "tokenizer.json"))
    assert ids(load_tokenizer(tmp_path / "tokenizer.json"), "a a a") == [5, 5, 5]


# --------------------------------------------------------------------------------- fingerprints


def test_the_fingerprint_survives_saving_by_transformers(tmp_path):
    tokens = toy(tmp_path, "a", "##b", "É")
    tokens.save(tmp_path / "ours")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert theirs("a ab É")["input_ids"] == [2, *ids(tokens, "a ab É"), 3]
    theirs.save_pretrained(tmp_path / "theirs")
    assert load_tokenizer(tmp_path / "theirs").fingerprint == tokens.fingerprint


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_fingerprint_matches_the_tokenizer_that_transformers_makes(tmp_path, lowercase):
    """It leaves strip_accents open, which means as lowercase."""
    path = write_vocab(tmp_path / "vocab.txt", [*SPECIAL, "a"])
    theirs = transformers.BertTokenizer(vocab=str(path), do_lower_case=lowercase)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = from_vocab([*SPECIAL, "a"], lowercase=lowercase, strip_accents=lowercase)
    assert '"strip_accents": null' in (tmp_path / "theirs/tokenizer.json").read_text()
    assert load_tokenizer(tmp_path / "theirs").fingerprint == ours.fingerprint


@pytest.mark.parametrize("inside", ["model", "tokenizer"])
def test_a_run_or_data_folder_has_its_tokenizer_inside(tmp_path, inside):
    tokens = toy(tmp_path, "a")
    tokens.save(tmp_path / "folder" / inside)
    assert load_tokenizer(tmp_path / "folder").fingerprint == tokens.fingerprint


def test_the_fingerprint_depends_on_order_and_cleaning():
    def build(vocab, **settings):
        return from_vocab([*SPECIAL, *vocab], **settings).fingerprint

    prints = [
        build(["a", "b"], lowercase=True, strip_accents=True),
        build(["b", "a"], lowercase=True, strip_accents=True),
        build(["a", "b"], lowercase=False, strip_accents=True),
        build(["a", "b"], lowercase=True, strip_accents=False),
        build(["a", "b", "c"], lowercase=True, strip_accents=True),
    ]
    assert len(set(prints)) == len(prints)


def test_ordinary_ids_are_all_but_the_five(tmp_path):
    tokens = toy(tmp_path, "a", "b")
    assert tokens.ordinary_ids.tolist() == [5, 6]
    assert np.flatnonzero(tokens.never_predicted).tolist() == [0, 2, 3, 4]


def test_a_byte_order_mark_before_a_vocabulary_is_dropped(tmp_path):
    for name, start in (("plain.txt", b""), ("bom.txt", b"\xef\xbb\xbf")):
        (tmp_path / name).write_bytes(start + "\n".join(["word", *SPECIAL]).encode())
    assert load_tokenizer(tmp_path / "bom.txt").vocab == ["word", *SPECIAL]
    load_tokenizer(tmp_path / "plain.txt").save(tmp_path / "saved")
    path = tmp_path / "saved" / "tokenizer.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load_tokenizer(path).vocab == ["word", *SPECIAL]

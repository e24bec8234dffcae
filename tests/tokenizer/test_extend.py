"""A vocabulary that grows: ids stay, and the new tokens are those that shorten the text."""

import json
import random
from collections import Counter

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from bertpt.corpus.corpus import Corpus
from bertpt.errors import InputError, SettingError
from bertpt.tokenizer.added import added_tokens, split_tokens, with_tokens
from bertpt.tokenizer.choose import choose_tokens
from bertpt.tokenizer.extend import extend_tokenizer
from bertpt.tokenizer.tokenizer import from_vocab, load_tokenizer
from bertpt.tokenizer.train import count_words

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [*"abcdefgh", *(f"##{letter}" for letter in "abcdefgh"), "."]


def tokenizer_of(*more, lowercase=True):
    vocab = ["[PAD]", "[unused0]", *SPECIAL[1:], "[unused1]", *LETTERS, *more]
    return from_vocab(vocab, lowercase=lowercase, strip_accents=lowercase)


def num_tokens(tokenizer, words):
    return sum(len(tokenizer.backend.model.tokenize(word)) * n for word, n in words.items())


# ------------------------------------------------------------------------------------------ choose


def test_the_tokens_that_save_most_are_chosen_by_hand():
    # abcd saves 3 tokens 5 times, ef 1 token 14 times; the pieces of ghgh occur once.
    words = {"abcd": 5, "ef": 14, "ghgh": 1, "a": 99}
    assert choose_tokens(words, tokenizer_of(), 1) == ["abcd"]
    assert choose_tokens(words, tokenizer_of(), 2) == ["abcd", "ef"]
    assert choose_tokens(words, tokenizer_of(), 9) == ["abcd", "ef"]


def test_a_piece_that_many_words_share_is_chosen():
    words = {f"{start}bcd": 2 for start in "abcdefgh"}
    assert choose_tokens(words, tokenizer_of(), 1) == ["##bcd"]


def test_frequent_unknown_words_are_chosen():
    words = {"ef": 2, "xyz": 3, "ω": 9}
    assert choose_tokens(words, tokenizer_of(), 2) == ["ω", "xyz"]


def test_rare_tokens_are_not_chosen():
    words = {"ab": 2, "cd": 3}
    assert choose_tokens(words, tokenizer_of(), 9, min_frequency=3) == ["cd"]
    assert choose_tokens(words, tokenizer_of(), 9, min_frequency=4) == []


texts = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=6), st.integers(1, 9))


@given(texts, st.integers(1, 12), st.randoms())
def test_tokens_do_not_depend_on_the_order_of_words_and_never_lengthen_the_text(words, number, rng):
    base = tokenizer_of("ab", "##cd")
    tokens = choose_tokens(words, base, number)
    shuffled = list(words.items())
    rng.shuffle(shuffled)
    assert choose_tokens(dict(shuffled), base, number) == tokens
    assert len(tokens) == len(set(tokens)) <= number
    assert not set(tokens) & set(base.vocab)
    assert num_tokens(with_tokens(base, tokens), words) <= num_tokens(base, words)


def test_chosen_tokens_shorten_a_text_more_than_the_best_complete_words(shared):
    base = load_tokenizer(shared / "vocab/bert-base-uncased.txt")
    corpus = Corpus([str(shared / "corpora/en.wikitext2_valid.txt.gz")], sentence_per_line=True)
    lines = (line for document in corpus for line in document)
    words = count_words(lines, base.backend.normalizer)
    # Like the tokens, words of two occurrences or more.
    saved = {w: n * (len(base.backend.model.tokenize(w)) - 1) for w, n in words.items() if n > 1}
    complete = sorted(saved, key=lambda word: -saved[word])[:300]
    chosen = choose_tokens(words, base, 300)
    assert len(chosen) == 300
    best, found = (num_tokens(with_tokens(base, some), words) for some in (complete, chosen))
    assert found < best < num_tokens(base, words)


# --------------------------------------------------------------------------------------------- ids


def test_unused_entries_are_replaced_before_tokens_are_appended():
    base = tokenizer_of()
    extended = with_tokens(base, ["one", "two", "##three"])
    changed = {i: t for i, t in enumerate(extended.vocab) if t not in base.vocab}
    assert changed == {1: "one", base.vocab.index("[unused1]"): "two", len(base.vocab): "##three"}
    assert added_tokens(base, extended) == changed


tokens = st.lists(st.text("xyz", min_size=1, max_size=4), unique=True, max_size=6)


@given(tokens, st.text("abcdefgh .[]", max_size=40))
def test_text_without_new_words_keeps_its_ids(new, text):
    base = tokenizer_of("ab", "##cd")
    extended = with_tokens(base, new)
    assert sorted(added_tokens(base, extended).values()) == sorted(new)
    [before], [after] = base.encode_batch([text]), extended.encode_batch([text])
    assert before.tolist() == after.tolist()


@pytest.mark.parametrize(
    "other",
    [
        tokenizer_of("ab", lowercase=False),
        from_vocab([*SPECIAL, *LETTERS], lowercase=True, strip_accents=True),
        from_vocab(
            ["[PAD]", "[unused0]", *SPECIAL[1:], "[unused1]", *reversed(LETTERS), "x"],
            lowercase=True,
            strip_accents=True,
        ),
    ],
    ids=["other cleaning", "fewer tokens", "another order"],
)
def test_other_tokenizers_are_not_extensions(other):
    assert added_tokens(tokenizer_of(), other) is None


def test_a_tokenizer_extends_itself_by_nothing():
    assert added_tokens(tokenizer_of(), tokenizer_of()) == {}


def test_new_tokens_are_split_as_wordpiece_splits_words():
    base = tokenizer_of("ab", "##bc", "abc")
    new = ["abcd", "##abcd", "##bcbc", "bab", "##", "xa", "ab"]
    spelled = [[base.vocab[i] for i in pieces] for pieces in split_tokens(base, new)]
    assert spelled == [
        ["abc", "##d"],
        ["##a", "##bc", "##d"],
        ["##bc", "##bc"],
        ["b", "##a", "##b"],
        ["[UNK]"],
        ["[UNK]"],
        ["ab"],
    ]
    words = [token for token in new if not token.startswith("##")]
    for word, pieces in zip(words, split_tokens(base, words), strict=True):
        assert pieces == [piece.id for piece in base.backend.model.tokenize(word)]


# ----------------------------------------------------------------------------------------- folders


@pytest.fixture
def base(tmp_path):
    tokenizer_of().save(tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def text(tmp_path):
    rng = random.Random(3)
    words = ["abcd", "efg", "hab", "c", "ghgh"]
    (tmp_path / "text.txt").write_text(" ".join(rng.choices(words, k=300)) + ".\n")
    return tmp_path / "text.txt"


def test_the_folder_loads_in_transformers_with_the_same_ids(base, text, tmp_path):
    result = extend_tokenizer([str(text)], tmp_path / "new", model=base, num_added=4)
    ours = load_tokenizer(tmp_path / "new")
    assert (result["vocab_size"], result["num_unused_replaced"]) == (len(ours.vocab), 2)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "new")
    for line in (text.read_text(), "a ab abcd efgh hab."):
        [ids] = ours.encode_batch([line])
        assert theirs(line, add_special_tokens=False)["input_ids"] == ids.tolist()
    words = Counter(text.read_text().replace(".", " . ").split())
    for when, folder in (("before", base), ("after", tmp_path / "new")):
        expected = num_tokens(load_tokenizer(folder), words) / words.total()
        assert result["tokens_per_word"][when] == pytest.approx(expected)
    assert result["tokens_per_word"]["after"] < result["tokens_per_word"]["before"]


def test_a_tokenizer_that_is_not_berts_is_refused(base, text, tmp_path):
    path = base / "tokenizer.json"
    state = json.loads(path.read_text())
    state["normalizer"] = {"type": "Lowercase"}
    path.write_text(json.dumps(state))
    with pytest.raises(InputError, match="its tokenizer does not clean and split text as"):
        extend_tokenizer([str(text)], tmp_path / "new", model=base, num_added=4)


def test_at_least_one_token_must_be_added(base, text, tmp_path):
    with pytest.raises(SettingError, match="`add` 0 must be at least 1"):
        extend_tokenizer([str(text)], tmp_path / "new", model=base, num_added=0)
    assert not (tmp_path / "new").exists()

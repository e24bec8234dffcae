"""Masking: tokens, words and spans."""

import gzip
from itertools import pairwise

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from bertpt.config import BuildConfig
from bertpt.data.masking import Masking
from bertpt.errors import InputError
from bertpt.rng import generator
from bertpt.tokenizer.tokenizer import (
    SPECIAL_TOKENS,
    Tokenizer,
    from_vocab,
    load_tokenizer,
    normalizer,
)

PAD, UNK, CLS, SEP, MASK = range(5)
FIRST_PIECE = 60  # ids from here on go on with a word, in the vocabularies without a tokenizer
UNITS = ["token", "word", "span"]


def masking(vocab_size=99, *, prob=0.15, cap=None, unit="token"):
    ids = np.arange(vocab_size)
    never_predicted = np.isin(ids, [PAD, CLS, SEP, MASK])
    continues = None if unit == "token" else ids >= FIRST_PIECE
    return Masking(never_predicted, ids[5:], MASK, prob, cap, unit, continues)


def rng(number=0):
    return generator(0, "test", number)


def draw(masks, ids, rng):
    """The positions to predict in one example, and what the model sees there."""
    found = masks.apply(ids, np.array([len(ids)]), [masks.random_numbers(len(ids), rng)])
    assert found.num_masked.tolist() == [len(found.positions)]
    return found.positions, found.input_ids


def draw_many(masks, ids, number):
    """The masks of one example, drawn `number` times: a list of (positions, input_ids)."""
    random_numbers = [masks.random_numbers(len(ids), rng(i)) for i in range(number)]
    found = masks.apply(np.tile(ids, number), np.full(number, len(ids)), random_numbers)
    ends = found.num_masked.cumsum()[:-1]
    return list(zip(np.split(found.positions, ends), np.split(found.input_ids, ends), strict=True))


def num_to_predict(masks, ids):
    num_candidates = (~masks.never_predicted[ids]).sum()
    return masks.num_to_predict(np.array([len(ids)]), np.array([num_candidates])).item()


def example(a, b):
    return np.array([CLS, *a, SEP, *b, SEP])


ordinary = st.lists(st.integers(1, 98).filter(lambda i: i not in (CLS, SEP, MASK)), min_size=1)
examples = st.builds(example, ordinary, ordinary)


any_settings = {
    "ids": examples,
    "prob": st.floats(0.001, 1),
    "cap": st.none() | st.integers(1, 9),
    "unit": st.sampled_from(UNITS),
    "seed": st.integers(0),
}


@given(**any_settings)
def test_positions_are_ascending_and_never_on_cls_sep_or_pad(ids, prob, cap, unit, seed):
    positions, seen = draw(masking(prob=prob, cap=cap, unit=unit), ids, generator(seed, "test"))
    assert len(positions) == len(seen) >= 1
    assert (np.diff(positions) > 0).all()
    assert not np.isin(ids[positions], [PAD, CLS, SEP]).any()


@given(**any_settings)
def test_the_model_sees_mask_an_ordinary_token_or_the_token_itself(ids, prob, cap, unit, seed):
    positions, seen = draw(masking(prob=prob, cap=cap, unit=unit), ids, generator(seed, "test"))
    assert ((seen == MASK) | (seen >= 5) | (seen == ids[positions])).all()


@pytest.mark.parametrize(
    ("length", "prob", "cap", "expected"),
    [
        (13, 0.15, None, 2),  # 1.95
        (10, 0.15, None, 2),  # 1.5, to the even number as Python and Google round
        (5, 0.15, None, 1),  # 0.75
        (5, 0.01, None, 1),  # 0.05, and one at least
        (128, 0.15, None, 19),  # 19.2
        (128, 0.15, 7, 7),
        (13, 1.0, None, 10),  # all but [CLS] and two [SEP]
    ],
)
def test_the_number_to_predict_is_the_share_of_the_example(length, prob, cap, expected):
    ids = example(range(10, 10 + length - 4), [9])
    assert len(ids) == length
    positions, _ = draw(masking(200, prob=prob, cap=cap), ids, generator(0, "test"))
    assert len(positions) == expected


def test_four_fifths_become_mask_a_tenth_random_and_a_tenth_keep_their_token():
    ids = example([50] * 60, [60] * 60)
    drawn = draw_many(masking(), ids, 1500)
    seen = np.concatenate([seen for _, seen in drawn])
    true = np.concatenate([ids[positions] for positions, _ in drawn])
    assert len(seen) > 25_000
    stays = 0.1 + 0.1 / 94  # a random one of the 94 ordinary tokens may be the same
    assert (seen == MASK).mean() == pytest.approx(0.8, abs=0.01)
    assert (seen == true).mean() == pytest.approx(stays, abs=0.008)
    assert ((seen != MASK) & (seen != true)).mean() == pytest.approx(0.2 - stays, abs=0.008)


def test_random_tokens_come_evenly_from_all_ordinary_ones():
    ids = example([7] * 60, [7] * 60)
    seen = np.concatenate([seen for _, seen in draw_many(masking(12), ids, 3000)])
    others = seen[(seen != MASK) & (seen != 7)]
    counts = np.bincount(others, minlength=12)[[5, 6, 8, 9, 10, 11]]
    assert counts.sum() == len(others)
    assert counts.min() > 0.8 * counts.mean()


def test_every_position_is_equally_likely():
    ids = example(range(10, 20), range(20, 30))
    counts = np.zeros(len(ids))
    for positions, _ in draw_many(masking(), ids, 4000):
        counts[positions] += 1
    chosen = counts[~np.isin(ids, [CLS, SEP])]
    assert chosen.min() > 0.85 * chosen.mean()
    assert counts[[0, 11, 22]].sum() == 0


def test_a_vocabulary_of_one_word_can_be_masked():
    positions, seen = draw(masking(6), example([5], [5]), generator(0, "test"))
    assert set(seen) <= {MASK, 5}
    assert len(positions) == 1


def test_an_unknown_token_may_be_predicted_but_never_replaces_one():
    ids = example([UNK], [UNK])
    for positions, seen in draw_many(masking(8), ids, 300):
        assert ids[positions[0]] == UNK
        assert seen[0] in (MASK, 5, 6, 7, UNK)


# ------------------------------------------------------------------------------ tokens, one by one


def chosen_by_hand(ids, random_numbers, *, vocab_size, prob, cap):
    """The masks in plain Python: those drawn first, then what becomes of each."""
    ranks, fates, replacements = random_numbers.tolist()
    candidates = [i for i, token in enumerate(ids) if token not in (PAD, CLS, SEP, MASK)]
    wanted = min(max(1, round(len(ids) * prob)), len(candidates), cap or len(candidates))
    # Only the first 29 bits of a rank count; equal ranks are in the order of the text.
    order = sorted(candidates, key=lambda i: (int(ranks[i] * 2**29), i))
    positions = sorted(order[:wanted])
    seen = [
        MASK
        if fates[i] < 0.8
        else 5 + int(replacements[i] * (vocab_size - 5))
        if fates[i] < 0.8 + 0.1
        else ids[i]
        for i in positions
    ]
    return positions, seen


@given(
    ids=examples, prob=st.floats(0.001, 1), cap=st.none() | st.integers(1, 9), seed=st.integers(0)
)
def test_tokens_are_those_chosen_by_hand(ids, prob, cap, seed):
    masks = masking(prob=prob, cap=cap)
    random_numbers = masks.random_numbers(len(ids), generator(seed, "test"))
    found = masks.apply(ids, np.array([len(ids)]), [random_numbers])
    assert (found.positions.tolist(), found.input_ids.tolist()) == chosen_by_hand(
        ids.tolist(), random_numbers, vocab_size=99, prob=prob, cap=cap
    )


@pytest.mark.parametrize("unit", UNITS)
@given(some=st.lists(examples, min_size=1, max_size=6), cap=st.none() | st.integers(1, 9))
def test_a_batch_is_masked_as_each_example_alone(unit, some, cap):
    masks = masking(unit=unit, cap=cap)
    random_numbers = [
        masks.random_numbers(len(ids), rng(number)) for number, ids in enumerate(some)
    ]
    together = masks.apply(
        np.concatenate(some), np.array([len(ids) for ids in some]), random_numbers
    )
    alone = [draw(masks, ids, rng(number)) for number, ids in enumerate(some)]
    assert together.num_masked.tolist() == [len(positions) for positions, _ in alone]
    assert together.positions.tolist() == [i for positions, _ in alone for i in positions]
    assert together.input_ids.tolist() == [i for _, seen in alone for i in seen]


def test_ties_choose_the_first_tokens():
    ids = example(range(10, 40), range(40, 60))
    random_numbers = np.full((3, len(ids)), 0.5)
    found = masking().apply(ids, np.array([len(ids)]), [random_numbers])
    assert found.positions.tolist() == list(range(1, 9))  # round(53 x 0.15)


def test_the_longest_example_there_can_be_is_masked_to_its_end():
    ids = np.array([CLS, *([9] * 65_533), SEP])
    random_numbers = np.zeros((3, len(ids)))
    random_numbers[0] = np.linspace(0.9, 0.1, len(ids))  # the last come first
    found = masking().apply(ids, np.array([len(ids)]), [random_numbers])
    assert found.positions[-1] == 65_533
    assert found.positions[0] == 65_534 - round(65_535 * 0.15)


@given(ids=st.builds(example, *[st.lists(st.integers(5, 59), min_size=1)] * 2), seed=st.integers(0))
def test_words_of_one_token_are_drawn_as_tokens(ids, seed):
    tokens = draw(masking(), ids, generator(seed, "test"))
    words = draw(masking(unit="word"), ids, generator(seed, "test"))
    assert np.array_equal(tokens, words)


# --------------------------------------------------------------------------------------- the words


def word_piece(texts, *, prefix="##"):
    """A tokenizer with every character of some texts as a word and as a piece, and a few words."""
    characters = sorted({c for text in texts for c in text if not c.isspace()})
    vocab = [*SPECIAL_TOKENS, *characters, *(prefix + c for c in characters)]
    vocab += ["the", prefix + "ing", "भारत", prefix + "่า", "ال"]
    backend = tokenizers.Tokenizer(
        models.WordPiece(
            {token: i for i, token in enumerate(dict.fromkeys(vocab))},
            unk_token="[UNK]",
            continuing_subword_prefix=prefix,
        )
    )
    backend.normalizer = normalizer(lowercase=False, strip_accents=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return Tokenizer(backend)


TEXTS = {
    "zh": "深度学习 is 一种机器学习。",
    "th": "ภาษาไทย ไม่มี ช่องว่าง ระหว่างคำ",
    "hi": "भारत में कई भाषाएँ बोली जाती हैं।",
    "ar": "اللغة العربية لغة جميلة، والكتابة من اليمين",
    "en": "the thinking thing isn't seeing ##ing or @@the @ # _ _ing [SEP]",
    "unknown": "abc \u4e2d xyz",  # the tokenizer of another text knows none of it
}


def words_of_tokenizers(tokens, text):
    """Ids, and for each but the first whether `tokenizers` joins it to the word before."""
    encoding = tokens.backend.encode(text, add_special_tokens=False)
    return np.array(encoding.ids), np.diff(encoding.word_ids) == 0


@pytest.mark.parametrize("prefix", ["##", "@@", "_", "▁▁"])
@pytest.mark.parametrize("language", TEXTS)
def test_words_match_tokenizers_in_every_script_and_with_any_prefix(language, prefix):
    known = [text for name, text in TEXTS.items() if name != "unknown"]
    tokens = word_piece(known, prefix=prefix)
    ids, goes_on = words_of_tokenizers(tokens, TEXTS[language])
    masks = Masking.from_config(tokens, BuildConfig(whole_word=True, masked_lm_prob=0.5))
    is_target = np.zeros((200, len(ids)), dtype=bool)
    for row, (positions, _) in zip(is_target, draw_many(masks, ids, 200), strict=True):
        row[positions] = True
    never_apart = (is_target[:, 1:] == is_target[:, :-1]).all(axis=0)
    assert never_apart.tolist() == goes_on.tolist()


@pytest.mark.parametrize(
    ("vocab", "text"),
    [
        ("bert-base-chinese.txt", "zh.d2l.txt.gz"),
        ("bert-base-uncased.txt", "hi.xquad.txt.gz"),
        ("bert-base-uncased.txt", "th.xquad.txt.gz"),
        ("bert-base-uncased.txt", "ar.xquad.txt.gz"),
        ("bert-base-uncased.txt", "ru.xquad.txt.gz"),
        ("bert-base-uncased.txt", "en.wikitext2_valid.txt.gz"),
    ],
)
def test_words_of_real_texts_match_tokenizers(shared, vocab, text):
    tokens = load_tokenizer(shared / "vocab" / vocab)
    with gzip.open(shared / "corpora" / text, "rt", encoding="utf-8") as file:
        lines = [line for line in file if line.strip()][:200]
    num_going_on = 0
    for line in lines:
        ids, goes_on = words_of_tokenizers(tokens, line)
        assert tokens.continues[ids[1:]].tolist() == goes_on.tolist()
        assert not tokens.continues[ids[0]]
        num_going_on += goes_on.sum()
    assert num_going_on > 100


def test_a_tokenizer_without_marked_pieces_is_refused_for_words_only():
    tokens = word_piece(["a b"], prefix="")
    for settings in (BuildConfig(whole_word=True), BuildConfig(span=True)):
        with pytest.raises(InputError, match="continuing_subword_prefix is empty"):
            Masking.from_config(tokens, settings)
    positions, _ = draw(
        Masking.from_config(tokens, BuildConfig()), np.array([CLS, 5, SEP, 6, SEP]), rng()
    )
    assert len(positions) == 1


def targets(masks, ids, *, number=200):
    """The different sets of positions in some random_numbers."""
    return {tuple(positions.tolist()) for positions, _ in draw_many(masks, ids, number)}


W, V = (20, 70, 71), (30, 72, 73)  # words of three pieces


def test_one_word_is_predicted_if_all_are_longer_than_the_share():
    vocab = [*SPECIAL_TOKENS, "a", "b", "un", "##aff", "##able"]
    tokens = from_vocab(vocab, lowercase=True, strip_accents=True)
    masks = Masking.from_config(tokens, BuildConfig(whole_word=True))
    (word,) = tokens.encode_batch(["unaffable"])
    ids = example(word, word)
    assert num_to_predict(masks, ids) == 1
    assert targets(masks, ids) == {(1, 2, 3), (5, 6, 7)}
    (a_word,) = tokens.encode_batch(["a unaffable"])
    assert targets(masks, example(a_word, word)) == {(1,)}  # the only word of one piece


@pytest.mark.parametrize("unit", ["word", "span"])
def test_the_cap_holds_and_prefers_a_word_that_fits(unit):
    ids = example([*W, 74], V)  # four pieces and three
    assert num_to_predict(masking(unit=unit), ids) == 2
    assert targets(masking(unit=unit), ids) == {(1, 2, 3, 4), (6, 7, 8)}
    assert targets(masking(unit=unit, cap=4), ids) == {(1, 2, 3, 4), (6, 7, 8)}
    assert targets(masking(unit=unit, cap=3), ids) == {(6, 7, 8)}
    assert targets(masking(unit=unit, cap=2), ids) == {(1, 2), (6, 7)}
    assert targets(masking(unit=unit, cap=1), ids) == {(1,), (6,)}


@pytest.mark.parametrize("unit", ["word", "span"])
def test_a_segment_cut_at_the_front_begins_with_a_separate_word(unit):
    ids = example([70, 71], [72])
    assert targets(masking(unit=unit, prob=0.4), ids) == {(1, 2), (4,)}
    assert num_to_predict(masking(unit=unit, prob=0.4), ids) == 2


@pytest.mark.parametrize("unit", ["word", "span"])
def test_an_example_with_nothing_to_predict_has_no_targets(unit):
    positions, seen = draw(masking(unit=unit), np.array([CLS, SEP, SEP]), rng())
    assert len(positions) == len(seen) == 0


def test_a_word_that_does_not_fit_is_skipped():
    ids = example([20], [30, 70])  # 5 of the 6 tokens are no [MASK]: 2 to predict
    masks = masking(prob=0.4, unit="word")
    drawn = [tuple(positions) for positions, _ in draw_many(masks, ids, 2000)]
    # The first word comes first in half of the orders, and then one token is left for the second.
    assert set(drawn) == {(1,), (3, 4)}
    assert drawn.count((1,)) == pytest.approx(1000, abs=100)


def words_of(ids):
    """The positions of each word, found one by one."""
    words = []
    for i, token in enumerate(ids):
        if token in (PAD, CLS, SEP, MASK):
            continue
        if token >= FIRST_PIECE and ids[i - 1] not in (PAD, CLS, SEP, MASK):
            words[-1].append(i)
        else:
            words.append([i])
    return words


@given(
    ids=examples,
    prob=st.floats(0.001, 1),
    unit=st.sampled_from(["word", "span"]),
    seed=st.integers(0),
)
def test_words_are_complete_and_fill_the_share(ids, prob, unit, seed):
    masks = masking(prob=prob, unit=unit)
    wanted = num_to_predict(masks, ids)
    chosen = set(draw(masks, ids, generator(seed, "test"))[0].tolist())
    words = words_of(ids)
    taken = [word for word in words if chosen.issuperset(word)]
    left = [len(word) for word in words if chosen.isdisjoint(word)]
    assert len(taken) + len(left) == len(words)
    if min(map(len, words)) > wanted:
        assert len(taken) == 1
    else:
        assert len(chosen) <= wanted
        assert not left or min(left) > wanted - len(chosen)


@given(
    ids=examples, cap=st.integers(1, 9), unit=st.sampled_from(["word", "span"]), seed=st.integers(0)
)
def test_the_cap_splits_a_word_only_if_none_fits(ids, cap, unit, seed):
    chosen = set(draw(masking(cap=cap, unit=unit), ids, generator(seed, "test"))[0].tolist())
    words = words_of(ids)
    assert 1 <= len(chosen) <= cap
    if min(map(len, words)) <= cap:
        assert all(chosen.issuperset(word) or chosen.isdisjoint(word) for word in words)


@pytest.mark.parametrize("unit", ["word", "span"])
def test_every_word_is_equally_likely_to_be_the_first_drawn(unit):
    ids = example([20, 70] * 8, [30, 70] * 7)
    counts = np.zeros(len(ids))
    for positions, _ in draw_many(masking(prob=0.07, unit=unit), ids, 6000):
        counts[positions] += 1
    firsts = counts[ids < FIRST_PIECE]
    assert firsts.sum() == 6000  # 33 x 0.07 is 2.3: one word each time
    assert firsts[1:9].tolist() == pytest.approx([400] * 8, abs=80)  # 4 standard deviations
    assert firsts[10:17].tolist() == pytest.approx([400] * 7, abs=80)


def test_each_piece_of_a_word_is_replaced_or_kept_separately():
    ids = example([20, 70], [30, 70])
    masks = masking(prob=0.3, unit="word")
    is_mask = np.array([seen == MASK for _, seen in draw_many(masks, ids, 4000)])
    assert is_mask.shape == (4000, 2)
    assert is_mask.all(axis=1).mean() == pytest.approx(0.8 * 0.8, abs=0.03)
    assert is_mask.any(axis=1).mean() == pytest.approx(1 - 0.2 * 0.2, abs=0.015)


# --------------------------------------------------------------------------------------- the spans


def runs(positions):
    """Positions, cut where they do not follow each other."""
    return np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)


@pytest.fixture(scope="module")
def drawn_spans():
    """Spans of words of two pieces, in a text so long that they hardly ever touch: start, words."""
    num_words = 100_000
    ids = example([20, 70] * num_words, [20])
    masks = masking(prob=0.002, unit="span")  # 400 tokens, so about 53 spans
    positions = [draw(masks, ids, rng(i))[0] for i in range(40)]
    spans = [run for some in positions for run in runs(some)]
    assert all(len(run) % 2 == 0 and ids[run[0]] == 20 for run in spans)
    return np.array([run[0] / (2 * num_words) for run in spans]), [len(run) // 2 for run in spans]


def test_span_lengths_follow_spanbert_in_words(drawn_spans):
    _, lengths = drawn_spans
    shares = np.bincount(lengths, minlength=11)[1:11] / len(lengths)
    weights = 0.2 * 0.8 ** np.arange(10)
    # A standard deviation is 0.009 and less; the last span of an example may have been cut.
    assert shares.tolist() == pytest.approx((weights / weights.sum()).tolist(), abs=0.03)
    assert np.mean(lengths) == pytest.approx(3.8, abs=0.25)  # Joshi et al., section 3.1
    assert np.mean(np.array(lengths) > 10) < 0.01  # two that touch


def test_spans_start_anywhere(drawn_spans):
    starts, lengths = drawn_spans
    counts, _ = np.histogram(starts, bins=10, range=(0, 1))
    each = len(lengths) / 10
    assert counts.tolist() == pytest.approx([each] * 10, abs=4 * each**0.5)


def test_a_span_ends_where_its_segment_does():
    b = range(30, 50)
    masks = masking(prob=0.12, unit="span")  # three tokens
    ids = example([20], b)
    drawn = [positions.tolist() for positions, _ in draw_many(masks, ids, 4000)]
    after_a = [positions for positions in drawn if 1 in positions]
    assert len(after_a) > 150
    # A span over [SEP] would take B's first word in three of four cases. The others get there
    # only if they start there, and of 20 words one or two are drawn besides A's.
    assert np.mean([3 in positions for positions in after_a]) < 0.25


def test_a_span_is_masked_replaced_or_kept_together():
    ids = example(range(5, 55), range(5, 55))
    never_predicted = np.isin(np.arange(200), [PAD, CLS, SEP, MASK])
    others = np.arange(100, 200)  # so that a replacement is never the token itself
    masks = Masking(never_predicted, others, MASK, 0.15, None, "span", np.zeros(200, dtype=bool))
    fates = []
    for positions, seen in draw_many(masks, ids, 1500):
        kinds = np.where(seen == MASK, "mask", np.where(seen >= 100, "random", "kept"))
        true = ids[positions]
        assert (seen[kinds == "kept"] == true[kinds == "kept"]).all()
        for run in runs(positions):
            (fate,) = set(kinds[np.isin(positions, run)])
            fates.append(fate)
    assert len(fates) > 5000
    shares = [fates.count(fate) / len(fates) for fate in ("mask", "random", "kept")]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.02)


def test_a_replaced_span_is_replaced_by_different_tokens():
    ids = example([7] * 60, [7] * 60)
    masks = masking(60, unit="span")
    replaced = []
    for positions, seen in draw_many(masks, ids, 100):
        for run in runs(positions):
            tokens = seen[np.isin(positions, run)]
            if len(run) > 3 and MASK not in tokens and (tokens != 7).any():
                replaced.append(len(set(tokens.tolist())))
    assert min(replaced) > 1  # four equal ones of 55 are one in 166,375


def test_the_settings_choose_spans_of_words():
    tokens = word_piece(["unaffable words"])
    (ids,) = tokens.encode_batch(["unaffable words unaffable words unaffable words"])
    spans, both = (
        Masking.from_config(
            tokens, BuildConfig(span=True, whole_word=whole_word, masked_lm_prob=0.5)
        )
        for whole_word in (False, True)
    )
    words = [range(start, end) for start, end in pairwise([0, 9, 14, 23, 28, 37, 42])]
    assert targets(spans, ids) == targets(both, ids)
    for positions in targets(spans, ids):
        assert all(set(word) <= set(positions) or not set(word) & set(positions) for word in words)
    for positions, seen in draw_many(spans, ids, 200):
        for run in runs(positions):
            assert len(set(seen[np.isin(positions, run)] == MASK)) == 1

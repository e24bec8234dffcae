import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st

from bertpt.corpus.corpus import Corpus
from bertpt.corpus.sentences import MAX_CHARS, STRETCH, SentenceSplitter

LANGUAGES = ["en", "de", "fr", "zh", "ja", "hi", "xx"]


def split(line, language="en"):
    splitter = SentenceSplitter(language)
    return list(splitter.split(line)), splitter.num_cuts


@pytest.mark.parametrize("space", ["\u00a0", "\u2028", "\u202f", "\u3000", "\u1680"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_capital_a_wide_space_and_a_full_stop_can_be_read(space, language):
    # sentencex's own segment() panics here.
    assert split(f"Plan B{space}.", language)[0] == [f"Plan B{space}."]


@given(st.text(st.sampled_from("aJ.!? \"'()1\t\u200b\u2028。我é\u00a0\u3000«»“”…—\r\x85\x1c\0")))
@pytest.mark.parametrize("language", LANGUAGES)
def test_only_spaces_are_lost(language, text):
    found, _ = split(text, language)
    assert "".join("".join(found).split()) == "".join(text.split())


def test_a_long_line_is_split_like_a_short_one():
    sentences = [f"The {'very ' * (n % 50)}long sentence number {n} ends." for n in range(5000)]
    line = " ".join(sentences)
    assert len(line) > 40 * STRETCH
    assert split(line) == (sentences, 0)


@pytest.mark.parametrize("length", [STRETCH - 1, STRETCH, STRETCH + 1, 3 * STRETCH, MAX_CHARS - 1])
def test_a_long_sentence_stays_in_one_piece(length):
    sentences = ["He sat.", "W" + "w " * (length // 2 - 9) + "were there.", "She stood."] * 2
    assert split(" ".join(sentences)) == (sentences, 0)


@pytest.mark.parametrize("language", ["en", None])
def test_a_sentence_longer_than_any_example_is_cut_at_spaces(language):
    words = [f"w{n}" for n in range(40_000)]
    found, num_cuts = split(" ".join(words), language)
    assert [word for piece in found for word in piece.split()] == words
    assert num_cuts == len(found) - 1 > 0
    assert max(map(len, found)) <= MAX_CHARS


@pytest.mark.parametrize("language", ["en", None])
def test_a_word_longer_than_any_example_is_cut_too(language):
    found, num_cuts = split("x" * (3 * MAX_CHARS + 5), language)
    assert [len(piece) for piece in found] == [MAX_CHARS] * 3 + [5]
    assert num_cuts == 3


def test_each_pass_counts_the_cuts(tmp_path):
    (tmp_path / "a.txt").write_text("x" * (MAX_CHARS + 1))
    corpus = Corpus([str(tmp_path / "a.txt")])
    for _ in range(2):
        assert [len(s) for document in corpus for s in document] == [MAX_CHARS, 1]
        assert corpus.counts["cut_sentences"] == 1


@pytest.mark.parametrize(
    "line", ["我爱你。他来了" * 20_000, "x" * 200_000, "A b. " + "c " * 80_000]
)
def test_sentencex_sees_short_stretches_and_each_only_a_few_times(monkeypatch, line):
    """It takes the square of a length: 20 s for a million Chinese characters."""
    seen = []
    segment = sentencex.segment

    def watch(language, text):
        seen.append(len(text))
        return segment(language, text)

    monkeypatch.setattr(sentencex, "segment", watch)
    found, _ = split(line)
    assert "".join("".join(found).split()) == "".join(line.split())
    assert max(seen) <= 2 * MAX_CHARS
    assert sum(seen) <= 6 * len(line)


def test_a_line_of_short_sentences_is_seen_in_short_stretches(monkeypatch):
    seen = []
    segment = sentencex.segment
    monkeypatch.setattr(
        sentencex, "segment", lambda *given: seen.append(len(given[1])) or segment(*given)
    )
    assert len(split("我爱你。他来了。" * 20_000)[0]) == 40_000
    assert max(seen) <= STRETCH

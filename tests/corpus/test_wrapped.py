"""Hard-wrapped text is recognised, and --unwrap restores its paragraphs."""

import gzip
import subprocess
import textwrap
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertpt.config import BuildConfig
from bertpt.corpus.corpus import Corpus
from bertpt.corpus.wrapped import join_lines
from bertpt.errors import SettingError

PARAGRAPHS = """
The old house stood at the end of a long lane. Nobody had lived there for many years, and the garden
was full of weeds. A thin grey cat sat on the wall and watched the road.

"Do you think that anyone will ever come back to it?" she asked, looking up at the windows. There
was no answer, since the wind had taken her words away before they reached him.

In the evening they walked home by the river. The water was high and quite brown after the rain, and
they had to take the longer way over the bridge.
"""
PARAGRAPHS = [" ".join(text.split()) for text in PARAGRAPHS.split("\n\n")] * 8


def read(tmp_path, text, **settings):
    (tmp_path / "a.txt").write_text(text)
    corpus = Corpus([str(tmp_path / "a.txt")], **settings)
    return list(corpus), corpus


def wrapped(paragraphs, separator, width=60, **options):
    return separator.join(textwrap.fill(p, width, **options) for p in paragraphs) + "\n"


def fold(paragraphs, separator, width=60):
    """As `fold -s`: a space stays at the end of a line."""
    filled = [textwrap.fill(paragraph, width).replace("\n", " \n") for paragraph in paragraphs]
    return separator.join(filled) + "\n"


@pytest.mark.parametrize("separator", ["\n\n", "\n"], ids=["blank lines", "no blank lines"])
@pytest.mark.parametrize("form", [wrapped, fold])
def test_unwrapping_restores_the_sentences(tmp_path, form, separator):
    expected, corpus = read(tmp_path, separator.join(PARAGRAPHS))
    assert corpus.counts["wrapped_files"] == 0
    text = form(PARAGRAPHS, separator)
    documents, corpus = read(tmp_path, text)
    assert documents != expected
    assert corpus.counts["wrapped_files"] == 1
    documents, corpus = read(tmp_path, text, unwrap=True)
    assert documents == expected
    assert corpus.counts["wrapped_files"] == 0


def test_unwrapping_does_not_change_text_that_is_not_wrapped(tmp_path):
    text = "\n".join(PARAGRAPHS)
    assert read(tmp_path, text, unwrap=True)[0] == read(tmp_path, text)[0]


@pytest.mark.parametrize("piece_bytes", [100, 1000])
def test_a_paragraph_continues_in_the_next_piece(tmp_path, monkeypatch, piece_bytes):
    monkeypatch.setattr("bertpt.corpus.readers.PIECE_BYTES", piece_bytes)
    for separator in ("\n\n", "\n"):
        expected = read(tmp_path, separator.join(PARAGRAPHS))[0]
        assert read(tmp_path, wrapped(PARAGRAPHS, separator), unwrap=True)[0] == expected


NOT_WRAPPED = {
    "verse": ["Shall I compare thee to a", "summer's day", "thou art more lovely and more"] * 20,
    "sentences": ["This is a sentence that has a usual length of words.", "So is that."] * 20,
    "headings": ["Contents", "Chapter One", "Chapter Two and some more"] * 20,
    "few lines": textwrap.wrap(PARAGRAPHS[0], 50),
}


@pytest.mark.parametrize("lines", NOT_WRAPPED.values(), ids=NOT_WRAPPED)
def test_other_text_does_not_look_wrapped(tmp_path, lines):
    assert read(tmp_path, "\n".join(lines))[1].counts["wrapped_files"] == 0


@pytest.mark.parametrize(
    ("lines", "joined"),
    [
        (["an exam-", "ple is here"], "an example is here"),
        (["an Exam-", "ple, is here"], "an Example, is here"),
        (["a well-", "known tale"], "a well-known tale"),  # "wellknown" occurs nowhere
        (["an exam\u00ad", "ple is"], "an example is"),
        (["and then--", "she left"], "and then--she left"),
        (["and then --", "she left"], "and then -- she left"),
        (["日本", "語"], "日本語"),
        (["日本", "and so"], "日本 and so"),
    ],
)
def test_how_two_lines_are_joined(lines, joined):
    assert join_lines(lines, width=2, words={"example"}) == [joined]


@pytest.mark.parametrize(
    "lines",
    [
        ["It was a", "    New paragraphs are indented"],
        ['"It was a long way."', '"Yes."'],  # another speaker
        ["CHAPTER I.", "The old house stood at the end"],
    ],
)
def test_new_paragraphs_are_not_joined(lines):
    assert join_lines(lines, width=24, words=set()) == [line.strip() for line in lines]


word = st.text(st.characters(codec="ascii", categories=("Ll",)), min_size=1, max_size=12)


@given(st.lists(word, min_size=1, max_size=200), st.integers(14, 60))
def test_any_paragraph_is_restored(words, width):
    paragraph = " ".join(words)
    lines = textwrap.wrap(paragraph, width)
    assert join_lines(lines, width=width, words=set(words)) == [paragraph]


def test_unwrap_excludes_sentence_per_line():
    with pytest.raises(SettingError, match="`unwrap` and `sentence_per_line` exclude each other"):
        BuildConfig(unwrap=True, sentence_per_line=True)


GUTENBERG = (
    "The Project Gutenberg eBook of X\n\n*** START OF {} PROJECT GUTENBERG EBOOK X ***\n\nA.\n"
)


@pytest.mark.parametrize("this", ["THE", "THIS"])
def test_the_header_of_project_gutenberg_is_counted(tmp_path, this):
    text = GUTENBERG.format(this)
    assert read(tmp_path, text)[1].counts["gutenberg_files"] == 1
    assert read(tmp_path, text + text)[1].counts["gutenberg_files"] == 1
    assert read(tmp_path, text.replace("***", "A"))[1].counts["gutenberg_files"] == 0


def test_wrapped_novels_keep_their_sentences(shared, tmp_path):
    with gzip.open(shared / "corpora/en.novels.valid.txt.gz", "rt") as file:
        text = file.read(1_000_000)
    folded = subprocess.run(
        ["fold", "-s", "-w", "72"], input=text, capture_output=True, check=True, text=True
    ).stdout
    assert read(tmp_path, folded)[1].counts["wrapped_files"] == 1
    expected, found = (
        Counter(sentence for document in documents for sentence in document)
        for documents in (read(tmp_path, text)[0], read(tmp_path, folded, unwrap=True)[0])
    )
    assert (found & expected).total() >= 0.99 * expected.total()

import gzip
import itertools
import json
import os
import threading
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from bertpt.corpus.corpus import Corpus
from bertpt.corpus.inputs import find_files
from bertpt.corpus.sentences import SentenceSplitter
from bertpt.errors import InputError, SettingError


def read(tmp_path, content, **settings):
    path = tmp_path / "text.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    corpus = Corpus([str(path)], **settings)
    return list(corpus), corpus


def test_blank_lines_end_a_document(tmp_path):
    documents, _ = read(tmp_path, "a b\nc d\n\n \t\n\ne f\n", sentence_per_line=True)
    assert documents == [["a b", "c d"], ["e f"]]


def test_the_end_of_a_file_ends_a_document(tmp_path):
    (tmp_path / "1.txt").write_text("a b\nc d\n")
    (tmp_path / "2.txt").write_text("e f\ng h")
    documents = list(Corpus([str(tmp_path)], sentence_per_line=True))
    assert documents == [["a b", "c d"], ["e f", "g h"]]


def test_prose_is_split_into_sentences(tmp_path):
    documents, _ = read(tmp_path, "Mr. Smith went home. He slept.\nNext line\n")
    assert documents == [["Mr. Smith went home.", "He slept.", "Next line"]]


def test_the_language_decides_where_a_sentence_ends(tmp_path):
    german = "Am 3. Mai kam sie. Er ging.\n"
    assert read(tmp_path, german, language="de")[0] == [["Am 3. Mai kam sie.", "Er ging."]]
    assert read(tmp_path, german, language="en")[0] == [["Am 3.", "Mai kam sie.", "Er ging."]]


def test_one_sentence_per_line_is_read_unchanged(tmp_path):
    documents, _ = read(tmp_path, "One. Two. Three.\n", sentence_per_line=True)
    assert documents == [["One. Two. Three."]]


@pytest.mark.parametrize("separator", ["\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_only_line_feeds_end_a_line(tmp_path, separator):
    documents, _ = read(tmp_path, f"a{separator}b\n", sentence_per_line=True)
    assert documents == [[f"a{separator}b"]]


def test_a_carriage_return_before_a_line_feed_is_dropped(tmp_path):
    documents, _ = read(tmp_path, b"a\r\n\r\nb\r\n", sentence_per_line=True)
    assert documents == [["a"], ["b"]]


def test_a_byte_order_mark_is_dropped(tmp_path):
    assert read(tmp_path, b"\xef\xbb\xbfa b\n")[0] == [["a b"]]


def test_bytes_that_are_not_utf8_are_replaced_and_counted(tmp_path):
    documents, corpus = read(tmp_path, b"a \xed\xa0\xbd b\nc\n", sentence_per_line=True)
    assert documents == [["a \ufffd\ufffd\ufffd b", "c"]]
    assert corpus.counts["replaced_lines"] == 1


def test_a_replacement_character_in_the_text_is_not_counted(tmp_path):
    documents, corpus = read(tmp_path, "a \ufffd b\n", sentence_per_line=True)
    assert documents == [["a \ufffd b"]]
    assert corpus.counts["replaced_lines"] == 0


def test_nul_characters_are_removed_and_their_lines_counted(tmp_path):
    text = b"a\0b c .\nd e .\n\nf \0 g .\nh a .\n"
    documents, corpus = read(tmp_path, text, sentence_per_line=True)
    assert documents == [["ab c .", "d e ."], ["f  g .", "h a ."]]
    assert corpus.counts["nul_lines"] == 2


def test_a_line_of_nul_characters_only_does_not_end_a_document(tmp_path):
    documents, corpus = read(tmp_path, b"a b\n\0\0\nc d\n", sentence_per_line=True)
    assert documents == [["a b", "c d"]]
    assert corpus.counts["nul_lines"] == 1


@pytest.mark.parametrize("invisible", ["\u200d", "\u200b", "\u00ad"])
def test_a_line_emptied_by_cleaning_does_not_end_a_document(tmp_path, invisible):
    documents, _ = read(tmp_path, f"a b\n{invisible}\nc d\n", sentence_per_line=True)
    assert documents == [["a b", invisible, "c d"]]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [(b"a \xff b", "is not valid UTF-8"), (b"a \0 b", "contains NUL characters")],
)
def test_strict_names_the_first_line_that_is_not_clean(tmp_path, bad, problem):
    with pytest.raises(InputError) as error:
        read(tmp_path, b"a b\n\n" + bad + b"\n\xff\0\n", strict=True)
    assert str(error.value) == (
        f"{tmp_path / 'text.txt'}: line 3 {problem}; repair it, or leave out `strict`"
    )


def test_strict_accepts_clean_text(tmp_path):
    text = "\ufeffa \ufffd\r\n\n\u200b\u2028b\n"
    assert read(tmp_path, text, strict=True)[0] == read(tmp_path, text)[0]


def test_the_total_of_plain_files_is_known_before_they_are_read(tmp_path):
    (tmp_path / "1.txt").write_bytes(b"\xef\xbb\xbfa b\r\n\r\nc\0\xff")
    (tmp_path / "2.jsonl").write_bytes(b'{"text": "a"}\n\n{"text": null}')
    corpus = Corpus([str(tmp_path)])
    assert corpus.total_bytes == 13 + 29
    list(corpus)
    assert corpus.num_bytes == corpus.total_bytes


def test_a_pipe_has_no_total(tmp_path):
    (tmp_path / "1.txt").write_bytes(b"a b\n")
    os.mkfifo(tmp_path / "pipe")
    for name in (f"{tmp_path}/pipe", "-", "jsonl:-"):
        assert Corpus([f"{tmp_path}/1.txt", name]).total_bytes is None


def test_each_pass_counts_the_bytes_read(tmp_path):
    _, corpus = read(tmp_path, "ab\n\ncd\n")
    assert corpus.num_bytes == 7
    list(corpus)
    assert corpus.num_bytes == 7


@given(st.text())
def test_any_text_is_read_without_an_error(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("any") / "text.txt"
    path.write_bytes(b"first\n" + text.encode("utf-8", "surrogatepass"))
    documents = list(Corpus([str(path)]))
    assert documents[0][0].startswith("first")
    assert all(sentence.strip() for document in documents for sentence in document)


# ----------------------------------------------------------------------------- where it comes from


def test_text_that_begins_like_a_magic_number_is_text(tmp_path):
    assert read(tmp_path, "BZh is no archive.\n")[0] == [["BZh is no archive."]]
    assert read(tmp_path, "PAR1 is a word.\n")[0] == [["PAR1 is a word."]]


def test_a_folder_is_searched_in_sorted_order_for_text_files(tmp_path):
    texts = ["a/y.txt", "a/z.jsonl", "b.txt", "c.txt.gz", "d.jsonl.zst", "e.parquet", "f.txt.xz"]
    for name in (*reversed(texts), "notes.md", ".hidden.txt", "g.json", "h.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [os.path.relpath(file, tmp_path) for file in find_files([str(tmp_path)]).files] == texts


def test_a_glob_matches_in_sorted_order(tmp_path):
    for name in ("2.txt", "1.txt", "3.md"):
        (tmp_path / name).touch()
    assert find_files([f"{tmp_path}/*.txt"]).files == [f"{tmp_path}/1.txt", f"{tmp_path}/2.txt"]


def test_a_name_that_holds_a_glob_character_is_a_name_first(tmp_path):
    (tmp_path / "a[1].txt").touch()
    assert find_files([f"{tmp_path}/a[1].txt"]).files == [f"{tmp_path}/a[1].txt"]


def test_inputs_keep_the_order_in_which_they_are_given(tmp_path):
    for name in ("1.txt", "2.txt"):
        (tmp_path / name).touch()
    names = [f"{tmp_path}/2.txt", "-", f"{tmp_path}/1.txt"]
    assert find_files(names).files == names


def test_a_named_pipe_is_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a b\n\nc d\n",))
    writer.start()
    assert list(Corpus([str(pipe)])) == [["a b"], ["c d"]]
    writer.join()


@pytest.mark.parametrize("name", ["missing.txt", "no*.txt", "."])
def test_an_input_that_matches_nothing_is_named(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        Corpus([name])
    assert name in str(error.value)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"PK\x03\x04", "zip"),
        (b"%PDF-1.7", "PDF"),
        ("a b".encode("utf-16"), "UTF-16"),
    ],
)
def test_files_that_are_not_text_are_refused_by_content(tmp_path, content, kind):
    with pytest.raises(InputError, match=kind):
        read(tmp_path, content)


@pytest.mark.parametrize("language", ["english", "", "EN", "e"])
def test_a_language_that_is_not_a_code_is_refused(tmp_path, language):
    with pytest.raises(SettingError, match=f"`language` {language}"):
        read(tmp_path, "a", language=language)


def test_hidden_folders_and_tokenizers_in_a_folder_are_not_read(tmp_path):
    for name in (".cache/a.txt", "data/tokenizer/vocab.txt", "data/.x/b.txt", "good/c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "data/tokenizer/tokenizer_config.json").touch()
    assert find_files([str(tmp_path)]).files == [str(tmp_path / "good/c.txt")]


def test_a_file_that_is_given_twice_is_read_once(tmp_path):
    """Or its text would be both held out and trained on."""
    (tmp_path / "a.txt").write_text("a b\n")
    (tmp_path / "b.txt").write_text("c d\n")
    (tmp_path / "link.txt").symlink_to(tmp_path / "b.txt")
    corpus = Corpus([str(tmp_path / "a.txt"), str(tmp_path), f"{tmp_path}/*.txt"])
    assert list(corpus) == [["a b"], ["c d"]]
    assert corpus.counts["repeated_files"] == 5


# ------------------------------------------------------------------------------- parts of a corpus

NUMBERS = itertools.count()
COUNTS = ("replaced_lines", "surrogate_rows", "nul_lines", "empty_rows", "row_like_files")
CLEAN = ["One. Two.", "a b", "\u200b", "c\u2028d"]
# Blank lines, blank characters, and what is mended.
LINES = [
    *(line.encode() for line in CLEAN),
    b"",
    b" \t",
    b"\x85",
    b"\0",
    b"\0\0e",
    b"f \xff",
    b"\r",
]
JSON_LINE = b'{"text": "a b. c d."}'
ROWS = [*CLEAN, "", " \n ", "\0", "g\0h\n\ni", None]


def text_file(lines):
    return "txt", b"\n".join(lines)


def json_file(rows):
    lines = ("" if row == "blank line" else json.dumps({"text": row}) for row in rows)
    return "jsonl", "\n".join(lines).encode()


def parquet_file(rows):
    sink = pa.BufferOutputStream()
    raw = pa.array([row if row is None else row.encode() for row in rows], pa.binary())
    parquet.write_table(pa.table({"text": raw.view(pa.string())}), sink)
    return "parquet", sink.getvalue().to_pybytes()


FILES = st.one_of(
    st.lists(st.sampled_from([*LINES, JSON_LINE]), max_size=12).map(text_file),
    st.lists(st.sampled_from([*ROWS, "\ud800 j", "blank line"]), max_size=6).map(json_file),
    st.lists(st.sampled_from(ROWS), max_size=6).map(parquet_file),
)


def write_corpus(folder, files):
    folder = folder / f"corpus-{next(NUMBERS)}"
    folder.mkdir()
    for number, (ending, content) in enumerate(files):
        (folder / f"{number}.{ending}").write_bytes(content)
    return [str(folder / f"{number}.{ending}") for number, (ending, _) in enumerate(files)]


@settings(deadline=None, max_examples=60)  # files are written
@given(files=st.lists(FILES, min_size=1, max_size=5), num_parts=st.integers(1, 7))
def test_every_document_and_every_count_belongs_to_exactly_one_part(
    tmp_path_factory, files, num_parts
):
    names = write_corpus(tmp_path_factory.getbasetemp(), files)
    whole = Corpus(names)
    documents = list(whole)
    parts = [Corpus(names, shard=f"{i + 1}/{num_parts}") for i in range(num_parts)]
    found = [list(part) for part in parts]
    if num_parts > len(files):
        assert found == [documents[i::num_parts] for i in range(num_parts)]
    else:
        assert [part.files for part in parts] == [names[i::num_parts] for i in range(num_parts)]
        assert found == [list(Corpus(names[i::num_parts])) for i in range(num_parts)]
    assert sorted(itertools.chain(*found)) == sorted(documents)
    for count in COUNTS:
        assert sum(part.counts[count] for part in parts) == whole.counts[count], count
    for part in parts:
        assert part.total_bytes in (None, part.num_bytes)


def test_with_fewer_files_than_parts_a_part_takes_every_nth_document(tmp_path):
    (tmp_path / "1.txt").write_text("a\n\nb\n\nc\n")
    (tmp_path / "2.jsonl").write_text('{"text": "d"}\n{"text": ""}\n{"text": "e"}\n')
    parts = [list(Corpus([str(tmp_path)], shard=f"{i}/3")) for i in (1, 2, 3)]
    assert parts == [[["a"], ["d"]], [["b"], ["e"]], [["c"]]]


def test_with_as_many_files_as_parts_a_part_takes_every_nth_file(tmp_path):
    for name in "abcde":
        (tmp_path / f"{name}.txt").write_text(f"{name} 1\n\n{name} 2\n")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")  # a double, which takes no turn
    parts = [Corpus([str(tmp_path)], shard=f"{i}/2") for i in (1, 2)]
    assert [[text[:1] for (text,) in part] for part in parts] == [[*"aaccee"], [*"bbdd"]]
    assert [part.counts["repeated_files"] for part in parts] == [1, 0]


def test_the_text_of_other_parts_is_not_split(tmp_path, monkeypatch):
    split, lines = SentenceSplitter.split, []

    def watched(splitter, line):
        lines.append(line)
        return split(splitter, line)

    monkeypatch.setattr(SentenceSplitter, "split", watched)
    (tmp_path / "1.txt").write_text("a. b.\n\nc. d.\n\ne. f.\n")
    (tmp_path / "2.jsonl").write_text('{"text": "g. h."}\n{"text": "i. j."}\n')
    list(Corpus([str(tmp_path)], shard="2/4"))
    assert lines == ["c. d."]


def test_only_a_parts_own_text_must_be_clean(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"a\n\n\xff \0\n\nb\n")
    assert list(Corpus([str(path)], strict=True, shard="1/2")) == [["a"], ["b"]]
    with pytest.raises(InputError, match="line 3 is not valid UTF-8"):
        list(Corpus([str(path)], strict=True, shard="2/2"))


@pytest.mark.parametrize("shard", [None, "1/3", "2/3", "3/3"])
def test_a_bar_ends_at_the_bytes_of_the_input(tmp_path, shard):
    path = tmp_path / "text.txt"
    path.write_text("a\n\nb\n\nc\n\nd\n\n\n")
    bar = SimpleNamespace(n=0, close=lambda: None)
    bar.update = lambda more: setattr(bar, "n", bar.n + more)
    corpus = Corpus([str(path)], shard=shard)
    list(corpus.with_progress(bar))
    assert bar.n == corpus.total_bytes == path.stat().st_size


def test_only_the_part_with_the_first_line_warns_of_text_like_json(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(JSON_LINE + b"\n\nb\n")
    parts = [Corpus([str(path)], shard=f"{i}/2") for i in (1, 2)]
    list(map(list, parts))
    assert [part.counts["row_like_files"] for part in parts] == [1, 0]


def test_a_part_is_the_same_on_every_pass(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a\n\nb\n\nc\n")
    corpus = Corpus([str(path)], shard="1/2")
    assert list(corpus) == list(corpus) == [["a"], ["c"]]


# ------------------------------------------------------------------------------------- a sample

# 20 documents of 100 bytes, the blank line included.
TWENTY = "".join(f"{number:02} {'a' * 94}.\n\n" for number in range(20))


def sample(folder, num_bytes, **options):
    corpus = Corpus([str(folder)], sample_bytes=num_bytes, **options)
    return [document[0][:2] for document in corpus], corpus


def test_a_sample_is_the_first_documents(tmp_path):
    (tmp_path / "a.txt").write_text(TWENTY)
    found, corpus = sample(tmp_path, 450)
    assert found == ["00", "01", "02", "03", "04"]
    assert corpus.is_sampled
    assert corpus.num_bytes == corpus.num_text_bytes == 499
    assert corpus.total_bytes == 2000


def test_a_sample_larger_than_the_corpus_is_all_of_it(tmp_path):
    (tmp_path / "a.txt").write_text(TWENTY)
    found, corpus = sample(tmp_path, 2001)
    assert len(found) == 20
    assert not corpus.is_sampled
    assert corpus.num_bytes == corpus.total_bytes == 2000


def test_files_share_a_sample_equally_and_short_files_leave_room_for_others(tmp_path):
    for name, length in (("1", 2000), ("2", 100), ("3", 2000)):
        (tmp_path / f"{name}.txt").write_text(TWENTY[:length])
    found, corpus = sample(tmp_path, 900)
    assert found == ["00", "01", "02", "00", "00", "01", "02", "03", "04"]
    assert corpus.num_bytes == 900


def test_at_most_64_evenly_spaced_files_are_sampled(tmp_path):
    for number in range(640):
        (tmp_path / f"{number:03}.txt").write_text(f"{number:03} b.\n\nc d.\n")
    corpus = Corpus([str(tmp_path)], sample_bytes=64)
    first = [document[0][:3] for document in corpus]
    # A file's first document is taken whole, however little its share is.
    assert len(first) <= 64
    assert [int(number) % 10 for number in first] == [0] * len(first)
    assert {int(number) // 160 for number in first} == {0, 1, 2, 3}
    assert corpus.is_sampled


def test_a_document_longer_than_the_sample_is_cut_after_a_sentence(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(f"Line {n}. It ends." for n in range(1000)))
    [document] = Corpus([str(tmp_path)], sample_bytes=100)
    assert document == [s for n in range(len(document) // 2) for s in (f"Line {n}.", "It ends.")]
    assert 100 <= sum(map(len, document)) + len(document) < 130
    (tmp_path / "a.txt").write_text("Aé bé. " * 1000)
    [document] = Corpus([str(tmp_path)], sample_bytes=100)
    assert set(document) == {"Aé bé."}
    (tmp_path / "a.txt").write_text("日本" * 1000)
    corpus = Corpus([str(tmp_path)], sample_bytes=100)
    [[text]] = corpus
    assert ("日本" * 1000).startswith(text)
    assert 30 <= len(text) <= 33
    assert corpus.counts["replaced_lines"] == 0


def test_a_sample_of_a_compressed_file_counts_compressed_bytes(tmp_path):
    text = "\n\n".join(os.urandom(500).hex() for _ in range(2000))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    for kept in (300_000, 1_000_000):
        _, corpus = sample(tmp_path, kept)
        share = corpus.num_text_bytes / len(text)
        assert corpus.num_bytes / corpus.total_bytes == pytest.approx(share, rel=0.1)

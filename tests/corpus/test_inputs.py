"""Every format and compression gives the documents that plain text gives; damage is one line."""

import bz2
import errno
import gzip
import io
import json
import lzma
import os
import sys
import tempfile
import threading
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from bertpt.corpus.corpus import Corpus
from bertpt.errors import InputError, OutputError, SettingError

DOCUMENTS = [["He sat.", "She stood."], ["Néo ran \u2028 home."], ["日本。", "a\u200db"]]


def zstd(content):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


COMPRESSIONS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": partial(lzma.compress, preset=0),
    ".zst": zstd,
}


def as_text(documents):
    return "\n\n".join("\n".join(document) for document in documents).encode()


def as_jsonl(documents, **options):
    rows = [{"id": 7, "text": "\n".join(document)} for document in documents]
    return "".join(f"{json.dumps(row, **options)}\n" for row in rows).encode()


def as_parquet(documents, kind=None, **options):
    texts = pa.array(["\n".join(document) for document in documents], kind)
    return table_bytes({"id": [[1]] * len(texts), "text": texts}, **options)


def table_bytes(columns, **options):
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table(columns), sink, **options)
    return sink.getvalue().to_pybytes()


FORMATS = {"txt": as_text, "jsonl": as_jsonl, "parquet": as_parquet}
COUNTED_FAST = {("txt", ""), ("txt", ".zst"), ("jsonl", ".gz"), ("parquet", ".bz2")}


def read(path, content, **settings):
    path.write_bytes(content)
    corpus = Corpus([str(path)], sentence_per_line=True, **settings)
    return list(corpus), corpus


def refusal(path, content, **settings):
    with pytest.raises(InputError) as error:
        read(path, content, **settings)
    line = str(error.value)
    assert line.startswith(str(path))
    assert "\n" not in line
    return line.removeprefix(str(path))


# ------------------------------------------------------------------------------ the same documents


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_every_format_gives_the_same_documents(tmp_path, kind, ending):
    path = tmp_path / f"a.{kind}{ending}"
    content = COMPRESSIONS[ending](FORMATS[kind](DOCUMENTS))
    assert read(path, content)[0] == DOCUMENTS


@pytest.mark.parametrize("kind", ["txt", "parquet"])
@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_a_renamed_file_is_known_by_its_content(tmp_path, kind, ending):
    content = COMPRESSIONS[ending](FORMATS[kind](DOCUMENTS))
    assert read(tmp_path / "renamed.txt", content)[0] == DOCUMENTS


@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_a_corpus_reads_the_same_twice(tmp_path, ending):
    for kind, form in FORMATS.items():
        (tmp_path / f"a.{kind}{ending}").write_bytes(COMPRESSIONS[ending](form(DOCUMENTS)))
    corpus = Corpus([f"{tmp_path}/*"], sentence_per_line=True)
    assert list(corpus) == list(corpus) == DOCUMENTS * 3


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst"])
def test_compressed_pieces_one_after_another_are_one_text(tmp_path, ending):
    pieces = (b"a b\n\nc", b"", b" d\n")
    content = b"".join(map(COMPRESSIONS[ending], pieces))
    assert read(tmp_path / "a.txt", content)[0] == [["a b"], ["c d"]]


def test_a_skippable_zstd_frame_is_skipped(tmp_path):
    skipped = b"\x50\x2a\x4d\x18\x04\0\0\0pzst"
    assert read(tmp_path / "a.txt", skipped + zstd(b"a b\n"))[0] == [["a b"]]


def test_an_empty_archive_is_an_empty_text(tmp_path):
    for compress in COMPRESSIONS.values():
        assert read(tmp_path / "a.txt", compress(b""))[0] == []


lines = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r\ufeff")).map(
    lambda line: " ".join(line.split()) or "x"
)


@given(st.lists(st.lists(lines, min_size=1), max_size=5), st.sampled_from(list(COMPRESSIONS)))
@example([['{"text": "a"}']], "")
def test_documents_come_back_from_every_format(tmp_path_factory, documents, ending):
    folder = tmp_path_factory.mktemp("formats")
    for kind, form in FORMATS.items():
        content = COMPRESSIONS[ending](form(documents))
        assert read(folder / f"a.{kind}{ending}", content)[0] == documents
    content = as_jsonl(documents, ensure_ascii=False)
    assert read(folder / "unescaped.jsonl", content)[0] == documents


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        pytest.param(
            kind,
            ending,
            marks=() if (kind, ending) in COUNTED_FAST else pytest.mark.slow,
        )
        for kind in FORMATS
        for ending in COMPRESSIONS
    ],
)
def test_what_is_read_is_counted_in_the_bytes_of_the_file(tmp_path, kind, ending):
    # Several of bzip2's blocks, which are uncompressed as a whole.
    documents = [[os.urandom(5000).hex()] for _ in range(500)]
    path = tmp_path / f"a.{kind}{ending}"
    path.write_bytes(COMPRESSIONS[ending](FORMATS[kind](documents)))
    corpus = Corpus([str(path)], sentence_per_line=True)
    seen = [corpus.num_bytes for _ in corpus]
    assert corpus.num_bytes == corpus.total_bytes == path.stat().st_size
    assert seen[249] / corpus.total_bytes == pytest.approx(0.5, abs=0.2)


def test_a_full_disk_for_a_copy_of_parquet_is_named(tmp_path, monkeypatch):
    class Full(io.BytesIO):
        def write(self, _):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "a.parquet.gz"
    path.write_bytes(gzip.compress(as_parquet(DOCUMENTS)))
    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    expected = f"^cannot copy {path} to {tempfile.gettempdir()}: No space left on device; "
    with pytest.raises(OutputError, match=expected):
        list(Corpus([str(path)]))


# ------------------------------------------------------------------------------------------- rows


def test_a_blank_line_in_a_row_does_not_end_the_document(tmp_path):
    texts = ["a b\n\n \nc d", "e\r\n\r\nf"]
    content = "".join(f"{json.dumps({'text': text})}\n" for text in texts).encode()
    expected = [["a b", "c d"], ["e", "f"]]
    assert read(tmp_path / "a.jsonl", content)[0] == expected
    assert read(tmp_path / "a.parquet", table_bytes({"text": texts}))[0] == expected


def test_rows_without_text_are_left_out_and_counted(tmp_path):
    texts = ["a", None, "", " \n\t", "b"]
    content = "\n".join(json.dumps({"text": text}) for text in texts).encode()
    for name, content_of_it in (("a.jsonl", content), ("a.pq", table_bytes({"text": texts}))):
        documents, corpus = read(tmp_path / name, content_of_it)
        assert documents == [["a"], ["b"]]
        assert corpus.counts["empty_rows"] == 3
        list(corpus)
        assert corpus.counts["empty_rows"] == 3


def test_text_field_chooses_the_field(tmp_path):
    row = {"a.b": "right", "text": "wrong", "a": {"b": "nested"}}
    for name, content in (
        ("a.jsonl", json.dumps(row).encode()),
        ("a.parquet", table_bytes({key: [value] for key, value in row.items()})),
    ):
        assert read(tmp_path / name, content, text_field="a.b")[0] == [["right"]]


def test_a_field_without_a_name_is_refused(tmp_path):
    with pytest.raises(SettingError, match="`text_field` ''"):
        read(tmp_path / "a.jsonl", b"", text_field="")


def test_blank_lines_between_rows_and_a_byte_order_mark_are_skipped(tmp_path):
    content = b'\xef\xbb\xbf{"text": "a"}\r\n\r\n  \n {"text": "b"} '
    documents, corpus = read(tmp_path / "a.jsonl", content)
    assert documents == [["a"], ["b"]]
    assert corpus.counts["empty_rows"] == 0


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_every_kind_of_text_column_is_read(tmp_path, kind):
    content = as_parquet(DOCUMENTS, kind)
    assert parquet.read_schema(pa.BufferReader(content)).field("text").type != pa.string()
    assert read(tmp_path / "a.parquet", content)[0] == DOCUMENTS


def test_row_groups_and_batches_keep_the_order(tmp_path):
    documents = [[f"row {number}"] for number in range(1000)]
    content = as_parquet(documents, row_group_size=300)
    assert read(tmp_path / "a.parquet", content)[0] == documents


def test_a_column_of_nulls_holds_no_text(tmp_path):
    documents, corpus = read(tmp_path / "a.parquet", table_bytes({"text": pa.nulls(3)}))
    assert documents == []
    assert corpus.counts["empty_rows"] == 3


JSONL_FAULTS = {
    b'{"text": "a"': ': line 2 is not a JSON object: \'{"text": "a"\'',
    b"plain": ": line 2 is not a JSON object: 'plain'",
    b'["text"]': ": line 2 is not a JSON object: '[\"text\"]'",
    b"[" * 100_000: ": line 2 is not a JSON object: '[[[[[[[[[[[[...[[[[[[[[[[[[['",
    b'{"body": 1, "a\\nb": 2}': (
        ": line 2 has no field 'text', only 'body', 'a\\nb'; choose one with `text_field`"
    ),
    b"{}": ": line 2 has no field 'text', or any other",
    b'{"text": 12}': ": line 2: field 'text' is not text but 12",
    b'{"text": ["a", 1]}': ": line 2: field 'text' is not text but ['a', 1]",
    b'{"text": {"a": "b"}}': ": line 2: field 'text' is not text but {'a': 'b'}",
    b'{"text": false}': ": line 2: field 'text' is not text but False",
}


@pytest.mark.parametrize(("line", "message"), JSONL_FAULTS.items(), ids=range(len(JSONL_FAULTS)))
def test_a_faulty_line_of_jsonl_is_named(tmp_path, line, message):
    content = b'{"text": "a"}\n' + line + b'\n{"text": "a"}\n'
    assert refusal(tmp_path / "a.jsonl", content) == message


def test_a_parquet_file_without_such_a_text_column_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    assert refusal(path, table_bytes({"body": ["a"], "n": [1]})) == (
        " has no field 'text', only 'body', 'n'; choose one with `text_field`"
    )
    assert refusal(path, table_bytes({"text": [1]})) == ": column 'text' is not text but int64"
    assert refusal(path, table_bytes({"text": [b"a"]})) == ": column 'text' is not text but binary"


# -------------------------------------------------------------------------------- text not clean


def test_half_a_surrogate_pair_is_replaced_and_counted(tmp_path):
    content = b'{"text":"a \\ud83d b ."}\n{"text":"\\udf89 \\ud83c\\udf89"}\n{"text":"c d ."}\n'
    documents, corpus = read(tmp_path / "s.jsonl", content)
    assert documents == [["a \ufffd b ."], ["\ufffd \U0001f389"], ["c d ."]]
    assert corpus.counts["surrogate_rows"] == 2


@given(st.text(st.characters(codec=None), min_size=1))
def test_no_surrogate_remains(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("surrogates")
    for document in read(folder / "a.jsonl", json.dumps({"text": text}).encode())[0]:
        "".join(document).encode()


def test_invalid_utf8_and_nul_in_rows_are_repaired_and_counted(tmp_path):
    raw = pa.array([b"a \xff b", b"c\0d", b"e"]).cast(pa.binary())
    column = pa.Array.from_buffers(pa.string(), 3, raw.buffers())  # unchecked, as writers may be
    jsonl = b'{"text": "a \xff b"}\n{"text": "c\\u0000d"}\n{"text": "e"}\n'
    for name, content in (("a.parquet", table_bytes({"text": column})), ("a.jsonl", jsonl)):
        documents, corpus = read(tmp_path / name, content)
        assert documents == [["a \ufffd b"], ["cd"], ["e"]]
        assert (corpus.counts["replaced_lines"], corpus.counts["nul_lines"]) == (1, 1)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (b"\xff", "is not valid UTF-8"),
        (b"\\u0000", "contains NUL characters"),
        (b"\\ud83d", "contains half a surrogate pair"),
    ],
)
def test_strict_names_the_first_row_that_is_not_clean(tmp_path, bad, problem):
    content = b'{"text": "a"}\n{"text": null}\n{"text": "' + bad + b'"}\n'
    assert refusal(tmp_path / "a.jsonl", content, strict=True) == (
        f": line 3 {problem}; repair it, or leave out `strict`"
    )


def test_strict_names_the_row_of_a_parquet_file(tmp_path):
    content = table_bytes({"text": ["a"] * 200 + ["\0"]})
    assert refusal(tmp_path / "a.parquet", content, strict=True) == (
        ": row 201 contains NUL characters; repair it, or leave out `strict`"
    )


# ---------------------------------------------------------------------------------- damaged files


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("left_out", [1, 20, 150])
def test_an_archive_that_was_cut_short_is_an_error(tmp_path, ending, left_out):
    whole = COMPRESSIONS[ending](os.urandom(20_000).hex().encode())
    line = refusal(tmp_path / f"a.txt{ending}", whole[:-left_out])
    assert line.startswith(" cannot be read: ")


@pytest.mark.parametrize("ending", [".bz2", ".xz", ".zst"])
def test_an_archive_cut_to_little_more_than_its_magic_number_is_an_error(tmp_path, ending):
    for kept in (12, 16):
        content = COMPRESSIONS[ending](b"a b c d e f " * 99)[:kept]
        assert refusal(tmp_path / "a.txt", content).startswith(" cannot be read: ")


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_rubbish_after_an_archive_is_an_error(tmp_path, ending):
    content = COMPRESSIONS[ending](b"a b\n") + b"rubbish and more rubbish"
    assert refusal(tmp_path / "a.txt", content).startswith(" cannot be read: ")


def test_a_damaged_parquet_file_is_an_error(tmp_path):
    whole = as_parquet([[f"row {number}"] for number in range(1000)], compression="gzip")
    for content in (whole[:-9], whole[: len(whole) // 2], b"PAR1\x15\x04"):
        assert refusal(tmp_path / "a.parquet", content).startswith(" cannot be read: ")
    middle = slice(100, 2000)
    damaged = whole[:100] + bytes(byte ^ 0xFF for byte in whole[middle]) + whole[2000:]
    assert refusal(tmp_path / "a.parquet", damaged).startswith(" cannot be read: ")


def test_a_file_that_is_parquet_only_by_name_is_refused(tmp_path):
    expected = " is not a Parquet file: it does not start with PAR1"
    assert refusal(tmp_path / "a.parquet", b"\0" * 99) == expected
    assert refusal(tmp_path / "a.parquet", b"") == expected


@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_compressed_files_that_are_not_text_are_refused(tmp_path, ending):
    content = COMPRESSIONS[ending]("a b".encode("utf-16"))
    assert refusal(tmp_path / "a.txt", content).startswith(" is UTF-16; ")


# --------------------------------------------------------------------------------- standard input


@pytest.fixture
def piped(monkeypatch):
    def give(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_standard_input_is_text_or_parquet_compressed_or_not(piped, ending):
    for form in (as_text, as_parquet):
        piped(COMPRESSIONS[ending](form(DOCUMENTS)))
        assert list(Corpus(["-"], sentence_per_line=True)) == DOCUMENTS
        assert not sys.stdin.buffer.closed


@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_standard_input_is_jsonl_if_the_argument_says_so(piped, ending):
    piped(COMPRESSIONS[ending](as_jsonl(DOCUMENTS)))
    corpus = Corpus(["jsonl:-", "-"], sentence_per_line=True)
    assert list(corpus) == DOCUMENTS
    assert (corpus.name, corpus.counts["repeated_files"]) == ("standard input", 1)


def test_faults_in_standard_input_name_it(piped):
    piped(b"{}")
    with pytest.raises(InputError, match=r"^standard input: line 1 has no field 'text'"):
        list(Corpus(["jsonl:-"]))


def test_text_that_begins_like_jsonl_is_read_as_text_and_counted(tmp_path, piped):
    rows = '{"text": "a"}\n{"text": "b"}'
    documents, corpus = read(tmp_path / "a.txt", rows.encode())
    assert documents == [rows.split("\n")]
    assert corpus.counts["row_like_files"] == 1
    piped(rows.encode())
    corpus = Corpus(["-"])
    list(corpus)
    assert corpus.counts["row_like_files"] == 1


@pytest.mark.parametrize("text", ['{"body": "a"}', '{"text": 1}', "{a", "{}", "[1]", "a b"])
def test_other_text_is_not_mistaken_for_jsonl(tmp_path, text):
    documents, corpus = read(tmp_path / "a.txt", text.encode())
    assert documents == [[text]]
    assert corpus.counts["row_like_files"] == 0


@pytest.mark.parametrize("form", [as_text, as_parquet])
def test_a_pipe_that_delivers_byte_by_byte_is_known_by_its_content(tmp_path, form):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write():
        with pipe.open("wb", buffering=0) as file:
            for byte in gzip.compress(form(DOCUMENTS)):
                file.write(bytes([byte]))

    writer = threading.Thread(target=write)
    writer.start()
    assert list(Corpus([str(pipe)], sentence_per_line=True)) == DOCUMENTS
    writer.join()

"""Text as people have it: markup, tables, JSON arrays, other encodings, lines of any length."""

import gzip
import io
import json
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from bertpt.corpus import lines
from bertpt.corpus.corpus import Corpus
from bertpt.corpus.lines import read_lines
from bertpt.errors import InputError


def read(path, content, **settings):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    corpus = Corpus([str(path)], **settings)
    return list(corpus), corpus


def refusal(path, content, **settings):
    with pytest.raises(InputError) as error:
        read(path, content, **settings)
    return str(error.value).removeprefix(str(path))


# ------------------------------------------------------------------------------------------ markup

TEI = (
    '<TEI xmlns="http://www.tei-c.org/ns/1.0"><text><body>\n<p>One. Two.</p>\n</body></text></TEI>'
)
MARKUP = {
    f'<?xml version="1.0"?>\n{TEI}\n': "XML",
    TEI: "XML",
    "\ufeff\n <!DOCTYPE html><html><body>One.</body></html>": "HTML",
    "<HTML lang='en'>\n<body>One.</body>": "HTML",
    '<?xml version="1.0"?><html><body>One.</body></html>': "HTML",
    "<s id='1'>One.</s>\n<s id='2'>Two.</s>\n": "XML",
    "<DOC>\n<DOCNO>1</DOCNO>\nOne.\n</DOC>\n": "XML",
    '<mediawiki xml:lang="en">\n<page>': "MediaWiki",
}


@pytest.mark.parametrize(("content", "kind"), MARKUP.items())
@pytest.mark.parametrize("name", ["a.txt", "a.xml", "a.jsonl"])
def test_markup_is_refused_with_the_way_out(tmp_path, name, content, kind):
    line = refusal(tmp_path / name, content)
    assert kind in line
    assert "extract its text first" in line


@pytest.mark.parametrize(
    "text",
    [
        "He wrote <p> and </p> in his essay.",
        "<3 is a heart, and 2 < 3 > 1.",
        "<anna> hello\n<ben> hi\n<anna> bye",  # a chat
        "<unk> is a token. So is <s>.",
        "< p > is not a tag.\n</p> is.\nOne.\nTwo.",
    ],
)
def test_prose_with_angle_brackets_is_read(tmp_path, text):
    documents, _ = read(tmp_path / "a.txt", text, sentence_per_line=True)
    assert documents == [text.split("\n")]


def test_articles_of_wikiextractor_are_documents(tmp_path):
    one = '<doc id="12" url="u" title="A">\nA\n\nFirst text. It goes on.\n\n</doc>\n'
    two = '<doc id="13" url="u" title="B">\nB\n\nSecond text. Also more.\n\n</doc>\n'
    expected = [["A", "First text.", "It goes on."], ["B", "Second text.", "Also more."]]
    assert read(tmp_path / "wiki_00", one + two)[0] == expected
    assert read(tmp_path / "wiki_00", one + two.replace("</doc>\n", ""))[0] == expected
    assert read(tmp_path / "wiki_00", (one + two).replace("\n", "\r\n"))[0] == expected
    # After an article, blank lines separate documents again.
    assert read(tmp_path / "a.txt", f"{one}C.\n\nD.\n")[0] == [expected[0], ["C."], ["D."]]


# --------------------------------------------------------------------------------- other encodings


@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
@pytest.mark.parametrize(
    "text", ["One two. Three four.\n\nFive six. Seven.\n", "Это мой дом. " * 9]
)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_wide_encodings_are_named(tmp_path, encoding, text, mark):
    line = refusal(tmp_path / "a.txt", (mark + text).encode(encoding))
    wanted = encoding.removesuffix("LE").removesuffix("BE") if mark else encoding
    assert line.startswith(f" is {wanted}")
    assert f"iconv -f {wanted} -t UTF-8" in line


def test_text_with_nul_characters_is_not_taken_for_a_wide_encoding(tmp_path):
    documents, corpus = read(tmp_path / "a.txt", b"a\0b\nabc\0\n\0\0\0\0\0\0\0\0\0\0c\n" * 9)
    assert documents == [["ab", "abc", "c"] * 9]
    assert corpus.counts["nul_lines"] == 27


@pytest.mark.parametrize("text", ["A b.\rC d.\r\rE f.\r", "A b.\rC d."])
def test_carriage_returns_as_line_ends_are_refused(tmp_path, text):
    assert refusal(tmp_path / "a.txt", text) == (
        " is text with carriage returns as line ends; convert it first (tr '\\r' '\\n')"
    )


# ------------------------------------------------------------------------------------------ tables

ROWS = [["Hello there.", "How are you?"], ["Fine, thanks.", "And you?"], ["Good."], ["Bye ;\t)."]]
CSV = (
    'id,text\n1,"Hello there. How are you?"\n2,"Fine, thanks.\nAnd you?"\n3,Good.\n4,"Bye ;\t)."\n'
)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("ending", "delimiter"), [(".csv", ","), (".csv", ";"), (".tsv", "\t")], ids=repr
)
def test_a_row_of_a_table_is_a_document(tmp_path, ending, delimiter, compress):
    text = CSV.replace("Fine,", "Fine_").replace(",", delimiter).replace("Fine_", "Fine,")
    path = tmp_path / (f"a{ending}.gz" if compress is gzip.compress else f"a{ending}")
    for mark, newline in (("", "\n"), ("\ufeff", "\r\n")):
        content = (mark + text.replace("\n", newline)).encode()
        documents, corpus = read(path, compress(content))
        assert documents == ROWS
        assert corpus.num_bytes == path.stat().st_size


def test_text_field_chooses_the_column_of_a_table(tmp_path):
    content = 'a.b,"the text"\nOne.,Two.\n,"Say ""three""."\n"",Four.\n'
    path = tmp_path / "a.csv"
    assert read(path, content, text_field="the text")[0] == [["Two."], ['Say "three".'], ["Four."]]
    documents, corpus = read(path, content, text_field="a.b")
    assert documents == [["One."]]
    assert corpus.counts["empty_rows"] == 2
    assert refusal(path, content) == (
        " has no field 'text', only 'a.b', 'the text'; choose one with `text_field`"
    )


def test_faults_of_a_table_are_one_line(tmp_path):
    path = tmp_path / "a.csv"
    assert "Row #3: Expected 2 columns, got 3" in refusal(path, "id,text\n1,a\n2,b,c\n")
    assert "\n" not in refusal(path, "id,text\n1,a\n2,b,'c\n\n'\n" + "x" * 9000)
    documents, corpus = read(path, b"id,text\n1,a\xff\n2,b\0c\n")
    assert documents == [["a\ufffd"], ["bc"]]
    assert corpus.counts["replaced_lines"] == corpus.counts["nul_lines"] == 1
    assert corpus.problems["replaced_lines"] == f"{path}: row 1"
    assert read(path, "")[0] == read(path, "id,text\n")[0] == []


@given(
    texts=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1)),
    delimiter=st.sampled_from([",", "\t"]),
)
def test_any_table_is_read_as_pandas_wrote_it(tmp_path_factory, texts, delimiter):
    quoted = ['"{}"'.format(text.replace('"', '""')) for text in texts]
    content = "".join(f"{number}{delimiter}{text}\n" for number, text in enumerate(quoted))
    path = tmp_path_factory.mktemp("t") / ("a.csv" if delimiter == "," else "a.tsv")
    documents, _ = read(path, f"id{delimiter}text\n{content}", sentence_per_line=True)
    lines_of = [[line.strip() for line in text.split("\n") if line.strip()] for text in texts]
    assert documents == [document for document in lines_of if document]


@pytest.mark.parametrize("form", ["csv:-", "tsv:-"])
def test_standard_input_is_a_table_if_the_argument_says_so(monkeypatch, form):
    delimiter = "," if form == "csv:-" else "\t"
    content = f"id{delimiter}text\n1{delimiter}One. Two.\n".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert list(Corpus([form])) == [["One.", "Two."]]


# -------------------------------------------------------------------------------- arrays and lists

OBJECTS = [{"id": 1, "text": "One. Two."}, {"text": "Three ], {.\nFour."}, {"text": None}]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz"])
@pytest.mark.parametrize("options", [{}, {"indent": 2}, {"separators": (",", ":")}], ids=repr)
def test_a_json_array_is_read_item_by_item(tmp_path, name, options):
    content = ("\ufeff" + json.dumps(OBJECTS, **options)).encode()
    content = gzip.compress(content) if name.endswith("gz") else content
    documents, corpus = read(tmp_path / name, content)
    assert documents == [["One.", "Two."], ["Three ], {.", "Four."]]
    assert corpus.counts["empty_rows"] == 1


def test_json_lines_may_be_named_json(tmp_path):
    content = "".join(f"{json.dumps(row)}\n" for row in OBJECTS)
    assert read(tmp_path / "a.json", content)[0] == [["One.", "Two."], ["Three ], {.", "Four."]]


def test_an_array_longer_than_what_is_read_at_once(tmp_path):
    texts = [f"{number} " + "é" * (number * 997 % 400_000) for number in range(30)]
    content = json.dumps([{"text": text} for text in texts], ensure_ascii=False)
    documents, _ = read(tmp_path / "a.json", content, sentence_per_line=True)
    assert ["".join(document) for document in documents] == [text.strip() for text in texts]


def test_invalid_utf8_and_lone_surrogates_in_an_array_are_repaired(tmp_path):
    content = b'[{"text": "a \xff b"}, {"text": "c \\ud83d d"}]'
    documents, corpus = read(tmp_path / "a.json", content)
    assert documents == [["a \ufffd b"], ["c \ufffd d"]]
    assert corpus.counts["replaced_lines"] == corpus.counts["surrogate_rows"] == 1
    assert corpus.problems["surrogate_rows"] == f"{tmp_path}/a.json: item 2"


ARRAY_FAULTS = {
    '[{"text": "a"}, 7]': ": item 2 is not a JSON object: '7'",
    '[{"text": "a"} {"text": "b"}]': " is not a JSON array: expected , or ] after item 1",
    '[{"text": "a"}': " is not a JSON array: expected , or ] after item 1",
    '[{"text": "a"}, {"te': ": item 2 is not valid JSON, or is longer than 64 MB",
    "[" + "[" * 200_000: ": item 1 is not valid JSON, or is longer than 64 MB",
    '[{"a": "b"}]': ": item 1 has no field 'text', only 'a'; choose one with `text_field`",
}


@pytest.mark.parametrize(("content", "message"), ARRAY_FAULTS.items(), ids=range(len(ARRAY_FAULTS)))
def test_a_fault_in_an_array_is_named(tmp_path, content, message):
    assert refusal(tmp_path / "a.json", content) == message


def table_bytes(columns):
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def test_a_list_of_texts_is_a_document_of_paragraphs(tmp_path):
    texts = [["He sat. She ran.", "Bye."], [], None, ["G.", None, "H."]]
    expected = [["He sat.", "She ran.", "Bye."], ["G.", "H."]]
    rows = "".join(f"{json.dumps({'text': text})}\n" for text in texts)
    for kind in (pa.list_(pa.string()), pa.large_list(pa.large_string())):
        table = table_bytes({"text": pa.array(texts, kind)})
        for name, content in (("a.jsonl", rows), ("a.parquet", table)):
            documents, corpus = read(tmp_path / name, content)
            assert documents == expected
            assert corpus.counts["empty_rows"] == 2


def test_a_dotted_field_reaches_into_structs(tmp_path):
    texts = [{"body": {"text": "A b."}}, {"body": None}, None, {"body": {"text": None}}]
    rows = "".join(f"{json.dumps({'doc': value})}\n" for value in texts)
    table = table_bytes({"doc": pa.array(texts)})
    for name, content in (("a.jsonl", rows), ("a.parquet", table)):
        documents, corpus = read(tmp_path / name, content, text_field="doc.body.text")
        assert documents == [["A b."]]
        assert corpus.counts["empty_rows"] == 3
    lines_of = refusal(tmp_path / "a.jsonl", '{"doc": {"a": 1}}', text_field="doc.text")
    assert lines_of == ": line 1 has no field 'text', only 'a'; choose one with `text_field`"
    line = refusal(tmp_path / "a.parquet", table_bytes({"doc": ["a"]}), text_field="doc.text")
    assert line == ": column 'doc' is not a struct but string"


def test_a_column_with_a_dot_in_its_name_comes_first(tmp_path):
    row = {"a": {"b": "One."}, "a.b": "Two."}
    assert read(tmp_path / "a.jsonl", json.dumps(row), text_field="a.b")[0] == [["Two."]]


@pytest.mark.parametrize("content", [CSV, CSV.replace(",", "\t"), json.dumps(OBJECTS), "id,body\n"])
def test_text_that_looks_like_rows_is_counted(tmp_path, content):
    assert read(tmp_path / "a.txt", content)[1].counts["row_like_files"] == 1


@pytest.mark.parametrize("content", ["Yes, he said.\nAnd,so,on\n", "[1] A note.\n", "One.\n", ""])
def test_prose_does_not_look_like_rows(tmp_path, content):
    assert read(tmp_path / "a.txt", content)[1].counts["row_like_files"] == 0


# ------------------------------------------------------------------------------------------ folders


def test_files_that_a_folder_search_ignores_are_named_by_kind(tmp_path):
    for name in ("cats.txt", "sub/ca01", "sub/ca02", "ca03", "a.json", "b.json.gz", ".hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("One.\n")
    assert Corpus([str(tmp_path)]).ignored == (
        "ignored 3 files without a known ending, such as ca03 and 2 files with the ending .json, "
        "such as a.json; give them by name or a glob"
    )
    assert Corpus([f"{tmp_path}/*.txt"]).ignored == ""
    (tmp_path / "cats.txt").unlink()
    with pytest.raises(InputError, match=r"no \.txt, .*; it has 3 files without a known ending"):
        Corpus([str(tmp_path)])


# ----------------------------------------------------------------------------- lines of any length


@given(st.binary(max_size=60), st.integers(4, 12))
def test_pieces_of_long_lines_add_up_to_the_text(content, max_bytes):
    stream = io.BufferedReader(io.BytesIO(content))
    pieces = list(read_lines(stream, max_bytes=max_bytes))
    assert b"".join(piece.raw for piece in pieces) == content
    assert all(0 < len(piece.raw) <= max_bytes or not piece.is_cut for piece in pieces)
    numbers = [piece.number for piece in pieces if not piece.is_cut]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One two. Three four. " * 9, ["One two.", "Three four."] * 9),
        ("日本語です。" * 30, ["日本語です。"] * 30),
    ],
)
def test_a_line_of_any_length_gives_the_sentences_of_a_short_one(
    tmp_path, monkeypatch, text, sentences
):
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 50)
    documents, corpus = read(tmp_path / "a.txt", f"{text}\n\nEnd.\n")
    assert documents == [sentences, ["End."]]
    assert corpus.counts["cut_lines"] >= 3


def test_a_line_cut_at_its_end_does_not_end_the_document(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 10)
    text = "abcd efg. \nSo.\n\nEnd.\n"
    assert read(tmp_path / "a.txt", text)[0] == [["abcd efg.", "So."], ["End."]]


def test_strict_refuses_a_line_that_must_be_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 20)
    line = refusal(tmp_path / "a.txt", "One.\n" + "word " * 300_000, strict=True)
    assert line == ": line 2 is longer than 1 MB; repair it, or leave out `strict`"


@pytest.mark.parametrize("piece_bytes", [1, 8, 1 << 20])
def test_documents_do_not_depend_on_the_size_of_pieces(tmp_path, monkeypatch, piece_bytes):
    monkeypatch.setattr("bertpt.corpus.readers.PIECE_BYTES", piece_bytes)
    text = "He sat. She ran.\nBye.\n\n\n\0\n\nG h.\nI j.\nK l.\n"
    expected = [["He sat.", "She ran.", "Bye."], ["G h.", "I j.", "K l."]]
    documents, corpus = read(tmp_path / "a.txt", text)
    assert documents == expected
    parts = [Corpus([str(tmp_path / "a.txt")], shard=f"{i}/2") for i in (1, 2)]
    assert [document for part in parts for document in part] == expected
    assert corpus.num_text_bytes == len(text)


PEAK = """
import resource, sys
from bertpt.corpus.corpus import Corpus
num = sum(len(piece.sentences) for piece in Corpus([sys.argv[1]]).pieces())
print(num, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"a", b"One two three. "], ids=["a word", "sentences"])
def test_one_line_of_a_gigabyte_is_read_in_little_memory(tmp_path, content):
    path = tmp_path / "a.txt.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(1000):
            file.write(content * (1_000_000 // len(content)))
    command = [sys.executable, "-c", PEAK, str(path)]
    printed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    num_sentences, kilobytes = map(int, printed.split())
    assert num_sentences > 10_000
    assert kilobytes * (1 if sys.platform == "darwin" else 1024) < 600e6

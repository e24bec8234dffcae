"""Data sets in folders, which datasets reads as it reads those of the Hub; no network."""

import json
import socket

import datasets
import huggingface_hub
import pyarrow as pa
import pytest
from pyarrow import parquet

from bertpt.corpus.corpus import Corpus
from bertpt.corpus.hub import HubName
from bertpt.errors import InputError


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    def refuse(*_):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def books(tmp_path):
    folder = tmp_path / "books"
    folder.mkdir()
    rows = {
        "train": ["a b\n\nc d", None, "e f", " "],
        "validation": ["held out"],
    }
    for split, texts in rows.items():
        lines = (json.dumps({"id": 3, "text": text}) for text in texts)
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    return folder


def read(*names, **settings):
    return list(Corpus(names, sentence_per_line=True, **settings))


def refusal(name, **settings):
    with pytest.raises(InputError) as error:
        read(name, **settings)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_each_row_is_a_document_and_train_is_the_default(books):
    corpus = Corpus([f"hf:{books}"], sentence_per_line=True)
    for _ in range(2):
        assert list(corpus) == [["a b", "c d"], ["e f"]]
        assert corpus.counts["empty_rows"] == 2
    assert corpus.total_bytes is None
    assert corpus.name == f"hf:{books}"


def test_a_split_and_a_relative_folder_can_be_named(books):
    assert read(f"hf:{books}:validation") == read("hf:./books:validation") == [["held out"]]


def test_a_data_set_that_is_given_twice_is_read_once(books):
    corpus = Corpus([f"hf:{books}", "hf:./books:train", "hf:./books/:validation"])
    assert list(corpus) == [["a b", "c d"], ["e f"], ["held out"]]
    assert corpus.counts["repeated_files"] == 1


def test_parquet_is_read_in_the_order_of_its_rows(tmp_path):
    (tmp_path / "set").mkdir()
    table = pa.table({"body": [f"row {n}" for n in range(500)], "n": range(500)})
    parquet.write_table(table, tmp_path / "set" / "train.parquet", row_group_size=99)
    assert read("hf:./set", text_field="body") == [[f"row {n}"] for n in range(500)]


def test_only_configurations_on_the_card_are_accepted(tmp_path):
    card = "---\nconfigs:\n" + "".join(
        f"- config_name: {name}\n  data_files: {name}.txt\n" for name in ("en", "de")
    )
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "README.md").write_text(card + "---\n")
    (tmp_path / "set" / "en.txt").write_text("one\n")
    (tmp_path / "set" / "de.txt").write_text("eins\n")
    assert read("hf:./set/de", "hf:./set/en:train") == [["eins"], ["one"]]
    for name in ("hf:./set", "hf:./set/fr"):
        line = refusal(name)
        assert line.startswith(f"{name} cannot be read: ")
        assert "'en'" in line
        assert "'de'" in line


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("hf:set", ("set", None, "train")),
        ("hf:set:test", ("set", None, "test")),
        ("hf:user/set", ("user/set", None, "train")),
        ("hf:user/set/20231101.en", ("user/set", "20231101.en", "train")),
        ("hf:user/set/a-b:valid", ("user/set", "a-b", "valid")),
    ],
)
def test_a_hub_name_is_parsed(name, parsed):
    found = HubName.parse(name)
    assert (found.path, found.config, found.split) == parsed


@pytest.mark.parametrize("name", ["hf:", "hf::train", "hf:a/b/c/d", "hf:a b", "hf:set:train[:9]"])
def test_an_invalid_hub_name_is_refused(name):
    assert refusal(name).startswith(f"{name} is not hf:NAME[/CONFIG][:SPLIT]")


@pytest.mark.usefixtures("books")
def test_a_missing_part_of_a_data_set_is_named_with_those_that_exist(tmp_path):
    assert refusal("hf:./nope") == "hf:./nope: no such folder: ./nope"
    assert refusal("hf:./books:test") == (
        "hf:./books:test has no split 'test', only 'train', 'validation'"
    )
    assert refusal("hf:./books", text_field="body") == (
        "hf:./books has no field 'body', only 'id', 'text'; choose one with `text_field`"
    )
    assert refusal("hf:./books", text_field="id") == (
        "hf:./books: row 1: field 'id' is not text but 3"
    )
    (tmp_path / "empty").mkdir()
    assert refusal("hf:./empty").startswith("hf:./empty cannot be read: ")


def test_no_network_is_one_line():
    line = refusal("hf:user/set")
    assert line.startswith("hf:user/set cannot be read: ")
    assert "offline" in line.lower()


def test_a_damaged_file_of_a_data_set_is_one_line(books):
    (books / "train.jsonl").write_text('{"text": "a"}\n{"text": \n')
    assert refusal("hf:./books").startswith("hf:./books cannot be read: ")


def test_strict_names_the_row(books):
    (books / "train.jsonl").write_text('{"text": "a"}\n{"text": "b \\u0000"}\n')
    assert refusal("hf:./books", strict=True) == (
        "hf:./books: row 2 contains NUL characters; repair it, or leave out `strict`"
    )


def test_progress_bars_are_left_as_they_were(books):
    for switch in (datasets.disable_progress_bars, datasets.enable_progress_bars):
        switch()
        before = datasets.are_progress_bars_disabled()
        read(f"hf:{books}")
        assert datasets.are_progress_bars_disabled() is before

"""Safetensors files: the same bytes every time, and no change to them goes unnoticed."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bertpt.config import BertConfig
from bertpt.errors import InputError, OutputError
from bertpt.model.bert import BertForPreTraining
from bertpt.model.hf_files import load_tensors, save_tensors
from bertpt.model.pretrained import from_pretrained, save_pretrained

CONFIG = BertConfig(
    vocab_size=9,
    hidden_size=6,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=5,
    max_position_embeddings=4,
)
QUERY = "bert.encoder.layer.0.attention.self.query.weight"
KEY = "bert.encoder.layer.0.attention.self.key.weight"
WIDEN = "bert.encoder.layer.0.intermediate.dense.weight"


@pytest.fixture(scope="module")
def model():
    generator = torch.Generator().manual_seed(4)
    model = BertForPreTraining(CONFIG)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    return model.eval()


@pytest.fixture(scope="module")
def content(model):
    """The bytes of a file of ours."""
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(model, folder)
        return (Path(folder) / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def altered(model):
    """A folder of ours whose weights a test writes over, again and again."""
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(model, folder)
        yield Path(folder)


@pytest.fixture
def file(content, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    return path


def data_start(content):
    return 8 + int.from_bytes(content[:8], "little")


def header_of(content):
    return json.loads(content[8 : data_start(content)])


def with_header(content, header):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[data_start(content) :]


def loaded_or_refused(folder):
    """The model of a folder, or the message that refuses it."""
    try:
        return from_pretrained(BertForPreTraining, folder)
    except InputError as error:
        return str(error)


def assert_damaged(path):
    with pytest.raises(InputError) as caught:
        load_tensors(path)
    message = str(caught.value)
    assert f"{path} is damaged" in message
    assert "checksum" in message


# ---------------------------------------------------------------------------------- what is written


def test_the_metadata_says_pt_as_transformers_expects(content):
    assert header_of(content)["__metadata__"]["format"] == "pt"


@pytest.mark.slow
def test_the_file_does_not_depend_on_the_process_or_its_hash_seed(tmp_path):
    script = """
import sys, torch
from pathlib import Path
from bertpt.model.hf_files import save_tensors
names = ["b.bias", "a.weight", "é", "c"]
save_tensors(Path(sys.argv[1]), {name: torch.full((7,), float(len(name))) for name in names})
"""
    paths = [tmp_path / seed for seed in ("1", "2")]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(path)],
            env={**os.environ, "PYTHONHASHSEED": path.name},
        )
        for path in paths
    ]
    assert [process.wait() for process in processes] == [0, 0]
    written = {
        name: torch.full((7,), float(len(name))) for name in ("é", "c", "b.bias", "a.weight")
    }
    save_tensors(tmp_path / "here", written)
    assert {path.read_bytes() for path in paths} == {(tmp_path / "here").read_bytes()}


def test_the_order_of_the_tensors_does_not_matter(file, content):
    tensors = load_tensors(file)
    save_tensors(file, dict(reversed(tensors.items())))
    assert file.read_bytes() == content


DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8)


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 9)))
    values = torch.randint(0, 99, shape, generator=generator)
    return values.to(draw(st.sampled_from((*DTYPES, torch.bool))))


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9).filter(
    lambda name: name != "__metadata__"
)


@given(st.dictionaries(names, tensors(), max_size=5))
@hypothesis_settings(deadline=None)
def test_any_tensors_round_trip_and_safetensors_reads_them(stored):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.safetensors"
        save_tensors(path, stored)
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]
        for loaded in (load_tensors(path), safetensors.torch.load_file(path)):
            assert loaded.keys() == stored.keys()
            for name, tensor in stored.items():
                assert loaded[name].dtype == tensor.dtype
                assert torch.equal(loaded[name], tensor)


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(OutputError, match="nowhere"):
        save_tensors(tmp_path / "nowhere" / "model.safetensors", {"a": torch.zeros(3)})


# ---------------------------------------------------------------------------------- what is noticed


@given(data=st.data())
@hypothesis_settings(max_examples=250, deadline=None)
@pytest.mark.parametrize("part", ["length", "header", "data"])
def test_a_byte_that_changed_is_noticed_or_does_not_matter(part, data, model, content, altered):
    start = data_start(content)
    first, last = {"length": (0, 7), "header": (8, start - 1), "data": (start, len(content) - 1)}[
        part
    ]
    position = data.draw(st.integers(first, last))
    value = data.draw(st.integers(0, 255))
    assume(content[position] != value)
    changed = content[:position] + bytes([value]) + content[position + 1 :]
    (altered / "model.safetensors").write_bytes(changed)
    loaded = loaded_or_refused(altered)
    if isinstance(loaded, str):
        assert str(altered) in loaded
    else:
        for name, parameter in loaded.named_parameters():
            assert torch.equal(parameter, model.get_parameter(name)), name


@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_bit_that_flipped_among_the_values_is_named_with_the_file(bit, content, file):
    start = data_start(content)
    for position in (start, start + 1, (start + len(content)) // 2, len(content) - 1):
        changed = bytearray(content)
        changed[position] ^= 1 << bit
        file.write_bytes(changed)
        assert_damaged(file)


@given(data=st.data())
@hypothesis_settings(max_examples=100, deadline=None)
def test_a_file_that_is_too_short_or_too_long_is_refused(data, content, altered):
    path = altered / "model.safetensors"
    length = data.draw(st.integers(0, len(content) - 1))
    more = data.draw(st.binary(min_size=1, max_size=9))
    for changed in (content[:length], content + more):
        path.write_bytes(changed)
        with pytest.raises(InputError) as caught:
            load_tensors(path)
        assert str(path) in str(caught.value)


def test_blocks_that_a_disk_lost_are_noticed(content, file):
    start = data_start(content)
    for first in range(start, len(content) - 64, 64):
        file.write_bytes(content[:first] + bytes(64) + content[first + 64 :])
        assert_damaged(file)


def swap(header, one, other):
    header[one], header[other] = header[other], header[one]


@pytest.mark.parametrize(
    "change",
    [
        lambda header: swap(header, QUERY, KEY),
        lambda header: header.update({QUERY[:-1]: header.pop(QUERY)}),
        lambda header: header[QUERY].update(dtype="I32"),
        lambda header: header[WIDEN].update(shape=[6, 5]),
        lambda header: header[WIDEN].update(shape=[30]),
        lambda header: header["__metadata__"].update(bertpt_sha256="0" * 64),
    ],
    ids=["two swapped", "renamed", "other format", "transposed", "flat", "other checksum"],
)
def test_an_edited_header_is_noticed(change, content, file):
    header = header_of(content)
    assert header[QUERY]["shape"] == header[KEY]["shape"]
    file.write_bytes(with_header(content, header))
    assert load_tensors(file).keys() == header.keys() - {"__metadata__"}
    change(header)
    file.write_bytes(with_header(content, header))
    assert_damaged(file)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.pop(QUERY),
        lambda tensors: tensors.update(extra=torch.zeros(0)),
        lambda tensors: tensors.update({QUERY: tensors[QUERY].double()}),
        lambda tensors: tensors.update({QUERY: tensors[QUERY].T.contiguous()}),
        lambda tensors: tensors.update({QUERY: -tensors[QUERY]}),
        lambda tensors: swap(tensors, QUERY, KEY),
        lambda tensors: tensors.clear(),
    ],
    ids=["one less", "one more", "other format", "transposed", "negated", "swapped", "none"],
)
def test_tensors_that_do_not_match_the_checksum_are_noticed(change, content, file):
    tensors = load_tensors(file)
    metadata = header_of(content)["__metadata__"]
    safetensors.torch.save_file(tensors, file, metadata=metadata)
    assert load_tensors(file).keys() == tensors.keys()
    change(tensors)
    safetensors.torch.save_file(tensors, file, metadata=metadata)
    assert_damaged(file)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_a_file_rewritten_by_others_loads_without_a_checksum(metadata, file):
    tensors = load_tensors(file)
    tensors[QUERY] += 1
    safetensors.torch.save_file(tensors, file, metadata=metadata)
    loaded = load_tensors(file)
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


@given(st.binary(max_size=40))
@hypothesis_settings(deadline=None)
def test_any_invalid_file_is_refused_by_name(content):
    assume(not content.startswith(b"\x02\0\0\0\0\0\0\0{}"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.safetensors"
        path.write_bytes(content)
        with pytest.raises(InputError) as caught:
            load_tensors(path)
        assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.safetensors"):
        load_tensors(tmp_path / "gone.safetensors")


def test_a_folder_in_place_of_a_file_is_named(tmp_path):
    with pytest.raises(InputError) as caught:
        load_tensors(tmp_path)
    assert str(tmp_path) in str(caught.value)

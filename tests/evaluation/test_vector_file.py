"""Files of vectors as numpy and safetensors read them, and what is left when writing fails."""

import resource
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
from safetensors import safe_open

from bertpt.errors import OutputError, SettingError
from bertpt.evaluation.vector_file import vector_file

WIDTH = 7
NUM_ROWS = [0, 1, 9, 10, 11, 12345]  # where a header's digits grow, and far beyond
SUFFIXES = [".npy", ".safetensors"]


def floats(*shape, seed=0):
    """Any bits that a float32 can have, NaN and infinity among them."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 1 << 32, size=shape, dtype=np.uint32).view(np.float32)


def write(path, rows, *, by_token=False, overwrite=False):
    with vector_file(path, width=WIDTH, by_token=by_token, overwrite=overwrite) as file:
        for row in rows:
            file.append(row)


def assert_same_bits(found, expected):
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.fixture
def refused(tmp_path):
    """Asks for a file that must be refused before the block begins; gives the error."""

    def call(path, error, **options):
        entered = False
        with (
            pytest.raises(error) as caught,
            vector_file(path, **{"width": WIDTH, "by_token": False, "overwrite": False, **options}),
        ):
            entered = True
        assert not entered
        assert not [left for left in tmp_path.rglob("*") if ".tmp-" in left.name]
        return str(caught.value)

    return call


# ---------------------------------------------------------------------------------------- contents


@pytest.mark.parametrize("number", NUM_ROWS)
def test_numpy_opens_the_array_that_was_appended(tmp_path, number):
    rows = floats(number, WIDTH)
    write(tmp_path / "v.npy", rows)
    assert_same_bits(np.load(tmp_path / "v.npy", allow_pickle=False), rows)
    mapped = np.load(tmp_path / "v.npy", allow_pickle=False, mmap_mode="r")
    assert_same_bits(mapped, rows)
    size = (tmp_path / "v.npy").stat().st_size
    assert (size - 4 * number * WIDTH) % 64 == 0


@pytest.mark.parametrize("number", NUM_ROWS)
def test_safetensors_opens_the_tensor_that_was_appended(tmp_path, number):
    rows = floats(number, WIDTH)
    path = tmp_path / "v.safetensors"
    write(path, rows)
    loaded = safetensors.torch.load_file(path)
    assert list(loaded) == ["embeddings"]
    assert_same_bits(loaded["embeddings"].numpy(), rows)
    with safe_open(path, framework="np") as file:
        assert list(file.keys()) == ["embeddings"]
        assert_same_bits(file.get_tensor("embeddings"), rows)
        assert file.get_slice("embeddings").get_shape() == [number, WIDTH]


@pytest.mark.parametrize("number", NUM_ROWS)
def test_token_vectors_follow_each_other_with_a_count_for_each_text(tmp_path, number):
    lengths = np.random.default_rng(number).integers(2, 5, size=number)
    rows = floats(lengths.sum(), WIDTH, seed=1)
    texts = np.split(rows, lengths.cumsum())[:-1]
    path = tmp_path / "v.safetensors"
    write(path, texts, by_token=True)
    loaded = safetensors.torch.load_file(path)
    assert sorted(loaded) == ["embeddings", "lengths"]
    assert_same_bits(loaded["embeddings"].numpy(), rows)
    assert loaded["lengths"].numpy().dtype == np.int32
    assert loaded["lengths"].tolist() == lengths.tolist()
    with safe_open(path, framework="np") as file:
        assert sorted(file.keys()) == ["embeddings", "lengths"]
        assert file.get_tensor("lengths").tolist() == lengths.tolist()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_vector_may_have_any_memory_layout(tmp_path, suffix):
    columns = floats(WIDTH, 3).T  # not contiguous
    path = tmp_path / f"v{suffix}"
    write(path, [columns[0], columns[1].astype(">f4"), columns[2]])
    reads = {
        ".npy": np.load,
        ".safetensors": lambda p: safetensors.numpy.load_file(p)["embeddings"],
    }
    assert_same_bits(reads[suffix](path), np.ascontiguousarray(columns))


def test_tokens_of_a_padded_batch_are_written_in_their_order(tmp_path):
    batch = np.asfortranarray(floats(5, WIDTH))[:3]
    path = tmp_path / "v.safetensors"
    write(path, [batch], by_token=True)
    loaded = safetensors.numpy.load_file(path)
    assert_same_bits(loaded["embeddings"], np.ascontiguousarray(batch))
    assert loaded["lengths"].tolist() == [3]


# ----------------------------------------------------------------------------------- all or nothing


def test_the_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "v.npy"
    with vector_file(path, width=WIDTH, by_token=False, overwrite=False) as file:
        file.append(floats(WIDTH))
        assert not path.exists()
    assert [left.name for left in tmp_path.iterdir()] == ["v.npy"]


def fail_while_writing(path, error):
    with vector_file(path, width=WIDTH, by_token=False, overwrite=True) as file:
        file.append(floats(WIDTH, seed=1))
        raise error


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_block_that_raises_leaves_nothing(tmp_path, suffix, error):
    with pytest.raises(error):
        fail_while_writing(tmp_path / f"v{suffix}", error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_block_that_raises_leaves_an_old_file_as_it_was(tmp_path, suffix):
    path = tmp_path / f"v{suffix}"
    write(path, floats(3, WIDTH))
    before = path.read_bytes()
    with pytest.raises(RuntimeError):
        fail_while_writing(path, RuntimeError)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("exists", [False, True])
def test_a_full_disk_names_the_file_and_changes_nothing(tmp_path, suffix, exists):
    """A limit on file sizes imitates a full disk."""
    path = tmp_path / f"v{suffix}"
    if exists:
        write(path, floats(3, WIDTH))
    before = [(left, left.read_bytes()) for left in tmp_path.iterdir()]
    program = f"""
import numpy as np
from pathlib import Path
from bertpt.evaluation.vector_file import vector_file
with vector_file(Path("{path.name}"), width=100, by_token=False, overwrite=True) as file:
    for _ in range(1000):
        file.append(np.ones(100, np.float32))
"""
    result = subprocess.run(
        [sys.executable, "-B", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
    )
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert "too large" in last
    assert path.name in last
    assert ".tmp-" not in last
    assert [(left, left.read_bytes()) for left in tmp_path.iterdir()] == before


# ---------------------------------------------------------------------------------------- overwrite


@pytest.mark.parametrize(
    ("suffix", "by_token"), [(".npy", False), (".safetensors", False), (".safetensors", True)]
)
def test_overwrite_replaces_vectors(tmp_path, suffix, by_token):
    path, expected = tmp_path / f"v{suffix}", tmp_path / f"expected{suffix}"
    write(path, floats(9, WIDTH))
    new = floats(2, 1, WIDTH, seed=1)
    write(path, new, by_token=by_token, overwrite=True)
    write(expected, new, by_token=by_token)
    assert path.read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_existing_file_is_refused(tmp_path, refused, suffix):
    path = tmp_path / f"v{suffix}"
    write(path, floats(3, WIDTH))
    before = path.read_bytes()
    message = refused(path, OutputError)
    assert str(path) in message
    assert "`overwrite`" in message
    assert path.read_bytes() == before


def save_letter(path):
    path.write_text("dear")


def save_nothing(path):
    path.touch()


def save_counts(path):
    with path.open("wb") as file:
        np.save(file, np.arange(99))


def save_doubles(path):
    with path.open("wb") as file:
        np.save(file, np.ones((3, WIDTH)))


def save_weights(path):
    safetensors.numpy.save_file({"embeddings": np.ones((3, WIDTH), np.float32)}, path)


@pytest.mark.parametrize(
    ("save", "suffix"),
    [
        (save_letter, ".npy"),
        (save_letter, ".safetensors"),
        (save_nothing, ".npy"),
        (save_weights, ".safetensors"),
        (save_counts, ".npy"),
        (save_doubles, ".npy"),
    ],
)
def test_overwrite_refuses_files_of_others(tmp_path, refused, save, suffix):
    path = tmp_path / f"theirs{suffix}"
    save(path)
    before = path.read_bytes()
    assert str(path) in refused(path, OutputError, overwrite=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_folder_at_the_path_is_refused(tmp_path, refused, overwrite, is_empty):
    path = tmp_path / "folder.npy"
    path.mkdir()
    if not is_empty:
        write(path / "inner.npy", floats(3, WIDTH))
    assert str(path) in refused(path, OutputError, overwrite=overwrite)
    assert path.is_dir()


# ------------------------------------------------------------------------------------------- places


def test_parent_folders_are_created(tmp_path):
    path = tmp_path / "some" / "where" / "v.npy"
    write(path, floats(2, WIDTH))
    assert_same_bits(np.load(path), floats(2, WIDTH))


def test_a_file_among_the_parent_folders_is_named(tmp_path, refused):
    (tmp_path / "letter").write_text("dear")
    message = refused(tmp_path / "letter" / "v.npy", (OutputError, OSError))
    assert str(tmp_path / "letter") in message
    assert (tmp_path / "letter").read_text() == "dear"


@pytest.mark.parametrize("name", ["v.txt", "v", "v.npz", "v.npy.gz", ".npy", "v.pt"])
def test_another_ending_is_refused(tmp_path, refused, name):
    message = refused(tmp_path / name, SettingError)
    assert "`out`" in message
    assert name in message
    assert list(tmp_path.iterdir()) == []


def test_vectors_of_tokens_do_not_go_into_an_npy_file(tmp_path, refused):
    message = refused(tmp_path / "v.npy", SettingError, by_token=True)
    assert "v.npy" in message
    assert ".safetensors" in message
    assert list(tmp_path.iterdir()) == []

"""Several data folders read as one: every row of each, and a word where they do not go together."""

import datasets
import numpy as np
import pytest

from bertpt.build.build import build_data
from bertpt.config import BuildConfig, TokenizerConfig
from bertpt.data.dataset import Dataset
from bertpt.data.hf_view import transformers_view
from bertpt.errors import InputError, MismatchError

VOCAB = [*("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), *"abcdefgh", "."]
SPLITS = ("train", "valid")


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Builds a folder of documents that no other has, unless the same letter is given."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCAB))
    (folder / "other.txt").write_text("".join(f"{token}\n" for token in [*VOCAB, "i"]))

    def build(name, letter="a", *, vocab="vocab.txt", **settings):
        documents = ["\n".join(f"{letter} {b} {c} ." for b in "abcd") for c in "abcdefgh"]
        text = folder / f"{name}.txt"
        text.write_text("\n\n".join(documents))
        build_data(
            [str(text)],
            folder / name,
            tokenizer_path=folder / vocab,
            config=BuildConfig(
                **{"sentence_per_line": True, "seq_len": 12, "valid_fraction": 0.3, **settings}
            ),
            tokenizer_config=TokenizerConfig(),
        )
        return folder / name

    return build


@pytest.fixture(scope="module")
def paths(build):
    """Three folders, one of them without held-out documents and with longer sequences."""
    return [
        build("one"),
        build("two", "b", valid_fraction=0, seq_len=20, language="de"),
        build("three", "c", seed=1),
    ]


def rows_of(data, split):
    examples = data.examples(split)
    return [[np.array(x).tolist() for x in row] for row in examples.take(range(len(examples)))]


@pytest.mark.parametrize("split", SPLITS)
def test_rows_follow_the_order_of_the_folders(paths, split):
    expected = [row for path in paths for row in rows_of(Dataset(path), split)]
    joined = Dataset(paths)
    assert rows_of(joined, split) == expected
    assert len(joined.examples(split)) == len(expected) > 0
    backwards = [joined.examples(split)[row] for row in reversed(range(len(expected)))]
    assert [row.input_ids.tolist() for row in backwards] == [row[0] for row in expected[::-1]]


def test_nothing_is_copied(paths):
    stored = Dataset(paths).examples("train").stored
    files = {file["filename"] for file in stored.cache_files}
    assert files == {str(path / "train" / "data-00000.arrow") for path in paths}


def test_figures_are_the_sums_and_the_longest(paths):
    joined, folders = Dataset(paths), [Dataset(path) for path in paths]
    for name in ("documents", "sentences", "tokens", "examples"):
        for split in SPLITS:
            expected = sum(folder.manifest[name][split] for folder in folders)
            assert joined.manifest[name][split] == expected
    assert joined.token_counts.tolist() == sum(f.token_counts for f in folders).tolist()
    assert joined.settings.seq_len == joined.manifest["settings"]["seq_len"] == 20
    assert joined.manifest["languages"] == ["de", "en"]
    assert joined.tokenizer.vocab == VOCAB
    assert joined.masking.masked_lm_prob == 0.15


def test_folders_without_held_out_documents_have_none_combined(build):
    both = [build(f"train-only-{letter}", letter, valid_fraction=0) for letter in "de"]
    assert len(Dataset(both).examples("valid")) == 0


def test_one_path_and_a_list_of_one_are_the_same(paths):
    one, listed = Dataset(paths[0]), Dataset(paths[:1])
    assert one.record == listed.record
    assert one.manifest == listed.manifest


def test_the_record_has_every_path_in_order(paths):
    data = Dataset(paths)
    assert data.record == {"paths": [str(path) for path in paths], "sha256": data.fingerprint}


def test_the_fingerprint_depends_on_the_folders_and_their_order(paths):
    one, two, three = paths
    fingerprints = [
        Dataset(given).fingerprint
        for given in ([one, two], [two, one], [one, three], [one, two, three], one)
    ]
    assert len(set(fingerprints)) == len(fingerprints)


def test_messages_name_no_more_than_three_folders(paths, build):
    assert Dataset(paths).name == ", ".join(map(str, paths))
    assert Dataset([*paths, build("four", "f")]).name.endswith(f"{paths[2]}, ...")


def test_the_hugging_face_view_has_the_rows_of_all_folders(paths):
    view = transformers_view(Dataset(paths))
    assert len(view) == sum(len(Dataset(path).examples("train")) for path in paths)
    assert {len(row["input_ids"]) for row in view} == {20}


def test_datasets_can_join_the_shards_as_they_are(paths):
    """Which is what Spark or Ray would do with them."""
    joined = datasets.concatenate_datasets(
        [datasets.load_from_disk(str(path / "train")) for path in paths]
    )
    assert joined["input_ids"][:] == [row[0] for row in rows_of(Dataset(paths), "train")]


# ----------------------------------------------------------------- what does not go together


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("objective", ("nsp", "sop")),
        ("masked_lm_prob", (0.15, 0.2)),
        ("max_predictions_per_seq", (None, 3)),
        ("whole_word", (False, True)),
        ("span", (False, True)),
    ],
)
def test_folders_with_different_numbers_of_predictions_are_refused(build, paths, setting, values):
    other = build(f"other-{setting}", "g", **{setting: values[1]})
    with pytest.raises(MismatchError) as error:
        Dataset([*paths, other])
    assert str(error.value) == (
        f"{paths[0]} was built with {setting} {values[0]}, {other} with {values[1]}; build both "
        "with the same settings, or train on one of them"
    )


def test_folders_with_different_vocabularies_are_refused(build, paths):
    other = build("other-vocabulary", vocab="other.txt")
    with pytest.raises(MismatchError) as error:
        Dataset([paths[0], other])
    ours, theirs = (Dataset(p).manifest["tokenizer_sha256"][:12] for p in (paths[0], other))
    assert str(error.value) == (
        f"{paths[0]} was built with tokenizer {ours}, {other} with {theirs}; build both with the "
        f"same `tokenizer`, such as {paths[0]}/tokenizer"
    )


@pytest.mark.parametrize("spelling", ["one", "two/../one", "link"])
def test_a_folder_given_twice_is_refused(paths, tmp_path, spelling):
    again = tmp_path / "link" if spelling == "link" else paths[0].parent / spelling
    if spelling == "link":
        again.symlink_to(paths[0])
    with pytest.raises(InputError) as error:
        Dataset([*paths, again])
    fingerprint = Dataset(paths[0]).fingerprint[:12]
    assert str(error.value) == (
        f"{paths[0]} and {again} contain the same data (manifest {fingerprint}); give it once"
    )


def test_an_empty_list_of_folders_is_refused():
    with pytest.raises(InputError, match="no data folder was given"):
        Dataset([])


def test_a_damaged_folder_is_found_among_the_others(build, paths):
    damaged = build("damaged", "h")
    shard = damaged / "train" / "data-00000.arrow"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(MismatchError, match=r"damaged/train/data-00000\.arrow has SHA-256"):
        Dataset([*paths, damaged]).examples("train")

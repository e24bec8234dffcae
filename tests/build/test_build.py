import hashlib
import io
import json
import sys
from collections import Counter

import datasets
import numpy as np
import pytest

from bertpt.build.build import build_data
from bertpt.config import BuildConfig, TokenizerConfig
from bertpt.data.dataset import Dataset
from bertpt.errors import InputError, OutputError, SettingError
from bertpt.tokenizer.tokenizer import load_tokenizer

VOCAB = [*("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), *"abcdefgh", "."]
TWO = "a b c .\nd e f .\ng h a .\n\nb d f .\nc e g .\nh h a .\n"
CLS, SEP = 2, 3


@pytest.fixture
def make(tmp_path):
    """Build a DATA folder from text with the toy vocabulary."""
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCAB))

    def make(text, name="data", *, learn=None, overwrite=False, **settings):
        path = tmp_path / f"{name}.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        build_data(
            [str(path)],
            tmp_path / name,
            tokenizer_path=None if learn else tmp_path / "vocab.txt",
            config=BuildConfig(**{"sentence_per_line": True, **settings}),
            tokenizer_config=learn or TokenizerConfig(),
            overwrite=overwrite,
        )
        return Dataset(tmp_path / name)

    return make


def rows(data, split="train"):
    examples = data.examples(split)
    return examples.take(range(len(examples)))


def spell(ids):
    return " ".join(VOCAB[i] for i in ids)


def digest(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }


# -------------------------------------------------------------------------------- the examples


def test_an_example_is_cls_a_sep_b_sep_of_complete_sentences(make):
    sentences = {line for line in TWO.split("\n") if line}
    for example in rows(make(TWO, dupe_factor=20)):
        ids, b_start = example.input_ids, example.b_start
        assert ids[0] == CLS
        assert ids[-1] == SEP
        assert ids[b_start - 1] == SEP
        assert Counter(ids.tolist())[SEP] == 2
        for segment in (ids[1 : b_start - 1], ids[b_start:-1]):
            assert {f"{s.strip()} ." for s in spell(segment).split(".") if s} <= sentences


def test_b_follows_a_or_comes_from_another_document_as_labelled(make):
    documents = TWO.replace("\n\n", "|").replace("\n", " ").split("|")
    labels = Counter()
    for example in rows(make(TWO, dupe_factor=100)):
        a = spell(example.input_ids[1 : example.b_start - 1])
        b = spell(example.input_ids[example.b_start : -1])
        follows = any(f"{a} {b}" in document for document in documents)
        assert follows == (example.next_sentence_label == 0)
        labels[example.next_sentence_label] += 1
    assert labels[1] / labels.total() == pytest.approx(0.5, abs=0.08)


def test_two_files_are_two_documents(tmp_path, make):
    make(TWO)
    for name, text in (("1.txt", "a b\nc d\n"), ("2.txt", "e f\ng h\n")):
        (tmp_path / name).write_text(text)
    manifest = build_data(
        [str(tmp_path / "1.txt"), str(tmp_path / "2.txt")],
        tmp_path / "both",
        tokenizer_path=tmp_path / "vocab.txt",
        config=BuildConfig(sentence_per_line=True, dupe_factor=50),
        tokenizer_config=TokenizerConfig(),
    )
    assert manifest["documents"]["train"] == 2
    for example in rows(Dataset(tmp_path / "both")):
        if example.next_sentence_label == 0:
            pair = spell(example.input_ids)
            assert pair in ("[CLS] a b [SEP] c d [SEP]", "[CLS] e f [SEP] g h [SEP]")


def test_no_example_is_longer_than_seq_len_or_has_an_empty_segment(make):
    text = f"{'a ' * 100}.\nb c .\n\nd e .\n{'f ' * 100}.\n\ng h .\na b .\n"
    lengths = []
    for example in rows(make(text, seq_len=16, dupe_factor=50)):
        lengths.append(len(example.input_ids))
        assert 2 < example.b_start < len(example.input_ids) - 1
    assert max(lengths) == 16


def test_masks_are_never_on_cls_or_sep_and_input_ids_are_uncorrupted(make):
    data = make(TWO, dupe_factor=300)
    seen = Counter()
    for example in rows(data):
        positions = example.masked_positions
        assert len(positions) == max(1, round(0.15 * len(example.input_ids)))
        assert (np.diff(positions) > 0).all()
        assert (example.input_ids[positions] > SEP).all()
        assert 4 not in example.input_ids, "what is stored is uncorrupted"
        assert np.isin(example.masked_input_ids, [4, *range(5, 14)]).all()
        seen.update(example.masked_input_ids.tolist())
    assert seen[4] / seen.total() == pytest.approx(0.8, abs=0.03)


def test_special_tokens_in_the_text_are_text(make):
    text = "a [SEP] b [MASK] c .\n[CLS] d [PAD] e .\n\nf [UNK] g .\nh a .\n"
    for example in rows(make(text, dupe_factor=20)):
        counts = Counter(example.input_ids.tolist())
        assert (counts[CLS], counts[SEP], counts[0], counts[4]) == (1, 2, 0, 0)


def test_each_pass_has_other_pairs_and_masks(make):
    one, five = make(TWO, "one"), make(TWO, "five", dupe_factor=5)
    found = [(spell(e.input_ids), tuple(e.masked_positions)) for e in rows(five)]
    first = [(spell(e.input_ids), tuple(e.masked_positions)) for e in rows(one)]
    assert found[: len(first)] == first, "a pass does not depend on how many there are"
    assert len(set(found)) > 2 * len(first)


def test_wide_vocabularies_keep_their_ids(tmp_path):
    words = [f"w{i}" for i in range(70_000)]
    (tmp_path / "vocab.txt").write_text("".join(f"{t}\n" for t in [*VOCAB[:5], *words]))
    text = tmp_path / "text.txt"
    text.write_text(f"{'w65536 ' * 300}\nw69999 w65531\n\nw40000 w2\nw32768 w3\n")
    build_data(
        [str(text)],
        tmp_path / "data",
        tokenizer_path=tmp_path / "vocab.txt",
        config=BuildConfig(seq_len=300, dupe_factor=20),
        tokenizer_config=TokenizerConfig(),
    )
    data = Dataset(tmp_path / "data")
    found = set(np.concatenate([e.input_ids for e in rows(data)]).tolist())
    assert {65_541, 70_004, 65_536, 40_005, 32_773} <= found
    assert max(int(e.masked_positions.max()) for e in rows(data)) > 255
    assert data.manifest["shards"][0]["examples"] == len(rows(data))


# ------------------------------------------------------------------------------- held-out part


def test_no_sentence_of_a_held_out_document_is_trained_on(make):
    letters = [f"{a} {b} {c} .\n" for a in "abcdefgh" for b in "abcdefgh" for c in "abcdefgh"]
    text = "\n".join("".join(letters[i : i + 8]) for i in range(0, 400, 8))
    data = make(text, valid_fraction=0.3, dupe_factor=3)
    sentences = {
        split: {
            sentence
            for e in rows(data, split)
            for segment in (e.input_ids[1 : e.b_start - 1], e.input_ids[e.b_start : -1])
            for sentence in spell(segment).split(" . ")
        }
        for split in ("train", "valid")
    }
    # Of every document all sentences turn up: 35 x 8 and 15 x 8 of them.
    assert data.manifest["documents"] == {"train": 35, "valid": 15}
    trimmed = {split: {s.removesuffix(" .") for s in found} for split, found in sentences.items()}
    assert {split: len(found) for split, found in trimmed.items()} == {"train": 280, "valid": 120}
    assert not trimmed["train"] & trimmed["valid"]


# --------------------------------------------------------------------------------- the folder


def test_datasets_opens_the_folder(make):
    data = make(TWO * 4)
    names = sorted(path.name for path in data.paths[0].iterdir())
    assert names == ["manifest.json", "token_counts.npy", "tokenizer", "train", "valid"]
    for split in ("train", "valid"):
        opened = datasets.load_from_disk(str(data.paths[0] / split))
        assert len(opened) == data.manifest["examples"][split] > 0
        assert opened.column_names == [
            *("input_ids", "b_start", "next_sentence_label", "masked_positions"),
            "masked_input_ids",
        ]
        assert opened.features["input_ids"].feature.dtype == "uint16"
        assert opened[0]["input_ids"] == data.examples(split)[0].input_ids.tolist()


def test_the_counts_of_the_manifest_are_those_of_the_examples(make):
    data = make("\n".join([TWO] * 10), dupe_factor=2)
    manifest = data.manifest
    assert sum(manifest["documents"].values()) == 20
    assert sum(manifest["sentences"].values()) == 60
    assert sum(manifest["tokens"].values()) == 20 * 12
    for split in ("train", "valid"):
        examples = rows(data, split)
        labels = Counter(e.next_sentence_label for e in examples)
        assert manifest["examples"][split] == len(examples)
        assert manifest["label_counts"][split] == {"is_next": labels[0], "random": labels[1]}
        assert manifest["example_tokens"][split] == sum(len(e.input_ids) for e in examples)
        assert manifest["masked_tokens"][split] == sum(len(e.masked_positions) for e in examples)
    assert manifest["tokenizer_sha256"] == load_tokenizer(data.paths[0] / "tokenizer").fingerprint
    assert manifest["settings"] == BuildConfig(sentence_per_line=True, dupe_factor=2).to_dict()


def test_token_counts_are_those_of_the_training_documents(make):
    data = make(TWO, valid_fraction=0)
    counts = Counter(TWO.split())
    assert data.token_counts.tolist() == [0] * 5 + [counts[token] for token in VOCAB[5:]]


def test_the_same_build_gives_the_same_bytes_and_another_seed_others(make):
    first, second, other = make(TWO * 5, "x"), make(TWO * 5, "y"), make(TWO * 5, "z", seed=1)
    assert digest(first.paths[0]) == digest(second.paths[0])
    assert digest(first.paths[0]) != digest(other.paths[0])


def test_learning_the_vocabulary_reads_a_pipe_once(tmp_path, monkeypatch):
    text = "the cat sat . the dog ran .\nit was late .\n\nthe end . a cat .\nit ran .\n"
    (tmp_path / "text.txt").write_text(text)
    learn = TokenizerConfig(vocab_size=60)
    for name in ("-", str(tmp_path / "text.txt")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        build_data(
            [name],
            tmp_path / f"data{name == '-'}",
            tokenizer_path=None,
            config=BuildConfig(),
            tokenizer_config=learn,
        )
    assert digest(tmp_path / "dataTrue") == digest(tmp_path / "dataFalse")


def test_learned_and_given_vocabulary_give_the_same_examples(tmp_path, make):
    learned = make(TWO, "learned", learn=TokenizerConfig(vocab_size=60, min_frequency=1))
    (tmp_path / "vocab.txt").write_bytes((learned.paths[0] / "tokenizer/vocab.txt").read_bytes())
    given = make(TWO, "given")
    assert digest(learned.paths[0]) == digest(given.paths[0])


# ------------------------------------------------------------------------- odd and bad corpora


def test_lines_that_clean_to_nothing_are_left_out_and_counted(make):
    data = make("a b .\n\u200d\nc d .\n\n\u200b\n\u00ad\n\ne f .\ng h .\n", dupe_factor=100)
    assert data.manifest["documents"]["train"] == 2
    assert data.manifest["empty_sentences"] == 3
    assert any("3 sentences were empty" in warning for warning in data.manifest["warnings"])
    assert all(e.b_start - 1 > 1 and e.b_start < len(e.input_ids) - 1 for e in rows(data))


def test_nul_characters_are_deleted_and_counted(make):
    data = make(b"a\0b c .\nd e .\n\nf \0 g .\nh a .\n")
    assert data.manifest["sentences"]["train"] == 4
    assert data.manifest["nul_lines"] == 2


def test_documents_of_one_sentence_give_a_warning_and_random_pairs_only(make):
    data = make("a b .\n\nc d .\n\ne f .\n")
    assert data.manifest["label_counts"]["train"] == {"is_next": 0, "random": 3}
    assert any(w.startswith("3 of 3 documents have one") for w in data.manifest["warnings"])


@pytest.mark.parametrize("text", ["", "\n \n\t\n", "\u200b\n"])
def test_a_corpus_without_text_leaves_nothing_behind(tmp_path, make, text):
    with pytest.raises(InputError, match=r"data\.txt: contains no text"):
        make(text)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.txt", "vocab.txt"]


def test_a_single_document_is_refused(tmp_path, make):
    with pytest.raises(InputError, match="only one document"):
        make("a b c .\nd e f .\ng h a .\n")
    assert not (tmp_path / "data").exists()


def test_a_failed_rebuild_leaves_the_old_data_untouched(make):
    before = digest(make(TWO).paths[0])
    with pytest.raises(InputError):
        make("", overwrite=True)
    # The folder is read again, now with another text next to it.
    with pytest.raises(OutputError, match="exists"):
        make(TWO)
    assert digest(make(TWO, overwrite=True).paths[0]) == before


def test_a_changed_folder_is_refused(make):
    data = make(TWO)
    vocab = data.paths[0] / "tokenizer/tokenizer.json"
    vocab.write_text(vocab.read_text().replace('"a": 5', '"a": 6').replace('"b": 6', '"b": 5'))
    with pytest.raises(ValueError, match="damaged or was changed"):
        _ = Dataset(data.paths[0]).tokenizer
    (data.paths[0] / "manifest.json").write_text(
        json.dumps({**data.manifest, "examples": {"train": 1, "valid": 0}})
    )
    with pytest.raises(InputError, match="its manifest says 1"):
        Dataset(data.paths[0]).examples("train")


def test_googles_sample_text_gives_sound_examples(shared, tmp_path):
    vocab = shared / "vocab/bert-base-uncased.txt"
    manifest = build_data(
        [str(shared / "corpora/google_sample_text.txt")],
        tmp_path / "data",
        tokenizer_path=vocab,
        config=BuildConfig(sentence_per_line=True, dupe_factor=10, max_predictions_per_seq=20),
        tokenizer_config=TokenizerConfig(),
    )
    oracle = json.loads((shared / "oracle/google_sample_instances.json").read_text())
    google = oracle["cases"]["dupe_factor=10,whole_word=false"]
    assert manifest["documents"]["train"] == 3
    # Google's drops no text either, so the tokens an example holds are about as many.
    ours = manifest["example_tokens"]["train"] / manifest["examples"]["train"]
    assert ours == pytest.approx(google["tokens"] / google["instances"], rel=0.1)
    share = manifest["masked_tokens"]["train"] / manifest["example_tokens"]["train"]
    assert share == pytest.approx(google["masked"] / google["tokens"], abs=0.01)


# ------------------------------------------------------------------------------ parts of a corpus


def in_documents(num_documents):
    """Distinct documents."""
    letters = "abcdefgh"
    return [
        "\n".join(f"{letters[i % 8]} {letters[j]} {letters[i // 8]} ." for j in range(6))
        for i in range(num_documents)
    ]


def without_settings(data):
    """The manifest without settings, and the digests."""
    kept = {name: data.manifest[name] for name in data.manifest.keys() - {"settings", "inputs"}}
    return kept, digest(data.paths[0])


@pytest.mark.parametrize("objective", ["nsp", "sop", "mlm"])
def test_part_1_of_1_is_the_full_corpus(make, objective):
    text = "\n\n".join(in_documents(20))
    settings = {"objective": objective, "dupe_factor": 2, "seq_len": 24}
    full = make(text, "full", **settings)
    part = make(text, "part", shard="1/1", **settings)
    assert without_settings(part) == without_settings(full)
    assert (full.settings.shard, part.settings.shard) == (None, "1/1")


def test_the_parts_have_all_tokens_of_the_corpus(make):
    text = "\n\n".join(in_documents(23))
    full = make(text, "full", valid_fraction=0)
    parts = [make(text, f"part-{i}", valid_fraction=0, shard=f"{i}/3") for i in (1, 2, 3)]
    assert [part.manifest["documents"]["train"] for part in parts] == [8, 8, 7]
    counts = sum(part.token_counts for part in parts)
    assert counts.tolist() == full.token_counts.tolist()


def test_parts_of_equal_text_have_different_pairs(make):
    text = "\n\n".join(document for document in in_documents(20) for _ in range(2))
    parts = [make(text, f"part-{i}", shard=f"{i}/2", valid_fraction=0) for i in (1, 2)]
    assert parts[0].token_counts.tolist() == parts[1].token_counts.tolist()
    pairs = [[spell(row.input_ids) for row in rows(part)] for part in parts]
    assert pairs[0] != pairs[1]


def test_a_part_with_too_few_documents_is_refused(make):
    with pytest.raises(InputError, match=r"no document in part 3/3; make fewer parts$"):
        make(TWO, shard="3/3")
    with pytest.raises(InputError, match=r"only one document in part 2/2, .*make fewer parts, "):
        make(TWO, "one", shard="2/2")


def test_a_part_needs_a_tokenizer_before_anything_is_read(tmp_path):
    with pytest.raises(SettingError, match=r"^`shard` 1/2 needs `tokenizer`, "):
        build_data(
            ["missing.txt"], tmp_path / "out", tokenizer_path=None, config=BuildConfig(shard="1/2")
        )

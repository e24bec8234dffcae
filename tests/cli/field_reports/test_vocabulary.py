"""Vocabulary and tokens: faults that users of other pretraining tools met, and the right value."""

import json

import pytest
from helpers import TINY


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def model_of(done, tmp_path):
    """The vocabulary and the config of a model that is trained on some data for a step."""

    def train(folder):
        run = tmp_path / "run"
        done("pretrain", folder, "--out", run, *TINY, "--steps", 1, "--batch-size", 2, "--quiet")
        config = json.loads((run / "model/config.json").read_text())
        return (run / "model/vocab.txt").read_bytes(), config

    return train


# --------------------------------------------------------------------------------------- given ones


def test_entries_that_are_separators_keep_their_rows_from_the_file_to_the_model(
    build, model_of, two
):
    """U+2028 on a line of its own moved every later id, and saving lost a row.

    (huggingface/transformers#860)
    """
    odd = ["\u2028", "\x85", "\u3000"]
    found = build(two, words=["a", *odd, *"bcdefgh."])
    given = "".join(
        f"{word}\n" for word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", *odd)
    )
    given += "".join(f"{word}\n" for word in "bcdefgh.")
    assert found.vocab.index("b") == 9
    assert len(found.vocab) == found.manifest["vocab_size"] == 17
    saved, config = model_of(found.folder)
    assert (found.folder / "tokenizer/vocab.txt").read_bytes() == saved == given.encode()
    assert config["vocab_size"] == 17


def test_symbols_and_emoji_become_unknown_tokens_and_are_not_dropped(build):
    """Signs and emoji vanished from the text, or took the line with them.

    (dotnet/machinelearning#7725, google-research/bert#1158)
    """
    family = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
    text = f"ab\U0001f600 c\n$ + = < > ~ a\n\n{family} d\ne f\n"
    examples = list(build(text, "--dupe-factor", 30).examples())
    symbols = " ".join(["[UNK]"] * 6)
    assert {e.a for e in examples} | {e.b for e in examples} == {
        *("[UNK] c", f"{symbols} a", "[UNK] d", "e f")
    }
    assert {(e.a, e.b) for e in examples if e.is_next} == {
        ("[UNK] c", f"{symbols} a"),
        ("[UNK] d", "e f"),
    }


def test_special_tokens_spelled_in_the_text_are_plain_text(build):
    """ "[SEP]" in a text became a separator, and "[PAD]" hid the rest of it from attention.

    (huggingface/tokenizers#722, huggingface/transformers#26468)
    """
    text = "a [SEP] b [MASK] c .\n[CLS] d [PAD] e .\n\nf [UNK] g .\nh a .\n"
    words = [*"abcdefgh.", "[", "]", "sep", "mask", "cls", "pad", "unk"]
    found = build(text, "--dupe-factor", 20, words=words)
    for example in found.examples():
        ends = [0, 1 + len(example.a.split()), len(example.tokens) - 1]
        special = [i for i, token in enumerate(example.tokens) if token in found.vocab[:5]]
        assert special == ends
        assert [example.tokens[i] for i in ends] == ["[CLS]", "[SEP]", "[SEP]"]
        assert set(example.seen) <= {"[MASK]", *words}
    assert {segment for e in found.examples() for segment in (e.a, e.b)} == {
        *("a [ sep ] b [ mask ] c .", "[ cls ] d [ pad ] e .", "f [ unk ] g .", "h a .")
    }


# ------------------------------------------------------------------------------------- learned ones


def test_the_order_of_the_files_does_not_change_a_vocabulary(done, tmp_path):
    """The same text gave other ids the next time, so that no checkpoint fitted.

    (huggingface/tokenizers#1794)
    """
    # every merge is a tie
    for name, text in {"1": "Wel come to the lib\n", "2": "Tok en izers libr ary .\n"}.items():
        (tmp_path / name).write_text(text)
    found = []
    for number, order in enumerate(["12", "21", "12"]):
        out = tmp_path / f"out-{number}"
        inputs = [tmp_path / name for name in order]
        done("train-tokenizer", *inputs, "--out", out, "--vocab-size", 60, "--min-frequency", 1)
        found.append(files_of(out))
    assert len(found[0]["vocab.txt"].splitlines()) > 40
    assert found[0] == found[1] == found[2]


def test_a_vocabulary_smaller_than_the_alphabet_names_what_it_needs(run, shared, tmp_path):
    """A vocabulary came out larger than asked, the alphabet being added to it.

    (huggingface/tokenizers#903, huggingface/tokenizers#761)
    """
    text = shared / "corpora/google_sample_text.txt"

    def learn(size):
        options = ("--vocab-size", size, "--quiet", "--no-strip-accents")
        return run("train-tokenizer", text, "--out", tmp_path / "out", *options)

    result = learn(20)
    assert (result.exit_code, result.stdout, list(tmp_path.iterdir())) == (2, "", [])
    message, needed = result.stderr.split(" need ")
    assert message == (
        "error: --vocab-size 20 is too small: special tokens and the characters of this text"
    )
    needed = int(needed.split(";")[0])
    assert learn(needed - 1).exit_code == 2
    assert learn(needed).exit_code == 0
    words = (tmp_path / "out/vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    characters = {c for c in text.read_text(encoding="utf-8").lower() if not c.isspace()}
    assert len(words) == needed
    assert set(words[5:]) <= characters | {f"##{c}" for c in characters}
    assert characters <= {word[-1] for word in words[5:]}


def test_a_text_too_small_for_the_size_gives_fewer_entries_with_a_warning(
    done, tmp_path, two, build, model_of
):
    """The model took its size from the request, and its vocabulary had another.

    (huggingface/tokenizers#950)
    """
    (tmp_path / "two.txt").write_text(two)
    output = done(
        *("train-tokenizer", tmp_path / "two.txt", "--out", tmp_path / "out"),
        *("--vocab-size", 30_000, "--json"),
    )
    # 5 special tokens, 8 letters and the full stop, each of them a word
    warning = "warning: learned 14 tokens instead of 30000: the text has no more\n"
    assert json.loads(output.stdout)["vocab_size"] == 14
    assert warning in output.stderr
    assert (tmp_path / "out/vocab.txt").read_bytes().count(b"\n") == 14
    found = build(two, "--vocab-size", 30_000, words=None)
    assert warning in found.log
    assert len(found.vocab) == found.manifest["vocab_size"] == 14
    assert model_of(found.folder)[1]["vocab_size"] == 14

"""What the small inputs of public reports are built from, and how the result is read back."""

import itertools
import json
from typing import NamedTuple

import pytest
import safetensors.torch
from helpers import TINY

from bertpt.data.dataset import Dataset

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class Spelled(NamedTuple):
    """An example as words.

    Attributes:
        tokens: all of it, [CLS] and [SEP] included.
        a: the first segment, words parted by spaces.
        b: the second.
        is_next: what its label says.
        targets: positions to predict.
        seen: what the model sees there.
    """

    tokens: list[str]
    a: str
    b: str
    is_next: bool
    targets: list[int]
    seen: list[str]


class Built:
    """A data folder as it is now, and what the command printed about it."""

    def __init__(self, folder, report="", log=""):
        self.folder, self.report, self.log = folder, report, log
        self.manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        vocab = (folder / "tokenizer/vocab.txt").read_bytes().decode()
        self.vocab = vocab.removesuffix("\n").split("\n")

    def examples(self, split="train"):
        """Its examples as words, one after another."""
        stored = Dataset(self.folder).examples(split)
        for ids, b_start, label, positions, seen in stored.take(range(len(stored))):
            tokens = [self.vocab[i] for i in ids]
            yield Spelled(
                tokens,
                " ".join(tokens[1 : b_start - 1]),
                " ".join(tokens[b_start:-1]),
                label == 0,
                positions.tolist(),
                [self.vocab[i] for i in seen],
            )


@pytest.fixture(scope="session")
def two():
    """Two documents of three sentences of four tokens."""
    return "a b c .\nd e f .\ng h a .\n\nb d f .\nc e g .\nh h a .\n"


@pytest.fixture(scope="session")
def letters():
    """The words that, after the five special tokens, make a vocabulary of 14."""
    return tuple("abcdefgh.")


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory):
    """Writes a vocab.txt with the special tokens and some words."""

    def write(words):
        path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
        path.write_text("".join(f"{w}\n" for w in (*SPECIAL_TOKENS, *words)), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def build(done, tmp_path_factory, letters, vocabulary):
    """Builds data, by the command, from a sentence a line; all documents train.

    `words` are those of the vocabulary; `None` learns one.
    """

    def build(text, *options, words=letters, name="text.txt"):
        folder = tmp_path_factory.mktemp("field-report")
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        given = () if words is None else ("--tokenizer", vocabulary(words))
        result = done(
            *("build-data", folder / name, "--out", folder / "data", *given),
            *("--sentence-per-line", "--valid-fraction", 0, *options),
        )
        return Built(folder / "data", result.stdout, result.stderr)

    return build


def _row(report, name):
    [line] = [line for line in report.splitlines() if line.strip().startswith(f"{name} ")]
    return line.split(name)[1].split()


@pytest.fixture(scope="session")
def row():
    """The columns behind a name in the printed table."""
    return _row


@pytest.fixture(scope="session")
def runs():
    """All texts that consecutive sentences of one document give."""

    def runs(text):
        documents = [document.splitlines() for document in text.split("\n\n")]
        return {
            " ".join(document[start:stop])
            for document in documents
            for start, stop in itertools.combinations(range(len(document) + 1), 2)
        }

    return runs


CPU = ("--device", "cpu", "--precision", "float32")


class Trained:
    """A run as it is now, and what the command printed about it."""

    def __init__(self, folder, log=""):
        self.folder, self.log = folder, log

    def logged(self, split="train"):
        """The lines of metrics.jsonl about a split."""
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["split"] == split]

    def checkpoints(self):
        """Those of its checkpoints by step."""
        folders = (self.folder / "checkpoints").iterdir()
        return {int(path.name.removeprefix("step-")): path for path in folders}

    def tensors(self, name="model/model.safetensors"):
        """The content of one of its files."""
        return safetensors.torch.load_file(self.folder / name)


@pytest.fixture(scope="session")
def pretrain(done, tmp_path_factory):
    """Trains a model 12 wide, by the command, on the CPU in float32; with `out` on in that run."""

    def pretrain(data, *options, shape=TINY, out=None):
        folder = out or tmp_path_factory.mktemp("field-report") / "run"
        asked = ("--resume",) if out else (*shape, *CPU)
        result = done(
            *("pretrain", data.folder, "--out", folder, *asked, "--log-every", 1, *options)
        )
        return Trained(folder, result.stderr)

    return pretrain


@pytest.fixture(scope="session")
def evaluate(done):
    """The figures of eval-mlm, on the training split of some data by default."""

    def evaluate(model, data, *options):
        asked = ("--json", "--quiet", "--split", "train", "--device", "cpu", *options)
        return json.loads(done("eval-mlm", model, data.folder, *asked).stdout)

    return evaluate

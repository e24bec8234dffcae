"""The build-data stage: text in, a DATA folder out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import bertpt
from bertpt import files
from bertpt.config import BuildConfig, TokenizerConfig
from bertpt.data import dataset, tokenizer, wordpiece
from bertpt.data.corpus import Corpus
from bertpt.data.dataset import SplitWriter
from bertpt.data.documents import DocumentWriter, StoredDocuments
from bertpt.data.example import Example
from bertpt.data.masking import Masking
from bertpt.data.pairs import IS_NEXT, RANDOM, Pair, PairMaker
from bertpt.data.report import counts_by_split, find_warnings
from bertpt.data.tokenizer import Tokenizer
from bertpt.errors import InputError
from bertpt.progress import Progress
from bertpt.rng import generator, permutation

CHARS_PER_BATCH = 1 << 20
NUM_SPECIAL = 3  # [CLS] A [SEP] B [SEP]


def build_data(
    inputs: Sequence[str],
    out: Path,
    *,
    tokenizer_path: Path | None,
    config: BuildConfig,
    tokenizer_config: TokenizerConfig | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Turns text into examples.

    Args:
        inputs: files, folders, globs, or `-` for standard input.
        out: the DATA folder to make.
        tokenizer_path: a tokenizer.json, a vocab.txt or a folder with one; `None` learns one.
        config: how examples are made.
        tokenizer_config: the vocabulary to learn, or how a vocab.txt is to be read.
        overwrite: replace a DATA folder that stands at `out`.
        progress: where to tell how far it is.

    Returns:
        The manifest.

    Raises:
        BertptError: an input, the vocabulary or the output is at fault. Nothing is left behind,
            and what stood at `out` still stands.
    """
    progress = progress or Progress()
    files.refuse_existing(out, overwrite=overwrite, is_ours=dataset.is_data_folder)
    vocabulary = learned = None
    if tokenizer_path:
        vocabulary = tokenizer.load(tokenizer_path, tokenizer_config)
    corpus = Corpus(inputs, language=config.language, sentence_per_line=config.sentence_per_line)
    with (
        files.new_folder(out) as work,
        TemporaryDirectory(dir=work) as scratch,
        progress.bar("reading", unit="B", unit_scale=True) as reading,
    ):
        documents: Iterable[list[str]] = corpus.watched(reading)
        if vocabulary is None:
            spool = _TextSpool(Path(scratch, "sentences.txt"), corpus)
            learned = tokenizer_config or TokenizerConfig()
            vocabulary = wordpiece.learn(spool.keep(documents), learned, source=corpus.name)
            documents = spool
        vocabulary.save(work / "tokenizer")
        stored, num_empty = _tokenize(documents, vocabulary, Path(scratch, "tokens"), progress)
        _require_documents(len(stored), corpus)
        parts = {split: stored.part(n) for split, n in split_documents(len(stored), config).items()}
        token_counts = parts["train"].count_tokens(len(vocabulary.vocab))
        np.save(work / "token_counts.npy", token_counts)
        written = {
            split: _write_split(
                work / split, part, vocabulary=vocabulary, config=config, progress=progress
            )
            for split, part in parts.items()
        }
        counts = {
            **counts_by_split(parts, written),
            "unknown_tokens": int(token_counts[vocabulary.unk_id]),
            "single_sentence_documents": stored.num_single_sentences,
            "empty_sentences": num_empty,
            "replaced_lines": corpus.num_replaced_lines,
            "nul_lines": corpus.num_nul_lines,
            "repeated_files": corpus.num_repeated_files,
        }
        manifest: dict[str, Any] = {
            "format": dataset.FORMAT,
            "format_version": dataset.FORMAT_VERSION,
            "bertpt_version": bertpt.__version__,
            "inputs": [files.printable(name) for name in inputs],
            "settings": config.to_dict(),
            "tokenizer": learned.to_dict() if learned else files.printable(tokenizer_path),
            "tokenizer_sha256": vocabulary.fingerprint,
            "vocab_size": len(vocabulary.vocab),
            **counts,
            "warnings": find_warnings(counts, vocabulary, config, learned),
            "shards": [shard for split in written.values() for shard in split["shards"]],
        }
        files.write_json(work / "manifest.json", manifest)
    for warning in manifest["warnings"]:
        progress.log(f"warning: {warning}")
    return manifest


# ------------------------------------------------------------------------------ text to documents


class _TextSpool:
    """Keeps sentences on disk while a vocabulary is learned from them, since a pipe reads once."""

    def __init__(self, path: Path, corpus: Corpus) -> None:
        self._path = path
        self._corpus = corpus

    def keep(self, documents: Iterable[list[str]]) -> Iterator[str]:
        with self._path.open("w", encoding="utf-8", newline="\n") as file:
            num_documents = 0
            for document in documents:
                for sentence in document:
                    file.write(f"{sentence}\n")
                    yield sentence
                file.write("\n")
                num_documents += 1
        # Before the vocabulary is learned, which takes long.
        _require_documents(num_documents, self._corpus)

    def __iter__(self) -> Iterator[list[str]]:
        document: list[str] = []
        with self._path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                if line == "\n":
                    yield document
                    document = []
                else:
                    document.append(line[:-1])


def _tokenize(
    documents: Iterable[list[str]], vocabulary: Tokenizer, path: Path, progress: Progress
) -> tuple[StoredDocuments, int]:
    """Tokenizes documents; sentences of which nothing is left are dropped, and counted."""
    num_empty = 0
    with (
        closing(DocumentWriter(path, dataset.token_dtype(len(vocabulary.vocab)))) as writer,
        progress.bar("tokenizing", unit="sentence", unit_scale=True) as bar,
    ):
        for batch in _batches(documents):
            encoded = vocabulary.encode_batch([sentence for sentence, _ in batch])
            for (_, is_last), ids in zip(batch, encoded, strict=True):
                num_empty += len(ids) == 0
                writer.add_sentence(ids)
                if is_last:
                    writer.end_document()
            bar.update(len(batch))
        return writer.finish(), num_empty


def _batches(documents: Iterable[list[str]]) -> Iterator[list[tuple[str, bool]]]:
    """Sentences, each with whether its document ends there, about `CHARS_PER_BATCH` at a time."""
    batch: list[tuple[str, bool]] = []
    num_chars = 0
    for document in documents:
        for number, sentence in enumerate(document, start=1):
            batch.append((sentence, number == len(document)))
            num_chars += len(sentence)
            if num_chars >= CHARS_PER_BATCH:
                yield batch
                batch, num_chars = [], 0
    yield batch


def _require_documents(num_documents: int, corpus: Corpus) -> None:
    if num_documents == 0:
        raise InputError(f"{corpus.name}: no text in it")
    if num_documents == 1:
        raise InputError(
            f"{corpus.name}: one document only, and a random next sentence needs another one; "
            "separate documents by blank lines, or give more files"
        )


# --------------------------------------------------------------------------- documents to examples


def split_documents(num_documents: int, config: BuildConfig) -> dict[str, np.ndarray]:
    """Which documents train and which are held out, by number, in their order.

    Whole documents are held out: `valid_fraction` of them, at least 2 (a pair needs another
    document to draw from), and none where fewer than 2 would be left to train on.
    """
    num_valid = 0
    if config.valid_fraction and num_documents >= 4:
        wanted = max(2, round(num_documents * config.valid_fraction))
        num_valid = min(wanted, num_documents - 2)
    shuffled = permutation(generator(config.seed, "split"), num_documents)
    return {"train": np.sort(shuffled[num_valid:]), "valid": np.sort(shuffled[:num_valid])}


def _write_split(
    folder: Path,
    documents: StoredDocuments,
    *,
    vocabulary: Tokenizer,
    config: BuildConfig,
    progress: Progress,
) -> dict[str, Any]:
    labels: Counter[int] = Counter()
    num_tokens = num_masked = 0
    total = len(documents) * config.dupe_factor
    with (
        closing(SplitWriter(folder, vocab_size=len(vocabulary.vocab))) as writer,
        progress.bar(f"pairing {folder.name}", unit="document", total=total) as bar,
    ):
        for example in make_examples(
            documents, folder.name, vocabulary=vocabulary, config=config, bar=bar
        ):
            writer.append(example)
            labels[example.next_sentence_label] += 1
            num_tokens += len(example.input_ids)
            num_masked += len(example.masked_positions)
        shards = writer.finish()
    return {
        "examples": labels.total(),
        "label_counts": {"is_next": labels[IS_NEXT], "random": labels[RANDOM]},
        "example_tokens": num_tokens,
        "masked_tokens": num_masked,
        "shards": shards,
    }


def make_examples(
    documents: StoredDocuments,
    split: str,
    *,
    vocabulary: Tokenizer,
    config: BuildConfig,
    bar: Any,
) -> Iterator[Example]:
    """The examples of every pass over some documents, in the order of the documents.

    The draws for a document depend on the seed, the split, the pass and its number alone.
    """
    masking = Masking.of(vocabulary, config)
    maker = PairMaker(
        documents,
        max_num_tokens=config.seq_len - NUM_SPECIAL,
        short_seq_prob=config.short_seq_prob,
    )
    for dupe in range(config.dupe_factor):
        for number in range(len(documents)):
            rng = generator(config.seed, f"pairs of {split}", dupe, number)
            for pair in maker.pairs(number, rng):
                ids = join(pair, vocabulary)
                label = pair.next_sentence_label
                yield Example(ids, len(pair.a) + 2, label, *masking.draw(ids, rng))
            bar.update()


def join(pair: Pair, vocabulary: Tokenizer) -> np.ndarray:
    """[CLS] A [SEP] B [SEP] as one array of ids."""
    cls, sep = [vocabulary.cls_id], [vocabulary.sep_id]
    return np.concatenate([cls, pair.a, sep, pair.b, sep])

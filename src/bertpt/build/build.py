"""The build-data stage: text in, a DATA folder out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

import bertpt
from bertpt import files
from bertpt.build.disk import announcement, disk_use, shortage
from bertpt.build.documents import save_array
from bertpt.build.make_examples import Split, make_rows
from bertpt.build.pairs import IS_NEXT, RANDOM
from bertpt.build.report import counts_by_split, derived_counts, find_warnings
from bertpt.build.tokenize import tokenize
from bertpt.build.workers import Workers
from bertpt.build.writer import SplitWriter
from bertpt.config import BuildConfig, TokenizerConfig
from bertpt.corpus.corpus import Corpus
from bertpt.data import dataset
from bertpt.data.example import token_dtype
from bertpt.data.masking import Masking
from bertpt.errors import InputError, SettingError
from bertpt.progress import Progress
from bertpt.rng import generator, permutation
from bertpt.text import format_size, printable
from bertpt.tokenizer import tokenizer, train
from bertpt.tokenizer.tokenizer import Tokenizer

MUCH = 1 << 22  # bytes on the disk, a second's work


def build_data(
    inputs: Sequence[str],
    out: Path,
    *,
    tokenizer_path: Path | None,
    config: BuildConfig,
    tokenizer_config: TokenizerConfig | None = None,
    overwrite: bool = False,
    workers: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Turns text into examples.

    Args:
        inputs: files, folders, globs, `hf:` names, or `-` (`jsonl:-`) for standard input.
        out: the DATA folder to make.
        tokenizer_path: a tokenizer.json, a vocab.txt or a folder with one; `None` learns one.
        config: how examples are made.
        tokenizer_config: the vocabulary to learn, or how a vocab.txt is to be read.
        overwrite: replace a DATA folder that stands at `out`.
        workers: processes to work in, started anew where there is enough to do, so a script that
            asks for more than one must be importable (`if __name__ == "__main__":`). Their number
            does not show in the result.
        progress: where to tell how far it is.

    Returns:
        The manifest.

    Raises:
        BertptError: an input, the vocabulary or the output is at fault. Nothing is left behind,
            and what stood at `out` still stands.
    """
    require_shared_tokenizer(config, tokenizer_path)
    files.refuse_existing(out, overwrite=overwrite, is_ours=dataset.is_data_folder)
    manifest, _ = build_folder(
        inputs,
        out,
        tokenizer_path=tokenizer_path,
        config=config,
        tokenizer_config=tokenizer_config,
        workers=workers,
        progress=progress or Progress(),
    )
    return manifest


def require_shared_tokenizer(config: BuildConfig, tokenizer_path: Path | None) -> None:
    """Checks that a part of a corpus gets the vocabulary that the others have.

    Raises:
        SettingError: it would learn one of its own.
    """
    if config.shard is not None and not tokenizer_path:
        raise SettingError(
            "shard",
            f"{config.shard} needs `tokenizer`, or each part would learn a vocabulary of its own; "
            "make one with bertpt train-tokenizer",
        )


def build_folder(
    inputs: Sequence[str],
    out: Path,
    *,
    tokenizer_path: Path | None,
    config: BuildConfig,
    tokenizer_config: TokenizerConfig | None,
    workers: int,
    progress: Progress,
    sample_bytes: int | None = None,
) -> tuple[dict[str, Any], Corpus]:
    """What `build_data` does when `out` may be replaced; with `sample_bytes` on a sample only.

    Returns:
        The manifest, and the corpus, which knows how much of it was read.
    """
    vocabulary = learned = None
    if tokenizer_path:
        vocabulary = tokenizer.load(tokenizer_path, tokenizer_config)
        vocab_size = len(vocabulary.vocab)
    else:
        learned = tokenizer_config or TokenizerConfig()
        vocab_size = learned.vocab_size
    corpus = Corpus(
        inputs,
        language=config.language,
        sentence_per_line=config.sentence_per_line,
        text_field=config.text_field,
        strict=config.strict,
        shard=config.shard,
        sample_bytes=sample_bytes,
    )
    if sample_bytes is None:
        learns = learned is not None
        progress.log(announcement(config, corpus, out, vocab_size=vocab_size, learns=learns))
    with (
        files.new_folder(out) as work,
        TemporaryDirectory(dir=work) as scratch,
        Workers(workers) as pool,
        progress.bar("reading", unit="B", unit_scale=True, total=corpus.total_bytes) as reading,
    ):
        documents: Iterable[list[str]] = corpus.watched(reading)
        spool = _TextSpool(Path(scratch, "sentences.txt"), corpus, config.objective)
        if learned:
            vocabulary = train.learn(
                spool.keep(documents), learned, source=corpus.name, progress=progress
            )
            documents = spool
        assert vocabulary is not None
        Masking.of(vocabulary, config)  # which refuses what it cannot mask, before the work
        vocabulary.save(work / "tokenizer")
        dtype = token_dtype(len(vocabulary.vocab))
        stored, text_counts = tokenize(
            documents,
            work / "tokenizer",
            Path(scratch),
            dtype,
            workers=pool,
            progress=progress,
            num_sentences=spool.num_sentences,
            is_much=sample_bytes is None and (corpus.total_bytes or 0) >= MUCH,
        )
        spool.remove()
        _require_documents(len(stored), corpus, config.objective)
        needed = disk_use(config, num_tokens=stored.num_tokens, vocab_size=len(vocabulary.vocab))
        if warning := shortage(needed.peak - files.size(work), out):
            progress.log(warning)
        splits = {
            name: Split(name, Path(scratch), dtype, numbers, work / "tokenizer", config)
            for name, numbers in _split_files(len(stored), config, Path(scratch)).items()
        }
        parts = {name: split.documents() for name, split in splits.items()}
        num_tokens = parts["train"].num_tokens
        with progress.bar(
            "counting", unit="token", unit_scale=True, total=num_tokens, leave=False
        ) as bar:
            token_counts = parts["train"].count_tokens(len(vocabulary.vocab), on_tokens=bar.update)
        save_array(work / "token_counts.npy", token_counts)
        written = {
            name: _write_split(work / name, split, pool, vocabulary=vocabulary, progress=progress)
            for name, split in splits.items()
        }
        counts = {
            **counts_by_split(parts, {name: split.counts for name, split in written.items()}),
            **text_counts,
            "unknown_tokens": int(token_counts[vocabulary.unk_id]),
            "single_sentence_documents": stored.num_single_sentences,
            "replaced_lines": corpus.num_replaced_lines,
            "nul_lines": corpus.num_nul_lines,
            "surrogate_rows": corpus.num_surrogate_rows,
            "empty_rows": corpus.num_empty_rows,
            "cut_sentences": corpus.num_cut_sentences,
            "json_like_files": corpus.num_json_like_files,
            "repeated_files": corpus.num_repeated_files,
        }
        counts |= derived_counts(
            counts,
            token_counts=token_counts,
            lengths={name: split.lengths for name, split in written.items()},
            vocabulary=vocabulary,
            config=config,
        )
        manifest: dict[str, Any] = {
            "format": dataset.FORMAT,
            "format_version": dataset.FORMAT_VERSION,
            "bertpt_version": bertpt.__version__,
            "inputs": [printable(name) for name in inputs],
            "settings": config.to_dict(),
            "tokenizer": learned.to_dict() if learned else printable(tokenizer_path),
            "tokenizer_sha256": vocabulary.fingerprint,
            "vocab_size": len(vocabulary.vocab),
            **counts,
            "warnings": find_warnings(
                counts, vocabulary, config, learned, is_sample=corpus.is_sampled
            ),
            "shards": [shard for split in written.values() for shard in split.shards],
        }
        files.write_json(work / "manifest.json", manifest)
    for warning in manifest["warnings"]:
        progress.log(f"warning: {warning}")
    return manifest, corpus


# ------------------------------------------------------------------------------ text to documents


class _TextSpool:
    """Keeps sentences on disk while a vocabulary is learned from them, since a pipe reads once."""

    def __init__(self, path: Path, corpus: Corpus, objective: str) -> None:
        self._path = path
        self._corpus = corpus
        self._objective = objective
        self.num_sentences: int | None = None  # of what was kept

    def keep(self, documents: Iterable[list[str]]) -> Iterator[str]:
        with self._path.open("w", encoding="utf-8", newline="\n") as file:
            num_documents = num_sentences = 0
            for document in documents:
                for sentence in document:
                    file.write(f"{sentence}\n")
                    yield sentence
                file.write("\n")
                num_documents += 1
                num_sentences += len(document)
        self.num_sentences = num_sentences
        # Before the vocabulary is learned, which takes long.
        _require_documents(num_documents, self._corpus, self._objective)

    def __iter__(self) -> Iterator[list[str]]:
        document: list[str] = []
        with self._path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                if line == "\n":
                    yield document
                    document = []
                else:
                    document.append(line[:-1])

    def remove(self) -> None:
        """Makes room for what comes after."""
        self._path.unlink(missing_ok=True)


def _require_documents(num_documents: int, corpus: Corpus, objective: str) -> None:
    sampled = f"in the first {format_size(corpus.num_bytes)} " if corpus.is_sampled else ""
    if num_documents == 0 and corpus.shard is not None:
        raise InputError(f"{corpus.name}: no document in part {corpus.shard}; make fewer parts")
    if num_documents == 0:
        raise InputError(f"{corpus.name}: no text {sampled or 'in it'}".rstrip())
    if num_documents == 1 and objective == "nsp":
        where = "" if corpus.shard is None else f" in part {corpus.shard}"
        fewer = "" if corpus.shard is None else "make fewer parts, "
        raise InputError(
            f"{corpus.name}: {sampled}one document only{where}, and a random next sentence needs "
            f"another one; {fewer}separate documents by blank lines, give more files, or take "
            "`objective` sop or mlm"
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
    shuffled = permutation(generator(config.seed, config.of_part("split")), num_documents)
    return {"train": np.sort(shuffled[num_valid:]), "valid": np.sort(shuffled[:num_valid])}


def _split_files(num_documents: int, config: BuildConfig, folder: Path) -> dict[str, Path]:
    """Files with the numbers of `split_documents`, for the workers to read."""
    paths = {}
    for name, numbers in split_documents(num_documents, config).items():
        paths[name] = folder / f"{name}.npy"
        save_array(paths[name], numbers)
    return paths


class _Written(NamedTuple):
    """What was written of a split.

    Attributes:
        shards: file, examples and SHA-256 of each.
        counts: of examples, labels, tokens and sentences in them.
        lengths: how many examples have each number of tokens, from 0 to `seq_len`.
    """

    shards: list[dict[str, Any]]
    counts: dict[str, Any]
    lengths: np.ndarray


def _write_split(
    folder: Path, split: Split, workers: Workers, *, vocabulary: Tokenizer, progress: Progress
) -> _Written:
    labels: Counter[int] = Counter()
    lengths = np.zeros(split.config.seq_len + 1, dtype=np.int64)
    num_masked = num_sentences = num_truncated = 0
    total = len(split.documents()) * split.config.dupe_factor
    with (
        closing(SplitWriter(folder, vocab_size=len(vocabulary.vocab))) as writer,
        progress.bar(f"pairing {folder.name}", unit="document", total=total) as bar,
    ):
        for made in make_rows(split, workers, on_documents=bar.update):
            writer.extend(made.rows)
            labels.update(made.rows.next_sentence_labels.tolist())
            lengths += np.bincount(made.rows.num_tokens, minlength=len(lengths))
            num_masked += len(made.rows.masked_positions)
            num_sentences += made.num_sentences
            num_truncated += made.num_truncated
    shards = writer.finish(progress)
    counts = {
        "examples": labels.total(),
        "label_counts": {"is_next": labels[IS_NEXT], "random": labels[RANDOM]},
        "example_tokens": int(lengths @ np.arange(len(lengths))),
        "masked_tokens": num_masked,
        "paired_sentences": num_sentences,
        "truncated_sentences": num_truncated,
    }
    return _Written(shards, counts, lengths)

"""The build-data stage: text in, a DATA folder out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import bertpt
from bertpt import files
from bertpt.build.disk import disk_use, estimate_message, folder_size, shortage_warning
from bertpt.build.documents import StoredDocuments, save_array
from bertpt.build.make_examples import Split
from bertpt.build.report import collect_counts, find_warnings
from bertpt.build.splits import WrittenSplit, split_documents, write_split
from bertpt.build.spool import TextSpool
from bertpt.build.tokenize import tokenize
from bertpt.build.workers import Workers
from bertpt.config import BuildConfig, TokenizerConfig
from bertpt.corpus.corpus import Corpus, Piece
from bertpt.corpus.findings import RENAME_ROWS
from bertpt.data import folder
from bertpt.data.example import token_dtype
from bertpt.data.masking import Masking
from bertpt.errors import InputError, SettingError
from bertpt.outputs import refuse_existing
from bertpt.progress import Progress
from bertpt.text import format_size, printable
from bertpt.tokenizer import train
from bertpt.tokenizer.tokenizer import Tokenizer, load_tokenizer

LARGE_CORPUS = 1 << 22  # bytes on disk; takes about a second


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
    """Turn text into a DATA folder of examples.

    Args:
        inputs: files, folders, globs, `hf:` names, or `-` (also `jsonl:-`) for standard input.
        out: the DATA folder to create.
        tokenizer_path: a tokenizer.json, a vocab.txt or a folder with one; `None` learns one.
        config: how to make examples.
        tokenizer_config: the vocabulary to learn, or how to read a vocab.txt.
        overwrite: replace an existing DATA folder.
        workers: number of processes; the output does not depend on it. They are spawned, so a
            script that asks for more than one must be importable (`if __name__ == "__main__":`).
        progress: where to report progress.

    Returns:
        The manifest.

    Raises:
        BertptError: an input, the vocabulary or the output is at fault; `out` is unchanged.
    """
    require_shared_tokenizer(config, tokenizer_path)
    check = partial(
        refuse_existing,
        out,
        overwrite=overwrite,
        is_ours=folder.is_data_folder,
        contents=folder.CONTENTS,
    )
    check()
    manifest, _ = build_folder(
        inputs,
        out,
        tokenizer_path=tokenizer_path,
        config=config,
        tokenizer_config=tokenizer_config,
        workers=workers,
        progress=progress or Progress(),
        recheck=check,
    )
    return manifest


def require_shared_tokenizer(config: BuildConfig, tokenizer_path: Path | None) -> None:
    """Check that all parts of a corpus get the same vocabulary.

    Raises:
        SettingError: a part would learn its own.
    """
    if config.shard is not None and not tokenizer_path:
        raise SettingError(
            "shard",
            f"{config.shard} needs `tokenizer`, or each part would learn a different vocabulary; "
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
    recheck: Callable[[], object] = bool,
) -> tuple[dict[str, Any], Corpus]:
    """Build a DATA folder, from a sample of the text if `sample_bytes` is given.

    `recheck` is called before `out` is replaced.

    Returns:
        The manifest, and the corpus, which counts what was read.
    """
    source = (
        load_tokenizer(tokenizer_path, tokenizer_config)
        if tokenizer_path
        else tokenizer_config or TokenizerConfig()
    )
    learned = source if isinstance(source, TokenizerConfig) else None
    corpus = Corpus(
        inputs,
        language=config.language,
        sentence_per_line=config.sentence_per_line,
        text_field=config.text_field,
        unwrap=config.unwrap,
        strict=config.strict,
        shard=config.shard,
        sample_bytes=sample_bytes,
    )
    if corpus.ignored:
        progress.log(corpus.ignored)
    if sample_bytes is None:
        vocab_size = len(source.vocab) if isinstance(source, Tokenizer) else source.vocab_size
        learns = learned is not None
        progress.log(estimate_message(config, corpus, out, vocab_size=vocab_size, learns=learns))
    with (
        files.new_folder(out, recheck=recheck) as work,
        TemporaryDirectory(dir=work) as scratch,
        Workers(workers) as pool,
        progress.bar("reading", unit="B", unit_scale=True, total=corpus.total_bytes) as bar,
    ):
        job = _Job(config, corpus, out, work, Path(scratch), pool, progress)
        vocabulary, text = _prepare_vocabulary(source, corpus.with_progress(bar), job)
        documents, text_counts = _tokenize(text, vocabulary, job)
        token_counts, splits = _write_splits(documents, vocabulary, job)
        counts = collect_counts(corpus, text_counts, token_counts, splits, vocabulary)
        manifest = {
            "format": folder.FORMAT,
            "format_version": folder.FORMAT_VERSION,
            "bertpt_version": bertpt.__version__,
            "inputs": [printable(name) for name in inputs],
            "settings": config.to_dict(),
            "tokenizer": learned.to_dict() if learned else printable(tokenizer_path),
            "tokenizer_sha256": vocabulary.fingerprint,
            "vocab_size": len(vocabulary.vocab),
            **counts,
            "warnings": find_warnings(
                counts,
                vocabulary,
                config,
                learned,
                problems=corpus.problems,
                is_sample=corpus.is_sampled,
            ),
            "shards": [shard for split in splits.values() for shard in split.shards],
        }
        files.write_json(work / "manifest.json", manifest)
    for warning in manifest["warnings"]:
        progress.log(f"warning: {warning}")
    return manifest, corpus


@dataclass(frozen=True)
class _Job:
    """What the steps of a build share.

    Attributes:
        work: the unfinished DATA folder, which becomes `out`.
        scratch: a folder for files that only the build needs.
    """

    config: BuildConfig
    corpus: Corpus
    out: Path
    work: Path
    scratch: Path
    workers: Workers
    progress: Progress


def _prepare_vocabulary(
    source: Tokenizer | TokenizerConfig, text: Iterator[Piece], job: _Job
) -> tuple[Tokenizer, Iterator[Piece] | TextSpool]:
    """Save the vocabulary, learned from the text if it is not given.

    Returns:
        The vocabulary, and the text: learning spools it to disk.
    """
    kept: Iterator[Piece] | TextSpool = text
    if isinstance(source, Tokenizer):
        vocabulary = source
    else:
        kept = spool = TextSpool(job.scratch / "sentences.txt")

        def sentences() -> Iterator[str]:
            yield from spool.write(text)
            _require_documents(spool.num_documents, job)  # before learning, which is slow

        vocabulary = train.learn(sentences(), source, source=job.corpus.name, progress=job.progress)
    Masking.from_config(vocabulary, job.config)  # fail early if it cannot mask words
    vocabulary.save(job.work / "tokenizer")
    return vocabulary, kept


def _tokenize(
    text: Iterator[Piece] | TextSpool, vocabulary: Tokenizer, job: _Job
) -> tuple[StoredDocuments, dict[str, Any]]:
    """Write the text's token ids to `scratch`; return them with counts of the text."""
    spool = text if isinstance(text, TextSpool) else None
    documents, text_counts = tokenize(
        text,
        job.work / "tokenizer",
        job.scratch,
        token_dtype(len(vocabulary.vocab)),
        workers=job.workers,
        progress=job.progress,
        dedup=job.config.dedup,
        num_sentences=spool.num_sentences if spool else None,
        is_large=job.corpus.sample_bytes is None and (job.corpus.total_bytes or 0) >= LARGE_CORPUS,
    )
    if spool:
        spool.remove()
    _require_documents(len(documents), job)
    needed = disk_use(job.config, num_tokens=documents.num_tokens, vocab_size=len(vocabulary.vocab))
    if warning := shortage_warning(needed.peak - folder_size(job.work), job.out):
        job.progress.log(warning)
    return documents, text_counts


def _require_documents(num_documents: int, job: _Job) -> None:
    """Check that there are enough documents to make examples from.

    Raises:
        InputError: there is none, or only one where pairs need two.
    """
    corpus, shard = job.corpus, job.corpus.shard
    sampled = f" in the first {format_size(corpus.num_bytes)}" if corpus.is_sampled else ""
    if num_documents == 0:
        if shard:
            raise InputError(f"{corpus.name}: no document in part {shard}; make fewer parts")
        raise InputError(f"{corpus.name}: contains no text{sampled}")
    if num_documents == 1 and corpus.counts["row_like_files"]:
        raise InputError(f"{corpus.name}: looks like JSON, CSV or TSV; {RENAME_ROWS}")
    if num_documents == 1 and job.config.objective == "nsp":
        where = f" in part {shard}" if shard else sampled
        fewer = "make fewer parts, " if shard else ""
        raise InputError(
            f"{corpus.name}: only one document{where}, but random next sentences need a second "
            f"one; {fewer}separate documents by blank lines, give more files, or use `objective` "
            "sop or mlm"
        )


def _write_splits(
    documents: StoredDocuments, vocabulary: Tokenizer, job: _Job
) -> tuple[np.ndarray, dict[str, WrittenSplit]]:
    """Write token_counts.npy and both splits; return them."""
    vocab_size = len(vocabulary.vocab)
    splits = {}
    for name, indices in split_documents(len(documents), job.config).items():
        path = job.scratch / f"{name}.npy"
        save_array(path, indices)
        splits[name] = Split(
            name, job.scratch, token_dtype(vocab_size), path, job.work / "tokenizer", job.config
        )
    train_documents = splits["train"].documents()
    with job.progress.bar(
        "counting", unit="token", unit_scale=True, total=train_documents.num_tokens, leave=False
    ) as bar:
        token_counts = train_documents.count_tokens(vocab_size, on_tokens=bar.update)
    save_array(job.work / "token_counts.npy", token_counts)
    return token_counts, {
        name: write_split(
            job.work / name,
            split,
            vocab_size=vocab_size,
            workers=job.workers,
            progress=job.progress,
        )
        for name, split in splits.items()
    }

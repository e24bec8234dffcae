"""Estimate the result of a build from a sample, in seconds."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bertpt.build.build import build_folder, require_shared_tokenizer
from bertpt.build.disk import disk_use
from bertpt.config import BuildConfig, TokenizerConfig
from bertpt.corpus.corpus import Corpus
from bertpt.progress import Progress

SAMPLE_BYTES = 8_000_000  # of text


def dry_run(
    inputs: Sequence[str],
    *,
    tokenizer_path: Path | None,
    config: BuildConfig,
    tokenizer_config: TokenizerConfig | None = None,
    workers: int = 1,
    progress: Progress | None = None,
    sample_bytes: int = SAMPLE_BYTES,
) -> dict[str, Any]:
    """Build from a sample in a temporary folder; see `bertpt.build.build.build_data`.

    Args:
        inputs: as in `build_data`; of standard input, only the sample is read.
        tokenizer_path: as in `build_data`; `None` learns a vocabulary from the sample.
        config: as in `build_data`.
        tokenizer_config: as in `build_data`.
        workers: as in `build_data`.
        progress: as in `build_data`.
        sample_bytes: approximate size of the sample (see `bertpt.corpus.corpus.Corpus`).

    Returns:
        The manifest of the sample, and

        - dry_run: true.
        - sampled_bytes: bytes read of the input files, which may be compressed.
        - total_bytes: size of all input files, or `None` if some inputs are not files.
        - estimated: of all input: documents, sentences, tokens, examples, disk_bytes, and
          disk_peak_bytes during the build; `None` if the input's size is unknown.

    Raises:
        BertptError: an input or the vocabulary is at fault, or the temporary folder is full.
    """
    require_shared_tokenizer(config, tokenizer_path)
    with TemporaryDirectory(prefix="bertpt-") as folder:
        manifest, corpus = build_folder(
            inputs,
            Path(folder, "data"),
            tokenizer_path=tokenizer_path,
            config=config,
            tokenizer_config=tokenizer_config,
            workers=workers,
            progress=progress or Progress(),
            sample_bytes=sample_bytes,
        )
    return {
        **manifest,
        "dry_run": True,
        "sampled_bytes": corpus.num_bytes,
        "total_bytes": corpus.total_bytes if corpus.is_sampled else corpus.num_bytes,
        "estimated": _estimated(manifest, corpus, config),
    }


def _estimated(
    manifest: dict[str, Any], corpus: Corpus, config: BuildConfig
) -> dict[str, int] | None:
    """Scale the sample's counts to the full input."""
    scale = 1.0
    if corpus.is_sampled:
        if corpus.total_bytes is None:
            return None
        scale = corpus.total_bytes / corpus.num_bytes
    counted = {
        name: round(sum(manifest[name].values()) * scale)
        for name in ("documents", "sentences", "tokens", "examples")
    }
    learned = isinstance(manifest["tokenizer"], dict)
    disk = disk_use(
        config,
        num_tokens=counted["tokens"],
        vocab_size=manifest["tokenizer"]["vocab_size"] if learned else manifest["vocab_size"],
        spooled_bytes=corpus.num_text_bytes * scale if learned else 0,
    )
    return {**counted, "disk_bytes": disk.final, "disk_peak_bytes": disk.peak}

"""A build of a sample, thrown away again: what the whole would give, in seconds."""

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
    """Builds from a sample, as `bertpt.build.build.build_data` does, in a temporary folder.

    Args:
        inputs: as there; standard input is read no further than the sample.
        tokenizer_path: as there; without it a vocabulary is learned from the sample.
        config: as there.
        tokenizer_config: as there.
        workers: as there.
        progress: as there.
        sample_bytes: about how much text to take (see `bertpt.corpus.corpus.Corpus`).

    Returns:
        What would be the manifest of the sample, and

        - dry_run: true.
        - sampled_bytes: of the input files, as they lie on the disk, those that were read.
        - total_bytes: the size of all of them, or `None` where they are not all files.
        - estimated: what the whole would give: documents, sentences, tokens, examples,
          disk_bytes, and disk_peak_bytes while it works; `None` where its size is not known.

    Raises:
        BertptError: an input or the vocabulary is at fault, or there is no temporary space.
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
    """The whole, as if it were like the sample throughout."""
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

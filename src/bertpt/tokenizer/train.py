"""The train-tokenizer stage: learn a WordPiece vocabulary from text."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from bertpt import files
from bertpt.config import TokenizerConfig
from bertpt.corpus import findings
from bertpt.corpus.corpus import Corpus
from bertpt.errors import InputError, SettingError
from bertpt.outputs import refuse_existing
from bertpt.progress import Progress
from bertpt.tokenizer.tokenizer import (
    FILES,
    MAX_CHARS_PER_WORD,
    SPECIAL_TOKENS,
    Tokenizer,
    from_vocab,
    normalizer,
)

SECONDS_BETWEEN_REFRESHES = 5.0  # of the progress bar, while tokenizers reports nothing


def train_tokenizer(
    inputs: Sequence[str],
    out: Path,
    *,
    config: TokenizerConfig,
    text_field: str = "text",
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Learn a vocabulary from text and write a tokenizer folder.

    Args:
        inputs: files, folders, globs, `hf:` names, or `-` (also `jsonl:-`) for standard input.
        out: the folder to write; `transformers.AutoTokenizer` loads it.
        config: size and cleaning of the vocabulary.
        text_field: the field of a row that contains the text.
        strict: refuse text that needs repair.
        overwrite: replace an existing tokenizer folder at `out`.
        progress: receives progress bars and warnings.

    Returns:
        vocab_size (tokens learned), tokenizer_sha256.

    Raises:
        BertptError: an input, a setting or `out` is invalid.
    """
    progress = progress or Progress()
    check = partial(refuse_existing, out, overwrite=overwrite, is_ours=is_tokenizer_folder)
    check()
    corpus = Corpus(inputs, sentence_per_line=True, text_field=text_field, strict=strict)
    with files.new_folder(out, recheck=check) as work:
        with reading(corpus, progress) as lines:
            tokenizer = learn(lines, config, source=corpus.name, progress=progress)
        tokenizer.save(work)
    log_findings(corpus, progress)
    if shortfall := describe_shortfall(tokenizer, config):
        progress.log(f"warning: {shortfall}")
    return {"vocab_size": len(tokenizer.vocab), "tokenizer_sha256": tokenizer.fingerprint}


@contextmanager
def reading(corpus: Corpus, progress: Progress) -> Iterator[Iterator[str]]:
    """Yield the lines of a corpus; show the bytes read, and log the files that are ignored."""
    if corpus.ignored:
        progress.log(corpus.ignored)
    with progress.bar("reading", unit="B", unit_scale=True, total=corpus.total_bytes) as bar:
        yield (line for piece in corpus.with_progress(bar) for line in piece.sentences)


def log_findings(corpus: Corpus, progress: Progress) -> None:
    """Log what was found wrong with the text; wrapped lines do not matter to single words."""
    counts = Counter(corpus.counts)
    for name in ("wrapped_files", "cut_lines", "cut_sentences"):
        counts[name] = 0
    for warning in findings.describe(counts, corpus.problems):
        progress.log(f"warning: {warning}")


def describe_shortfall(tokenizer: Tokenizer, config: TokenizerConfig) -> str | None:
    """Return a warning if the text gave fewer tokens than requested."""
    num_tokens = len(tokenizer.vocab)
    if num_tokens >= config.vocab_size:
        return None
    return f"learned {num_tokens} tokens instead of {config.vocab_size}: the text has no more"


def is_tokenizer_folder(path: Path) -> bool:
    """Return whether a folder holds the files of a tokenizer and nothing else."""
    return path.is_dir() and {file.name for file in path.iterdir()} == set(FILES)


def learn(
    texts: Iterable[str],
    config: TokenizerConfig,
    *,
    source: str = "the text",
    progress: Progress | None = None,
) -> Tokenizer:
    """Learn a WordPiece vocabulary; the same texts, in any order, give the same bytes.

    The tokenizers library numbers characters in the order of a hash map and breaks ties between
    merges by these numbers (huggingface/tokenizers#1794). To make the result independent of the
    hash, words are counted first, and the trainer gets all characters, sorted, as special tokens.

    Args:
        texts: any strings; each starts a new word.
        config: size and cleaning of the vocabulary.
        source: name of the texts, for the message if they are empty.
        progress: receives progress bars.

    Raises:
        InputError: the texts contain no words.
        SettingError: the vocabulary is too small for the alphabet.
    """
    progress = progress or Progress()
    cleaning = normalizer(lowercase=config.lowercase, strip_accents=config.strips_accents)
    words = count_words(texts, cleaning, progress=progress)
    if not words:
        raise InputError(f"{source}: contains no text")
    pieces = _alphabet(words, config)
    trainer = trainers.WordPieceTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=[*SPECIAL_TOKENS, *pieces],
        limit_alphabet=0,
        show_progress=False,
    )
    learner = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    kept = set(pieces)
    usable = {w: n for w, n in sorted(words.items()) if kept.issuperset(_characters(w))}
    _train(learner, trainer, usable, progress)
    ids = learner.get_vocab(with_added_tokens=False)
    return from_vocab(
        sorted(ids, key=lambda token: ids[token]),
        lowercase=config.lowercase,
        strip_accents=config.strips_accents,
    )


def _train(
    learner: tokenizers.Tokenizer,
    trainer: trainers.WordPieceTrainer,
    words: dict[str, int],
    progress: Progress,
) -> None:
    """Train in a thread, because a thread inside tokenizers does not see signals."""
    is_left = Event()

    def lines(bar: Any) -> Iterator[str]:
        for line, count in _repeated(words):
            if is_left.is_set():
                raise InterruptedError
            yield line
            bar.update(count)

    total = sum(words.values())
    with (
        progress.bar("learning", unit="word", unit_scale=True, total=total, leave=False) as bar,
        ThreadPoolExecutor(1) as thread,
    ):
        training = thread.submit(learner.train_from_iterator, lines(bar), trainer)
        try:
            while not wait([training], SECONDS_BETWEEN_REFRESHES).done:
                if bar.n >= total:
                    bar.refresh()
            training.result()
        finally:
            is_left.set()


def count_words(
    texts: Iterable[str], cleaning: Any, *, progress: Progress | None = None
) -> Counter[str]:
    """Count words, cleaned by a normalizer and split at spaces and punctuation as in BERT."""
    pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # Most chunks between spaces repeat, so each is cleaned and split only once. Long chunks (text
    # without spaces) rarely repeat and would fill the memory.
    chunks: Counter[str] = Counter()
    words: Counter[str] = Counter()

    def split(chunk: str, count: int) -> None:
        for word, _ in pre_tokenizer.pre_tokenize_str(cleaning.normalize_str(chunk)):
            if len(word) <= MAX_CHARS_PER_WORD:
                words[word] += count

    for text in texts:
        for chunk in text.split():
            if len(chunk) <= 32:
                chunks[chunk] += 1
            else:
                split(chunk, 1)
    progress = progress or Progress()
    with progress.bar(
        "counting", unit="word", unit_scale=True, total=len(chunks), leave=False
    ) as bar:
        for chunk, count in chunks.items():
            split(chunk, count)
            bar.update()
    return words


def _characters(word: str) -> Iterator[str]:
    yield word[0]
    for character in word[1:]:
        yield f"##{character}"


def _alphabet(words: Counter[str], config: TokenizerConfig) -> list[str]:
    """Choose the one-character pieces: those that start words, then those inside words."""
    characters: Counter[str] = Counter()
    continuing: Counter[str] = Counter()
    for word, count in words.items():
        for piece in _characters(word):
            characters[piece[-1]] += count
            if len(piece) > 1:
                continuing[piece] += count
    limit = config.limit_alphabet or max(1000, config.vocab_size // 4)
    common = sorted(characters, key=lambda c: (-characters[c], c))[:limit]
    pieces = sorted(common) + sorted(p for p in continuing if p[-1] in set(common))
    needed = len(SPECIAL_TOKENS) + len(pieces)
    if needed > config.vocab_size:
        raise SettingError(
            "vocab_size",
            f"{config.vocab_size} is too small: special tokens and the characters of this text "
            f"need {needed}; raise it, or keep fewer characters with `limit_alphabet`",
        )
    return pieces


def _repeated(words: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Yield lines that repeat each word as often as it was counted, and their number of words."""
    for word, count in words.items():
        full, rest = divmod(count, 1000)
        line = f"{word} " * 1000
        yield from ((line, 1000) for _ in range(full))
        yield f"{word} " * rest, rest

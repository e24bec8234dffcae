"""The train-tokenizer stage: text in, a WordPiece vocabulary out, the same one every time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from bertpt import files
from bertpt.config import TokenizerConfig
from bertpt.corpus.corpus import Corpus
from bertpt.errors import InputError, SettingError
from bertpt.progress import Progress
from bertpt.tokenizer.tokenizer import (
    MAX_CHARS_PER_WORD,
    SPECIAL_TOKENS,
    Tokenizer,
    from_vocab,
    normalizer,
)

SECONDS_BETWEEN_SIGNS = 5.0  # of life, while the library says nothing
FILES = {"tokenizer.json", "vocab.txt", "tokenizer_config.json"}


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
    """Learns a vocabulary from text and writes a tokenizer folder.

    Args:
        inputs: files, folders, globs, `hf:` names, or `-` (`jsonl:-`) for standard input.
        out: the folder to make; `transformers.AutoTokenizer` loads it.
        config: the vocabulary.
        text_field: of a JSONL or Parquet row.
        strict: refuse text that is not clean.
        overwrite: replace a tokenizer folder that stands at `out`.
        progress: where to tell how far it is.

    Returns:
        vocab_size (entries learned), tokenizer_sha256.

    Raises:
        BertptError: an input, a setting or the output is at fault.
    """
    progress = progress or Progress()
    files.refuse_existing(out, overwrite=overwrite, is_ours=_is_tokenizer_folder)
    corpus = Corpus(inputs, sentence_per_line=True, text_field=text_field, strict=strict)
    with files.new_folder(out) as work:
        with progress.bar("reading", unit="B", unit_scale=True, total=corpus.total_bytes) as bar:
            lines = (line for document in corpus.with_progress(bar) for line in document)
            tokenizer = learn(lines, config, source=corpus.name, progress=progress)
        tokenizer.save(work)
    vocab_size = len(tokenizer.vocab)
    if vocab_size < config.vocab_size:
        progress.log(
            f"warning: the text gave {vocab_size} entries, fewer than the {config.vocab_size} "
            "asked for"
        )
    return {"vocab_size": vocab_size, "tokenizer_sha256": tokenizer.fingerprint}


def _is_tokenizer_folder(path: Path) -> bool:
    return path.is_dir() and {file.name for file in path.iterdir()} == FILES


def learn(
    texts: Iterable[str],
    config: TokenizerConfig,
    *,
    source: str = "the text",
    progress: Progress | None = None,
) -> Tokenizer:
    """Learns a WordPiece vocabulary; the same texts, in any order, give the same bytes.

    The tokenizers library numbers the characters in the order of a hash map and breaks ties
    between merges by those numbers (huggingface/tokenizers#1794). Here the words are counted
    first and the trainer gets every character, sorted, as if it were a special token: then
    nothing is left for the hash to decide.

    Args:
        texts: any strings; no word crosses from one to the next.
        config: the vocabulary.
        source: where they come from, for the message when there is nothing in them.
        progress: where to tell how far it is.

    Raises:
        InputError: the texts hold no word.
        SettingError: the vocabulary is too small for the alphabet.
    """
    progress = progress or Progress()
    words = count_words(texts, config, progress=progress)
    if not words:
        raise InputError(f"{source}: no text in it")
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
    """Lets the library train, in a thread of its own, for where it works no signal is noticed."""
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
            # The words are taken in, and then the library says no more.
            while not wait([training], SECONDS_BETWEEN_SIGNS).done:
                if bar.n >= total:
                    bar.refresh()
            training.result()
        finally:
            is_left.set()


def count_words(
    texts: Iterable[str], config: TokenizerConfig, *, progress: Progress | None = None
) -> Counter[str]:
    """How often each word occurs, after BERT's cleaning, splitting at spaces and punctuation."""
    cleaning = normalizer(lowercase=config.lowercase, strip_accents=config.strips_accents)
    pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # Most chunks between spaces repeat, so each distinct one is cleaned and split only once.
    # Long chunks (text without spaces) hardly ever repeat and would only fill the memory.
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
    """The one-character pieces to keep: first those that start words, then those inside."""
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
            f"{config.vocab_size} is too small: the special tokens and the characters of this text "
            f"need {needed}; raise it, or keep fewer characters with `limit_alphabet`",
        )
    return pieces


def _repeated(words: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Each word as often as it was counted, in lines of bounded length; the words in each line."""
    for word, count in words.items():
        full, rest = divmod(count, 1000)
        line = f"{word} " * 1000
        yield from ((line, 1000) for _ in range(full))
        yield f"{word} " * rest, rest

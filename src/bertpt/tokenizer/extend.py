"""Add the words of a domain to a model's vocabulary; all other ids stay as they are."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bertpt import files
from bertpt.corpus.corpus import Corpus
from bertpt.errors import InputError, SettingError
from bertpt.outputs import refuse_existing
from bertpt.progress import Progress
from bertpt.tokenizer.added import with_tokens
from bertpt.tokenizer.choose import NUM_ROUNDS, choose_tokens
from bertpt.tokenizer.tokenizer import Tokenizer, load_tokenizer
from bertpt.tokenizer.train import count_words, is_tokenizer_folder, log_findings, reading


def extend_tokenizer(
    inputs: Sequence[str],
    out: Path,
    *,
    model: Path,
    num_added: int,
    min_frequency: int = 2,
    text_field: str = "text",
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Add the tokens that shorten a text most to a vocabulary, and write a tokenizer folder.

    New tokens take the places of [unusedN] entries first; the rest is appended. `pretrain` with
    `init_from` gives the model embeddings for them.

    Args:
        inputs: as in `bertpt.tokenizer.train.train_tokenizer`.
        out: the folder to write.
        model: a model, tokenizer, RUN or DATA folder whose vocabulary to extend.
        num_added: tokens to add.
        min_frequency: do not add a token that occurs less often.
        text_field: the field of a row that contains the text.
        strict: refuse text that needs repair.
        overwrite: replace an existing tokenizer folder at `out`.
        progress: receives progress bars and warnings.

    Returns:
        vocab_size, num_added, num_unused_replaced, tokens_per_word and unknown_share, each
        {"before", "after"}, tokenizer_sha256.

    Raises:
        BertptError: an input, the model's tokenizer or `out` is invalid.
    """
    progress = progress or Progress()
    if num_added < 1:
        raise SettingError("add", f"{num_added} must be at least 1")
    check = partial(refuse_existing, out, overwrite=overwrite, is_ours=is_tokenizer_folder)
    check()
    base = load_tokenizer(model)
    if not base.splits_at_spaces:
        raise InputError(
            f"cannot extend {model}: its tokenizer does not clean and split text as BERT's does"
        )
    corpus = Corpus(inputs, sentence_per_line=True, text_field=text_field, strict=strict)
    with files.new_folder(out, recheck=check) as work:
        with reading(corpus, progress) as lines:
            words = count_words(lines, base.backend.normalizer, progress=progress)
        if not words:
            raise InputError(f"{corpus.name}: contains no text")
        with progress.bar("choosing", unit="round", total=NUM_ROUNDS, leave=False) as bar:
            tokens = choose_tokens(
                words, base, num_added, min_frequency=min_frequency, on_round=bar.update
            )
        extended = with_tokens(base, tokens)
        extended.save(work)
    log_findings(corpus, progress)
    if len(tokens) < num_added:
        progress.log(
            f"warning: added {len(tokens)} tokens instead of {num_added}: the text has no more"
        )
    before, after = (_measure(words, tokenizer) for tokenizer in (base, extended))
    num_unused = sum(token not in extended.vocab for token in base.vocab)
    return {
        "vocab_size": len(extended.vocab),
        "num_added": len(tokens),
        "num_unused_replaced": num_unused,
        "tokens_per_word": {"before": before.tokens_per_word, "after": after.tokens_per_word},
        "unknown_share": {"before": before.unknown_share, "after": after.unknown_share},
        "tokenizer_sha256": extended.fingerprint,
    }


class _Measure(NamedTuple):
    tokens_per_word: float
    unknown_share: float  # of the words


def _measure(words: Mapping[str, int], tokenizer: Tokenizer) -> _Measure:
    num_words = num_tokens = num_unknown = 0
    for word, count in words.items():
        pieces = tokenizer.backend.model.tokenize(word)
        num_words += count
        num_tokens += count * len(pieces)
        num_unknown += count * (pieces[0].id == tokenizer.unk_id)
    return _Measure(num_tokens / num_words, num_unknown / num_words)

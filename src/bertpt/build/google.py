"""Documents -> the examples that google-research/bert makes of them, masks included.

Source: `create_pretraining_data.py` of https://github.com/google-research/bert. As in that script,
all random numbers come from one `random.Random`, in the same order.
"""

import random
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import numpy as np

from bertpt.build.documents import StoredDocuments
from bertpt.build.pairs import IS_NEXT, NUM_SPECIAL, RANDOM, Pair
from bertpt.build.sequences import build_sequences
from bertpt.data.example import Example, token_dtype
from bertpt.tokenizer.tokenizer import Tokenizer

MAX_TRIES = 10  # to draw a document other than A's
CONTINUING_PREFIX = "##"


def google_examples(
    documents: StoredDocuments,
    *,
    seq_len: int,
    short_seq_prob: float,
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    dupe_factor: int,
    whole_word: bool,
    seed: int,
    vocabulary: Tokenizer,
    scratch: Path,
    on_pair: Callable[[Pair, Pair], object] | None = None,
    on_document: Callable[[], object] | None = None,
) -> Iterator[Example]:
    """Yield the examples that google-research/bert makes of the same documents, in its order.

    This reproduces the faults that `PairMaker` and `Masking` fix:

    - A single sentence (a document's last one left over, its only one, or one as long as an
      example) always gets a random B, so more than half of the labels are random.
    - A random B may come from A's own document: always if there is no other, and with a
      probability of 1 in 2^10 if there is one other.
    - A random B is as long as the example has room, a true B as long as its sentences, so the
      length leaks the label. A random B may start at a document's first sentence, where no true B
      does, and may be the true continuation.
    - Short documents occur in random Bs as often as long ones, which is too often.
    - All of a document's examples in a pass have the same target length.
    - Tokens cut off by truncation occur in no other example of the pass.
    - A random replacement may be [PAD], [CLS], [SEP], [MASK], [UNK] or an unused entry.
    - With `whole_word`, if B was cut inside a word, its first pieces belong to A's last word; the
      word "##" is a piece of the word before it; and an example in which every word is too long
      has nothing to predict.

    The order is drawn last, so all examples go to a temporary file first. Memory: 16 bytes an
    example, and 8 a document.

    Args:
        documents: in the order they were read.
        seq_len: tokens in an example, [CLS] and both [SEP] included (Google's max_seq_length).
        short_seq_prob: share of the documents, in each pass, with a shorter target length.
        masked_lm_prob: share of an example's tokens to predict.
        max_predictions_per_seq: maximum number of tokens to predict; `seq_len` sets no limit.
        dupe_factor: passes over the documents.
        whole_word: predict all pieces of a word or none (Google's do_whole_word_mask).
        seed: of `random.Random` (Google's random_seed, 12345 by default).
        vocabulary: the tokenizer that made the ids.
        scratch: a folder for the temporary file.
        on_pair: called with each pair before and after truncation.
        on_document: called after each document, `dupe_factor` times for each.
    """
    rng = random.Random(seed)  # noqa: S311  # reproduces the script's generator
    maker = _PairMaker(
        documents,
        rng,
        max_num_tokens=seq_len - NUM_SPECIAL,
        short_seq_prob=short_seq_prob,
    )
    masker = _Masker(
        vocabulary,
        rng,
        masked_lm_prob=masked_lm_prob,
        max_predictions_per_seq=max_predictions_per_seq,
        whole_word=whole_word,
    )
    with TemporaryFile(dir=scratch) as file:
        stored = _ExampleFile(file, token_dtype(len(vocabulary.vocab)))
        for _ in range(dupe_factor):
            for number in range(len(documents)):
                for untruncated in maker.pairs(number):
                    pair = _truncate(untruncated, seq_len - NUM_SPECIAL, rng)
                    if on_pair:
                        on_pair(untruncated, pair)
                    ids, _, b_start = build_sequences([pair], documents.tokens, vocabulary)
                    label = pair.next_sentence_label
                    stored.add(Example(ids, int(b_start[0]), label, *masker.mask(ids)))
                if on_document:
                    on_document()
        yield from stored.read(_shuffled(len(stored), rng))


def _shuffled(length: int, rng: random.Random) -> "array[int]":
    """Return 0 to length - 1, shuffled as Google's script shuffles a list of that length."""
    order = array("q", range(length))
    rng.shuffle(order)
    return order


# ----------------------------------------------------------------------------------------- pairs


class _PairMaker:
    """Google's create_instances_from_document, without the masks.

    Documents are numbered in shuffled order, as in the script's shuffled list.
    """

    def __init__(
        self,
        documents: StoredDocuments,
        rng: random.Random,
        *,
        max_num_tokens: int,
        short_seq_prob: float,
    ) -> None:
        self._documents = documents
        self._rng = rng
        self._max_num_tokens = max_num_tokens
        self._short_seq_prob = short_seq_prob
        self._order = _shuffled(len(documents), rng)

    def pairs(self, number: int) -> Iterator[Pair]:
        """Yield the pairs of one document; the caller may use `rng` between two pairs.

        Google's script collects sentences one by one and steps back over those that a random B
        replaced; here a chunk is `start` to `end`, and the next one starts at the end of A.
        """
        rng = self._rng
        ends = self._documents.ends(self._order[number]).tolist()
        target = self._max_num_tokens
        if rng.random() < self._short_seq_prob:
            target = rng.randint(2, self._max_num_tokens)
        start = 0
        while start < len(ends) - 1:
            end = _end(ends, start, target)
            middle = start + (1 if end - start == 1 else rng.randint(1, end - start - 1))
            a_start, a_end, b_end = ends[start], ends[middle], ends[end]
            # For a chunk of one sentence, no random number is drawn.
            if end - start == 1 or rng.random() < 0.5:
                b = self._random_b(number, target - (a_end - a_start))
                start = middle
                yield Pair(a_start, a_end, *b, RANDOM)
            else:
                start = end
                yield Pair(a_start, a_end, a_end, b_end, IS_NEXT)

    def _random_b(self, number: int, num_tokens: int) -> tuple[int, int]:
        """Draw a document and a sentence in it; return `num_tokens` from there or the rest."""
        for _ in range(MAX_TRIES):
            other = self._rng.randint(0, len(self._documents) - 1)
            if other != number:
                break
        ends = self._documents.ends(self._order[other])
        start = self._rng.randint(0, len(ends) - 2)
        return int(ends[start]), int(ends[_end(ends, start, num_tokens)])


def _end(ends: "Sequence[int] | np.ndarray", start: int, num_tokens: int) -> int:
    """Return the end of a chunk with at least `num_tokens` and one sentence."""
    end = bisect_left(ends, ends[start] + num_tokens)
    return min(max(end, start + 1), len(ends) - 1)


def _truncate(pair: Pair, max_num_tokens: int, rng: random.Random) -> Pair:
    """Google's truncate_seq_pair: the longer one loses a token, B if both are equal."""
    starts, ends = [pair.a_start, pair.b_start], [pair.a_end, pair.b_end]
    lengths = [end - start for start, end in zip(starts, ends, strict=True)]
    while sum(lengths) > max_num_tokens:
        longer = 0 if lengths[0] > lengths[1] else 1
        starts[longer] += rng.random() < 0.5  # from the front, otherwise from the back
        lengths[longer] -= 1
    (a, b), (num_a, num_b) = starts, lengths
    return Pair(a, a + num_a, b, b + num_b, pair.next_sentence_label)


# ----------------------------------------------------------------------------------------- masks


class _Masker:
    """Google's create_masked_lm_predictions."""

    def __init__(
        self,
        vocabulary: Tokenizer,
        rng: random.Random,
        *,
        masked_lm_prob: float,
        max_predictions_per_seq: int,
        whole_word: bool,
    ) -> None:
        self._rng = rng
        self._masked_lm_prob = masked_lm_prob
        self._max_predictions_per_seq = max_predictions_per_seq
        self._mask_id = vocabulary.mask_id
        self._separators = {vocabulary.cls_id, vocabulary.sep_id}
        self._last_id = len(vocabulary.vocab) - 1
        # Not vocabulary.continues, for which the token "##" is a word.
        tokens = vocabulary.vocab if whole_word else ()
        self._pieces = {i for i, token in enumerate(tokens) if token.startswith(CONTINUING_PREFIX)}

    def mask(self, input_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions to predict, ascending, and the ids that the model sees there."""
        ids = input_ids.tolist()
        wanted = min(self._max_predictions_per_seq, max(1, round(len(ids) * self._masked_lm_prob)))
        words = self._words(ids)
        self._rng.shuffle(words)
        seen: dict[int, int] = {}
        for word in words:
            if len(seen) >= wanted:
                break
            if len(seen) + len(word) <= wanted:
                seen.update((position, self._replacement(ids[position])) for position in word)
        positions = sorted(seen)
        return np.array(positions, int), np.array([seen[i] for i in positions], int)

    def _words(self, ids: list[int]) -> list[list[int]]:
        """Return the positions of each word, or of each token without `whole_word`."""
        words: list[list[int]] = []
        for position, token in enumerate(ids):
            if token in self._separators:
                continue
            if words and token in self._pieces:
                words[-1].append(position)
            else:
                words.append([position])
        return words

    def _replacement(self, token: int) -> int:
        if self._rng.random() < 0.8:
            return self._mask_id
        if self._rng.random() < 0.5:
            return token
        return self._rng.randint(0, self._last_id)


# ---------------------------------------------------------------------------------- temporary file


class _ExampleFile:
    """Examples in a flat file, written in one order and read in another.

    A record is b_start, label, number of masks, their positions, what the model sees there, ids.

    Args:
        file: empty, open for reading and writing.
        dtype: of ids. Positions fit too, since `seq_len` is at most 65,535.
    """

    def __init__(self, file: IO[bytes], dtype: np.dtype) -> None:
        self._file = file
        self._dtype = dtype
        self._ends = array("q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def add(self, example: Example) -> None:
        ids, b_start, label, positions, seen = example
        head = [b_start, label, len(positions), *positions, *seen]
        self._file.write(np.array(head, self._dtype).tobytes())
        self._file.write(ids.astype(self._dtype).tobytes())
        self._ends.append(self._ends[-1] + len(head) + len(ids))

    def read(self, order: "array[int]") -> Iterator[Example]:
        if not len(self):
            return  # mmap rejects an empty file
        self._file.flush()
        stored = np.asarray(np.memmap(self._file, self._dtype, mode="r"))
        for number in order:
            record = stored[self._ends[number] : self._ends[number + 1]]
            b_start, label, count = record[:3].tolist()
            positions, seen, ids = np.split(record[3:], [count, 2 * count])
            yield Example(ids, b_start, label, positions, seen)

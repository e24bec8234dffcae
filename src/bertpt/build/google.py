"""Documents -> the examples of google-research/bert, draw for draw, masks included.

Source: `create_pretraining_data.py` of https://github.com/google-research/bert. Only here do the
draws come from `random.Random` and depend on all that was drawn before, since that script's do.
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
from bertpt.build.pairs import IS_NEXT, NUM_SPECIAL, RANDOM, Pair, join
from bertpt.data.example import Example, token_dtype
from bertpt.tokenizer.tokenizer import Tokenizer

DRAWS = 10  # of a random document, until one is another than A's
WORD_PIECE = "##"  # how a token begins that goes on with a word


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
    """The instances that google-research/bert makes of the same documents, in its final order.

    What is reproduced includes what `PairMaker` and `Masking` mend:

    - a sentence that is alone (a document's last one left over, its only one, or one as long as
      an example) always gets a random B, so that more than half of the labels say random;
    - a random B may come from A's own document: always where there is no other, and with a
      chance of one in 2^10 where there is one other;
    - a random B is as long as the example has room, a true B as long as its sentences, so
      length gives the label away; it starts at a document's first sentence too, where no true B
      does, and nobody looks whether it is the true continuation;
    - short documents turn up in random Bs as often as long ones, and so too often;
    - one target length serves all of a document's examples in a pass;
    - tokens are lost: those that are cut off to fit turn up in no other example of the pass;
    - a random replacement may be [PAD], [CLS], [SEP], [MASK], [UNK] or an unused entry;
    - with `whole_word`, a B that was cut inside a word lends its first pieces to A's last word, a
      word that is spelled ## is a piece of the one before it, and an example in which no word is
      short enough has nothing to predict.

    All examples go to a temporary file before the first comes out, as the order is drawn last:
    the memory needed is 16 bytes an example, and 8 a document.

    Args:
        documents: in the order they were read.
        seq_len: tokens in an example, [CLS] and both [SEP] included (Google's max_seq_length).
        short_seq_prob: share of the documents, in each pass, that aim at shorter examples.
        masked_lm_prob: share of an example's tokens to predict.
        max_predictions_per_seq: cap on their number; `seq_len` never binds.
        dupe_factor: passes over the documents.
        whole_word: predict all pieces of a word or none (Google's do_whole_word_mask).
        seed: of `random.Random` (Google's random_seed, 12345 by default).
        vocabulary: the ids' tokenizer.
        scratch: a folder for the temporary file, which is gone in the end.
        on_pair: given each pair before and after it was cut to fit.
        on_document: called when a document has been passed over, `dupe_factor` times for each.
    """
    rng = random.Random(seed)  # noqa: S311  # the generator that is to be reproduced
    maker = _Maker(
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
        shelf = _Shelf(file, token_dtype(len(vocabulary.vocab)))
        for _ in range(dupe_factor):
            for number in range(len(documents)):
                for whole in maker.pairs(number):
                    pair = _truncate(whole, seq_len - NUM_SPECIAL, rng)
                    if on_pair:
                        on_pair(whole, pair)
                    ids, _, b_start = join([pair], documents.tokens, vocabulary)
                    label = pair.next_sentence_label
                    shelf.add(Example(ids, int(b_start[0]), label, *masker.draw(ids)))
                if on_document:
                    on_document()
        yield from shelf.read(_shuffled(len(shelf), rng))


def _shuffled(length: int, rng: random.Random) -> "array[int]":
    """The numbers below `length`, moved as Google's script moves a list of as many things."""
    order = array("q", range(length))
    rng.shuffle(order)
    return order


# ----------------------------------------------------------------------------------------- pairs


class _Maker:
    """Google's create_instances_from_document, up to the masks.

    Documents are numbered in shuffled order, as the script's shuffled list has them.
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
        """The pairs of one document; what is drawn between two of them comes between their draws.

        Google's script collects sentences one by one and steps back over those that a random B
        replaced; here a chunk is `start` to `end`, and the next one starts where A ended.
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
            # Nothing is drawn for a chunk of one sentence.
            if end - start == 1 or rng.random() < 0.5:
                b = self._random_b(number, target - (a_end - a_start))
                start = middle
                yield Pair(a_start, a_end, *b, RANDOM)
            else:
                start = end
                yield Pair(a_start, a_end, a_end, b_end, IS_NEXT)

    def _random_b(self, number: int, num_tokens: int) -> tuple[int, int]:
        """Sentences from anywhere in a drawn document, until they have `num_tokens` or it ends."""
        for _ in range(DRAWS):
            other = self._rng.randint(0, len(self._documents) - 1)
            if other != number:
                break
        ends = self._documents.ends(self._order[other])
        start = self._rng.randint(0, len(ends) - 2)
        return int(ends[start]), int(ends[_end(ends, start, num_tokens)])


def _end(ends: "Sequence[int] | np.ndarray", start: int, num_tokens: int) -> int:
    """The end of a run of sentences with `num_tokens` or more, one sentence at least."""
    end = bisect_left(ends, ends[start] + num_tokens)
    return min(max(end, start + 1), len(ends) - 1)


def _truncate(pair: Pair, max_num_tokens: int, rng: random.Random) -> Pair:
    """Google's truncate_seq_pair: the longer one loses a token, B where both are equal."""
    starts, ends = [pair.a_start, pair.b_start], [pair.a_end, pair.b_end]
    lengths = [end - start for start, end in zip(starts, ends, strict=True)]
    while sum(lengths) > max_num_tokens:
        longer = 0 if lengths[0] > lengths[1] else 1
        starts[longer] += rng.random() < 0.5  # from its front, or else from its back
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
        # Not vocabulary.continues, which knows that the token ## alone is a word.
        tokens = vocabulary.vocab if whole_word else ()
        self._pieces = {i for i, token in enumerate(tokens) if token.startswith(WORD_PIECE)}

    def draw(self, input_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The positions to predict, ascending, and the ids that the model sees there."""
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
        """The positions of each word, or of each token where whole words are not asked for."""
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


# ------------------------------------------------------------------------------------- on the disk


class _Shelf:
    """Examples in a flat file, written in one order and read in another.

    Each is b_start, label, number of masks, their positions, what the model sees there, the ids.

    Args:
        file: empty, open for reading and writing.
        dtype: that of ids. Positions fit into it as well: `seq_len` is 65,535 at most.
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
            return  # an empty file cannot be mapped
        self._file.flush()
        stored = np.asarray(np.memmap(self._file, self._dtype, mode="r"))
        for number in order:
            record = stored[self._ends[number] : self._ends[number + 1]]
            b_start, label, count = record[:3].tolist()
            positions, seen, ids = np.split(record[3:], [count, 2 * count])
            yield Example(ids, b_start, label, positions, seen)

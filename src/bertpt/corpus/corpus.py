"""Iterate over the documents of all inputs, as lists of sentences."""

import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from bertpt.config import parse_shard
from bertpt.corpus.inputs import NAME_THEM, display_name, find_files, identity, size_on_disk
from bertpt.corpus.readers import Document, read_documents
from bertpt.corpus.sentences import SentenceSplitter
from bertpt.corpus.wrapped import LineWidths, unwrapped
from bertpt.errors import InputError, SettingError
from bertpt.rng import evenly_spaced

LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")
MAX_SAMPLED_FILES = 64


class Piece(NamedTuple):
    """Consecutive sentences of one document; a long document comes in several pieces."""

    sentences: list[str]
    ends_document: bool


@dataclass
class Corpus:
    """Documents of INPUT arguments; iterate for the sentences of each, or for `pieces` of them.

    `bertpt.corpus.readers.read_documents` says what a document is. No sentence crosses lines.

    Args:
        inputs: files, folders, globs, `hf:` names, or `-` (also `jsonl:-`) for standard input. A
            file given twice is read once: otherwise its text would be trained on and held out.
        language: ISO 639 code of the sentence splitter.
        sentence_per_line: take each line as a sentence.
        text_field: the field of a row that contains the text.
        unwrap: join the lines of hard-wrapped paragraphs.
        strict: refuse text that needs repair.
        shard: I/N, to read only the I-th of N parts: every N-th file, or every N-th document if
            there are fewer files than parts. Only that part is counted.
        sample_bytes: read about so many bytes of text: the starts of up to `MAX_SAMPLED_FILES`
            files, evenly spaced, and at least one document. A document of plain text that exceeds
            the sample is cut after a sentence.

    Attributes:
        files: the files of this part.
        ignored: a message about files in folders that are not read, or "".
        counts: what was found in the last pass, by the names in `findings.COUNTS`.
        problems: where each kind of repair was needed first, by the names in `findings.COUNTS`.
        is_sampled: whether the last pass left text out.
        num_bytes: bytes read so far on disk; for `hf:` names, bytes of text.
        num_text_bytes: uncompressed bytes read so far.

    Raises:
        InputError: an input does not exist; while iterating: it is damaged or not text, or, with
            `strict`, needs repair.
        SettingError: `language` is not an ISO 639 code, `text_field` is empty, or there is no such
            shard.
    """

    inputs: Sequence[str]
    language: str = "en"
    sentence_per_line: bool = False
    text_field: str = field(default="text", kw_only=True)
    unwrap: bool = field(default=False, kw_only=True)
    strict: bool = field(default=False, kw_only=True)
    shard: str | None = field(default=None, kw_only=True)
    sample_bytes: int | None = field(default=None, kw_only=True)
    files: list[str] = field(init=False)
    ignored: str = field(init=False)
    counts: Counter[str] = field(init=False, default_factory=Counter)
    problems: dict[str, str] = field(init=False, default_factory=dict)
    is_sampled: bool = field(init=False, default=False)
    num_bytes: int = field(init=False, default=0)
    num_text_bytes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if not LANGUAGE_CODE.fullmatch(self.language):
            raise SettingError(
                "language", f"{self.language} is not an ISO 639 code such as en, de or zh"
            )
        if not self.text_field:
            raise SettingError("text_field", "'' is not a field name")
        part, num_parts = parse_shard(self.shard)
        by_identity: dict[object, list[str]] = {}
        found = find_files(self.inputs)
        self.ignored = found.describe_ignored()
        if self.ignored:
            self.ignored = f"ignored {self.ignored}; {NAME_THEM}"
        for file in found.files:
            by_identity.setdefault(identity(file), []).append(file)
        groups = list(by_identity.values())
        self._part_of_documents = (part - 1, num_parts)
        if len(groups) >= num_parts:
            groups = groups[part - 1 :: num_parts]
            self._part_of_documents = (0, 1)
        self.files = [group[0] for group in groups]
        self._num_repeated_files = sum(len(group) - 1 for group in groups)

    @property
    def name(self) -> str:
        """The first files, for messages."""
        names = [display_name(file) for file in self.files[:3]]
        return ", ".join(names) + (", ..." if len(self.files) > 3 else "")

    @cached_property
    def total_bytes(self) -> int | None:
        """The size of all files on disk, or `None` if not all are files."""
        sizes = [size_on_disk(file) for file in self.files]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def __iter__(self) -> Iterator[list[str]]:
        document: list[str] = []
        for piece in self.pieces():
            document += piece.sentences
            if piece.ends_document:
                yield document
                document = []

    def pieces(self) -> Iterator[Piece]:
        """Iterate in bounded memory; documents without sentences are left out."""
        self.counts = Counter(repeated_files=self._num_repeated_files)
        self.problems = {}
        self.is_sampled = False
        self.num_bytes = self.num_text_bytes = 0
        splitter = SentenceSplitter(None if self.sentence_per_line else self.language)
        has_sentences = False
        for document in self._this_part():
            if self.strict and document.first_problem:
                raise InputError(f"{document.first_problem}; repair it, or leave out `strict`")
            sentences = [part for line in document.lines for part in splitter.split(line)]
            self.counts.update(document.counts, cut_sentences=splitter.num_cuts)
            self.problems = document.problems | self.problems
            splitter.num_cuts = 0
            has_sentences |= bool(sentences)
            if sentences or (has_sentences and not document.continues):
                yield Piece(sentences, not document.continues)
            has_sentences &= document.continues

    def with_progress(self, bar: Any) -> Iterator[Piece]:
        """Iterate over `pieces`, updating a progress bar with the bytes read."""
        for piece in self.pieces():
            yield piece
            bar.update(max(0, self.num_bytes - bar.n))  # estimates may go down
        bar.update(max(0, self.num_bytes - bar.n))
        bar.close()

    def _this_part(self) -> Iterator[Document]:
        part, num_parts = self._part_of_documents
        number, has_text = 0, False
        for document in self._sample() if self.sample_bytes else self._all():
            if number % num_parts == part:
                yield document
            has_text |= document.has_text
            if not document.continues:
                number += has_text
                has_text = False

    def _all(self) -> Iterator[Document]:
        for file in self.files:
            yield from self._read(file)

    def _sample(self) -> Iterator[Document]:
        wanted = self.sample_bytes or 0
        chosen = [self.files[i] for i in evenly_spaced(len(self.files), MAX_SAMPLED_FILES)]
        # Every eighth file first: even a sample that few documents fill is spread over the files.
        files = [file for first in range(8) for file in chosen[first::8]]
        for number, file in enumerate(files):
            missing = wanted - self.num_text_bytes
            end = self.num_text_bytes + missing / (len(files) - number)
            with closing(self._read(file, max_text_bytes=missing)) as documents:
                for document in documents:
                    yield document
                    if self.num_text_bytes >= end and not document.continues:
                        self.is_sampled = True
                        break
            if self.num_text_bytes >= wanted:
                break
        self.is_sampled |= len(files) < len(self.files) or number + 1 < len(files)

    def _read(
        self, file: str, *, max_text_bytes: int | None = None
    ) -> Generator[Document, None, None]:
        before = self.num_bytes
        documents = read_documents(file, text_field=self.text_field, max_text_bytes=max_text_bytes)
        widths = LineWidths()
        with closing(unwrapped(documents) if self.unwrap else documents) as documents:
            try:
                for document in documents:
                    self.num_bytes = before + document.num_bytes_read
                    self.num_text_bytes += document.num_text_bytes
                    widths.add(document.lines)
                    yield document
            finally:
                self.counts["wrapped_files"] += widths.are_wrapped
        # Blank lines and empty rows may follow the last document.
        self.num_bytes = max(self.num_bytes, before + (size_on_disk(file) or 0))

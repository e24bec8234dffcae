"""A temporary copy of the text: learning a vocabulary reads it, and a pipe is read only once."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from bertpt.corpus.corpus import Piece

SENTENCES_PER_PIECE = 1 << 13


class TextSpool:
    """Documents of sentences in a text file: iterate to read them back.

    Attributes:
        num_documents: documents written.
        num_sentences: sentences written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.num_documents = self.num_sentences = 0

    def write(self, pieces: Iterable[Piece]) -> Iterator[str]:
        """Write documents, and yield each sentence as it is written."""
        with self._path.open("w", encoding="utf-8", newline="\n") as file:
            for sentences, ends_document in pieces:
                for sentence in sentences:
                    file.write(f"{sentence}\n")
                    yield sentence
                self.num_sentences += len(sentences)
                if ends_document:
                    file.write("\n")
                    self.num_documents += 1

    def __iter__(self) -> Iterator[Piece]:
        sentences: list[str] = []
        with self._path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                ends_document = line == "\n"
                if not ends_document:
                    sentences.append(line[:-1])
                if ends_document or len(sentences) >= SENTENCES_PER_PIECE:
                    yield Piece(sentences, ends_document)
                    sentences = []

    def remove(self) -> None:
        """Delete the file, if there is one."""
        self._path.unlink(missing_ok=True)

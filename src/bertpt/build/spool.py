"""A temporary copy of the text: learning a vocabulary reads it, and a pipe is read only once."""

from collections.abc import Iterable, Iterator
from pathlib import Path


class TextSpool:
    """Documents of sentences in a text file: iterate to read them back.

    Attributes:
        num_documents: documents written.
        num_sentences: sentences written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.num_documents = self.num_sentences = 0

    def write(self, documents: Iterable[list[str]]) -> Iterator[str]:
        """Write documents, and yield each sentence as it is written."""
        with self._path.open("w", encoding="utf-8", newline="\n") as file:
            for document in documents:
                for sentence in document:
                    file.write(f"{sentence}\n")
                    yield sentence
                file.write("\n")
                self.num_documents += 1
                self.num_sentences += len(document)

    def __iter__(self) -> Iterator[list[str]]:
        document: list[str] = []
        with self._path.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                if line == "\n":
                    yield document
                    document = []
                else:
                    document.append(line[:-1])

    def remove(self) -> None:
        """Delete the file, if there is one."""
        self._path.unlink(missing_ok=True)

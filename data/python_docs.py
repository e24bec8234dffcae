"""Print the documentation that every Python ships, as text for build-data.

The text is the topics of the language reference (`help("if")` shows one), then the docstrings of
each module of the standard library. Each paragraph is a line; a blank line separates documents.

    python data/python_docs.py | bertpt build-data - --out data
"""

import ast
import re
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

MARKUP = re.compile(r"^[*=\-~^#+|\s]+$|\*\*|``|\[\d+\]", re.MULTILINE)
MIN_CHARACTERS = 200  # a shorter document rarely has two sentences to pair


def documents() -> Iterator[str]:
    """Yield the documents, always in the same order."""
    for name in sorted(topics):
        yield topics[name]
    library = Path(sysconfig.get_path("stdlib"))
    for source in sorted(library.rglob("*.py"), key=lambda path: path.as_posix()):
        folders = source.relative_to(library).parts[:-1]
        if not {"site-packages", "test", "tests", "idle_test"} & set(folders):
            yield "\n\n".join(docstrings(source))


def docstrings(source: Path) -> Iterator[str]:
    """Yield the docstrings of a module, its own first."""
    try:
        tree = ast.parse(source.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def paragraphs(text: str) -> Iterator[str]:
    """Yield prose paragraphs as one line each, without code, tables and markup."""
    for paragraph in re.split(r"\n\s*\n", textwrap.dedent(text)):
        is_code = paragraph.startswith((" ", "\t")) or ">>>" in paragraph or "::=" in paragraph
        line = " ".join(MARKUP.sub("", paragraph).split())
        if not is_code and re.search(r"[a-z]{2} [a-z]", line):
            yield line


def main() -> None:
    """Print every document that is long enough."""
    for document in documents():
        text = "\n".join(paragraphs(document))
        if len(text) >= MIN_CHARACTERS:
            print(text, end="\n\n")


if __name__ == "__main__":
    main()

"""What is counted while text is read, and the warnings about it."""

from collections.abc import Mapping

RENAME_ROWS = (
    "rename them to end in .jsonl, .json, .csv or .tsv (jsonl:-, csv:- or tsv:- for standard input)"
)
# What `Corpus.counts` counts; each gives a warning unless it is 0.
COUNTS = {
    "replaced_lines": "lines were not valid UTF-8; the bad bytes became U+FFFD",
    "repeated_files": "inputs were given more than once, and read once",
    "nul_lines": "lines contained NUL characters, which were removed",
    "surrogate_rows": "rows contained half a surrogate pair, which became U+FFFD",
    "empty_rows": "rows contained no text and were left out",
    "cut_sentences": "times a sentence of more than 65,536 characters was cut",
    "cut_lines": "times a line of more than 4 MB was cut",
    "wrapped_files": "inputs have hard-wrapped lines, at which sentences are cut; join them with "
    "`unwrap`",
    "row_like_files": f"inputs look like JSON, CSV or TSV but were read as text; {RENAME_ROWS}",
    "gutenberg_files": "inputs contain Project Gutenberg's header or licence, which every book "
    "repeats; keep only the text between the *** START and *** END lines",
}


def describe(counts: Mapping[str, int], problems: Mapping[str, str]) -> list[str]:
    """Return a warning for each count that is not 0.

    Args:
        counts: by the names in `COUNTS`.
        problems: where each kind of repair was needed first, by the same names.
    """
    return [
        f"{counts[name]} {what}" + (f"; the first is {problems[name]}" if name in problems else "")
        for name, what in COUNTS.items()
        if counts[name]
    ]

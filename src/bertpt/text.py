"""Text for messages and files: sizes in words, paths and strings that UTF-8 can encode."""

import os
import re

CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")  # C0 except the line feed, DEL, C1


def format_size(num_bytes: float) -> str:
    """Format a number of bytes for a message, such as "1.5 MB"."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.1f} {unit}" if unit != "bytes" else f"{num_bytes:.0f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} TB"


def without_controls(text: str) -> str:
    r"""Escape the control characters that a terminal would obey, such as ESC as \x1b."""
    return CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def shorten(text: str, max_length: int = 200) -> str:
    """Cut a long text for a message."""
    return text if len(text) <= max_length else f"{text[: max_length - 3]}..."


def printable(path: object) -> str:
    """Return a path, or another shell word, with U+FFFD in place of bytes that are not UTF-8."""
    return os.fsencode(str(path)).decode("utf-8", "replace")


def without_surrogates(text: str) -> str:
    """Replace lone surrogates (a shell's raw bytes, half a JSON escape) by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

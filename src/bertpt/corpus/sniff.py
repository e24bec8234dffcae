"""Recognise files that are not plain text from their first bytes."""

import re

BOM = b"\xef\xbb\xbf"
# Signatures of binary files and other encodings, UTF-32 before UTF-16, which starts alike.
SIGNATURES = {
    re.compile(rb"PK\x03\x04"): "a zip archive; unpack it first",
    re.compile(rb"%PDF-"): "a PDF; extract its text first",
    re.compile(
        rb"\xff\xfe\0\0|\0\0\xfe\xff"
    ): "UTF-32; convert it first (iconv -f UTF-32 -t UTF-8)",
    re.compile(rb"\xff\xfe|\xfe\xff"): "UTF-16; convert it first (iconv -f UTF-16 -t UTF-8)",
}
HTML = "HTML; extract its text first, for example with trafilatura or html2text"
XML = "XML; extract its text first, for example with xml.etree in Python"
MEDIAWIKI = "a MediaWiki dump; extract its text first, for example with WikiExtractor"
PROLOG = re.compile(rb"<\?xml|<!DOCTYPE|<html[\s>]|<TEI[\s>]|<mediawiki[\s>]", re.IGNORECASE)
ATTRIBUTE = rb"\s+[\w:.-]+\s*=\s*(\"[^\"<]*\"|'[^'<]*')"
OPENING_TAG = re.compile(rb"<([A-Za-z][\w:.-]*)(" + ATTRIBUTE + rb")*\s*/?>")
CLOSING_TAG = re.compile(rb"</[A-Za-z][\w:.-]*\s*>")
# A header of names, such as id,text; prose has spaces after its commas.
HEADER = re.compile(
    rb"\"?\w[\w-]*\"?((?P<delimiter>[,;\t])\"?\w[\w-]*\"?((?P=delimiter)\"?\w[\w-]*\"?)*)"
)
JSON_ARRAY = re.compile(rb"\[\s*\{")
MIN_NULS = 8


def foreign_kind(start: bytes) -> str | None:
    """Return what an input is if it is not UTF-8 text, and how to convert it, or `None`.

    Args:
        start: its first bytes, uncompressed.
    """
    for signature, kind in SIGNATURES.items():
        if signature.match(start):
            return kind
    return _wide_encoding(start) or _markup(start.removeprefix(BOM).lstrip()) or _line_ends(start)


def is_array(start: bytes) -> bool:
    """Whether an input starts like a JSON array."""
    return start.removeprefix(BOM).lstrip().startswith(b"[")


def looks_like_table(start: bytes) -> bool:
    """Whether a text starts like a JSON array of objects, or a header of CSV or TSV."""
    first = start.removeprefix(BOM).lstrip()
    header = first.split(b"\n", 1)[0].rstrip()
    return bool(JSON_ARRAY.match(first) or HEADER.fullmatch(header))


def _wide_encoding(start: bytes) -> str | None:
    """Recognise UTF-16 and UTF-32 without a byte order mark by the offsets of their NUL bytes."""
    num_nuls = start.count(0)
    if num_nuls < MIN_NULS:
        return None
    zeros = [start[offset::4].count(0) / len(start[offset::4]) for offset in range(4)]
    if zeros[2] == zeros[3] == 1 > zeros[0]:
        return _converted("UTF-32LE")
    if zeros[0] == zeros[1] == 1 > zeros[3]:
        return _converted("UTF-32BE")
    even, odd = start[::2].count(0), start[1::2].count(0)
    if min(even, odd) * 20 > num_nuls or num_nuls * 20 < len(start):
        return None
    return _converted("UTF-16LE" if odd > even else "UTF-16BE")


def _converted(encoding: str) -> str:
    return f"{encoding} text; convert it first (iconv -f {encoding} -t UTF-8)"


def _markup(start: bytes) -> str | None:
    """Recognise HTML and XML by a prolog, or by a first tag in a text full of tags.

    WikiExtractor's <doc ...> is not markup.
    """
    prolog = PROLOG.match(start)
    if not prolog:
        tag = OPENING_TAG.match(start)
        if not tag or tag[1] == b"doc":
            return None
        num_lines = start.count(b"\n") + 1
        if 3 * len(CLOSING_TAG.findall(start)) < num_lines:
            return None
    head = start[:1000].lower()
    if b"<mediawiki" in head:
        return MEDIAWIKI
    return HTML if b"<html" in head or b"<!doctype html" in head else XML


def _line_ends(start: bytes) -> str | None:
    if b"\n" in start or b"\r" not in start.rstrip(b"\r"):
        return None
    return "text with carriage returns as line ends; convert it first (tr '\\r' '\\n')"

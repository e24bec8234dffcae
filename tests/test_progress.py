import io
import sys

import pytest

from bertpt import progress
from bertpt.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def report(stream, monkeypatch, *, quiet=False, seconds=0.0):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", seconds)
    bars = Progress(quiet=quiet)
    with bars.bar("walking", unit="mile", total=3) as bar:
        for _ in range(3):
            bar.update()
        bars.log("half-way")
    return stream.getvalue()


def test_a_terminal_gets_a_bar(monkeypatch):
    text = report(Terminal(), monkeypatch)
    assert "\r" in text
    assert "walking: 100%" in text
    assert "half-way\n" in text
    assert text[: text.index("half-way")].endswith("\r"), "the line begins where a line begins"


def test_a_log_file_gets_complete_lines(monkeypatch):
    text = report(io.StringIO(), monkeypatch)
    assert "\r" not in text
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines.count("half-way") == 1
    assert sum(line.startswith("walking: 100%") for line in lines) == 1


def test_a_log_file_gets_a_line_every_few_seconds_only(monkeypatch):
    lines = report(io.StringIO(), monkeypatch, seconds=60.0).splitlines()
    assert [line.split(":")[0] for line in lines] == ["half-way", "walking"]


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_quiet_prints_nothing(monkeypatch, stream):
    assert report(stream, monkeypatch, quiet=True) == ""


class Broken(io.StringIO):
    def write(self, _):
        raise BrokenPipeError


def test_a_reader_that_goes_away_does_not_end_the_work(monkeypatch):
    report(Broken(), monkeypatch)

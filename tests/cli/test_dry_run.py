"""`build-data --dry-run`: a report on a sample, an estimate of the total, and nothing written."""

import json
import tempfile

import pytest

from bertpt.build import dry_run

NUM_DOCUMENTS = 60


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A text file of which a dry run takes about a third."""
    words = ("red", "green", "blue", "dog", "cat", "bird", "sees", "hears", "old", "new", "it", "a")
    documents = [
        "\n".join(f"{words[(i * j) % 12]} {words[(i + j) % 12]} {i % 7} {j}." for j in range(20))
        for i in range(NUM_DOCUMENTS)
    ]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents))
    monkeypatch.setattr(
        dry_run.dry_run,
        "__kwdefaults__",
        {
            **dry_run.dry_run.__kwdefaults__,
            "sample_bytes": path.stat().st_size // 3,
        },
    )
    return path


SIZES = ("--vocab-size", 90, "--seq-len", 32, "--quiet")


def test_a_dry_run_writes_nothing(done, source, tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for out in ((), ("--out", tmp_path / "data")):
        done("build-data", source, *out, "--dry-run", *SIZES)
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["temporary", "text.txt"]


def test_the_report_says_what_it_is_of_and_what_the_whole_would_give(done, source):
    lines = done("build-data", source, "--dry-run", *SIZES).stdout.splitlines()
    assert lines[0].startswith("dry run on the first ")
    assert lines[0].endswith("kB; nothing was written")
    assert lines[1].split() == ["train", "valid"]
    assert lines[-1].startswith("the full input would give about ")
    assert lines[-1].endswith("; the vocabulary would be learned from all of it")


def test_what_is_estimated_is_about_what_a_build_gives(done, source, tmp_path):
    told = json.loads(done("build-data", source, "--dry-run", "--json", *SIZES).stdout)
    built = json.loads(
        done("build-data", source, "--out", tmp_path / "data", "--json", *SIZES).stdout
    )
    assert told["dry_run"] is True
    assert told["out"] is None
    assert told["total_bytes"] == source.stat().st_size
    assert told["sampled_bytes"] == pytest.approx(told["total_bytes"] / 3, rel=0.05)
    for name in ("documents", "sentences", "tokens", "examples"):
        whole = sum(built[name].values())
        assert sum(told[name].values()) < whole / 2
        assert told["estimated"][name] == pytest.approx(whole, rel=0.15)
    assert told["estimated"]["disk_bytes"] < told["estimated"]["disk_peak_bytes"]
    assert built.keys() < told.keys()


def test_a_sample_of_everything_gives_the_figures_of_the_build(done, corpus, tmp_path):
    told = json.loads(done("build-data", corpus, "--dry-run", "--json", *SIZES).stdout)
    built = json.loads(
        done("build-data", corpus, "--out", tmp_path / "data", "--json", *SIZES).stdout
    )
    assert {key: told[key] for key in built if key != "out"} == {
        key: value for key, value in built.items() if key != "out"
    }
    assert told["sampled_bytes"] == told["total_bytes"] == corpus.stat().st_size
    assert told["estimated"]["documents"] == sum(built["documents"].values())


def test_of_a_pipe_the_beginning_is_told(done, source):
    result = done("build-data", "-", "--dry-run", *SIZES, stdin=source.read_text())
    first, *_, last = result.stdout.splitlines()
    assert first.startswith("dry run on the first ")
    assert " of " not in first
    assert last.startswith("cannot estimate the total: the input's size is unknown")


def test_what_is_true_of_the_sample_only_is_no_warning(done, source):
    # Four documents are needed to hold any out, and the whole has them.
    long = "\n".join(source.read_text().split("\n\n")[:10])
    source.write_text(f"{long}\n\n{long}\n\n{long}\n\n{long}\n\n{long}\n\n{long}")
    result = done("build-data", source, "--dry-run", "--vocab-size", 500, "--json")
    told = json.loads(result.stdout)
    assert sum(told["documents"].values()) < 4
    assert not any("hold any out" in w or "vocabulary" in w for w in told["warnings"])
    assert any(w.startswith("in the sample, ") and "repeat" in w for w in told["warnings"])


def test_a_sample_of_one_document_is_not_said_to_be_all(run, source):
    source.write_text(source.read_text().replace("\n\n", "\n") + "\n\nAnother one.\n")
    result = run("build-data", source, "--dry-run", "--quiet")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {source}: only one document in the first ")


def test_out_is_missed_as_ever_without_a_dry_run(run, source):
    result = run("build-data", source)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: Missing option '--out'.\n"

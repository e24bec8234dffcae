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


def test_the_report_names_its_sample_and_estimates_the_full_build(done, source):
    lines = done("build-data", source, "--dry-run", *SIZES).stdout.splitlines()
    assert lines[0].startswith("dry run on the first ")
    assert lines[0].endswith("kB; nothing was written")
    assert lines[1].split() == ["train", "valid"]
    assert lines[-1].startswith("the full input would give about ")
    assert lines[-1].endswith("; the vocabulary would be learned from all of it")


def test_what_is_estimated_is_about_what_a_build_gives(done, source, tmp_path):
    output = json.loads(done("build-data", source, "--dry-run", "--json", *SIZES).stdout)
    built = json.loads(
        done("build-data", source, "--out", tmp_path / "data", "--json", *SIZES).stdout
    )
    assert output["dry_run"] is True
    assert output["out"] is None
    assert output["total_bytes"] == source.stat().st_size
    assert output["sampled_bytes"] == pytest.approx(output["total_bytes"] / 3, rel=0.05)
    for name in ("documents", "sentences", "tokens", "examples"):
        whole = sum(built[name].values())
        assert sum(output[name].values()) < whole / 2
        assert output["estimated"][name] == pytest.approx(whole, rel=0.15)
    assert output["estimated"]["disk_bytes"] < output["estimated"]["disk_peak_bytes"]
    assert built.keys() < output.keys()


def test_a_sample_of_everything_gives_the_figures_of_the_build(done, corpus, tmp_path):
    output = json.loads(done("build-data", corpus, "--dry-run", "--json", *SIZES).stdout)
    built = json.loads(
        done("build-data", corpus, "--out", tmp_path / "data", "--json", *SIZES).stdout
    )
    assert {key: output[key] for key in built if key != "out"} == {
        key: value for key, value in built.items() if key != "out"
    }
    assert output["sampled_bytes"] == output["total_bytes"] == corpus.stat().st_size
    assert output["estimated"]["documents"] == sum(built["documents"].values())


def test_a_dry_run_on_a_pipe_reads_the_beginning(done, source):
    result = done("build-data", "-", "--dry-run", *SIZES, stdin=source.read_text())
    first, *_, last = result.stdout.splitlines()
    assert first.startswith("dry run on the first ")
    assert " of " not in first
    assert last.startswith("cannot estimate the total: the input's size is unknown")


def test_a_fact_about_the_sample_alone_gives_no_warning(done, source):
    # Four documents are needed to hold any out, and the whole has them.
    long = "\n".join(source.read_text().split("\n\n")[:10])
    source.write_text(f"{long}\n\n{long}\n\n{long}\n\n{long}\n\n{long}\n\n{long}")
    result = done("build-data", source, "--dry-run", "--vocab-size", 500, "--json")
    output = json.loads(result.stdout)
    assert sum(output["documents"].values()) < 4
    assert not any("hold any out" in w or "vocabulary" in w for w in output["warnings"])
    assert any(w.startswith("in the sample, ") and "repeat" in w for w in output["warnings"])


def test_a_sample_of_one_document_is_not_said_to_be_all(run, source):
    source.write_text(source.read_text().replace("\n\n", "\n") + "\n\nAnother one.\n")
    result = run("build-data", source, "--dry-run", "--quiet")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {source}: only one document in the first ")


def test_out_is_missed_as_ever_without_a_dry_run(run, source):
    result = run("build-data", source)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: Missing option '--out'.\n"

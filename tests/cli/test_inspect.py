"""`bertpt inspect` from the outside."""

import re

from helpers import only_object, read_json


def test_inspect_prints_the_figures_and_examples_with_their_masks(done, data):
    result = done("inspect", data, "--examples", 2)
    assert result.stderr == ""
    manifest = read_json(data / "manifest.json")
    documents = manifest["documents"]
    row = rf"^documents +{documents['train']} +{documents['valid']}$"
    assert re.search(row, result.stdout, re.MULTILINE)
    headings = re.findall(
        r"^train example \d+: B (?:follows A|is random), (\d+) tokens, (\d+) to predict",
        result.stdout,
        re.MULTILINE,
    )
    assert len(headings) == 2
    assert len(re.findall(r"^A  \S", result.stdout, re.MULTILINE)) == 2
    assert len(re.findall(r"^B  \S", result.stdout, re.MULTILINE)) == 2
    shown = result.stdout.split("train example")[1:]
    for (_, num_predictions), text in zip(headings, shown, strict=True):
        marks = re.findall(r"\[[^\s|]+\|[^\s|\]]+\]", text.replace("[seen|true]", ""))
        assert len(marks) == int(num_predictions) > 0


def test_inspect_gives_the_manifest_and_the_examples_as_json(done, data):
    output = only_object(done("inspect", data, "--split", "valid", "--examples", 3, "--json"))
    manifest = read_json(data / "manifest.json")
    assert {key: output[key] for key in manifest} == manifest
    assert output["split"] == "valid"
    assert len(output["shown"]) == 3
    for example in output["shown"]:
        assert (example["a"] + example["b"]).count("|") == example["num_predictions"]


def test_inspect_repeats_the_warnings_of_build_data_and_names_options(done, two):
    (two / "single.txt").write_text("a b .\n\nc d .\n\ne f .\n")
    out = ("--out", two / "o", "--tokenizer", two / "vocab.txt")
    log = done("build-data", two / "single.txt", *out).stderr.splitlines()
    warnings = [line for line in log if line.startswith("warning: ")]
    assert any("use --objective mlm" in line for line in warnings)
    printed = done("inspect", two / "o").stdout.splitlines()
    assert [line for line in printed if line.startswith("warning: ")] == warnings

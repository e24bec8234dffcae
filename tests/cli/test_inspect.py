"""`bertpt inspect` from the outside."""

import re

from command_line import only_object, read_json


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
    told = only_object(done("inspect", data, "--split", "valid", "--examples", 3, "--json"))
    manifest = read_json(data / "manifest.json")
    assert {key: told[key] for key in manifest} == manifest
    assert told["split"] == "valid"
    assert len(told["shown"]) == 3
    for example in told["shown"]:
        assert (example["a"] + example["b"]).count("|") == example["num_predictions"]

"""The README's commands, Python and file tree against what is there."""

import ast
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bertpt_cli.main import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCED = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
BLOCKS = [block for language, block in FENCED if language != "python"]
COMMANDS = [
    line
    for block in BLOCKS
    for line in block.replace("\\\n", " ").split("\n")
    if re.search(r"(^|\| |\$ )bertpt ", line)
]
TREE = next(block for block in BLOCKS if block.startswith("src/"))


def options_of(command):
    group = typer.main.get_command(app)
    return {o for p in group.commands[command].params for o in (*p.opts, *p.secondary_opts)}


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_shown_exists_with_its_options(line):
    for words in (part.split() for part in re.split(r"\||;|&&", line) if "bertpt" in part):
        command = words[words.index("bertpt") + 1]
        if command.startswith("-"):
            continue
        shown = {word.split("=")[0] for word in words if word.startswith("--")}
        assert shown <= options_of(command) | {"--help"}


def test_the_readme_shows_every_command():
    shown = " ".join(COMMANDS)
    for command in typer.main.get_command(app).commands:
        assert f"bertpt {command}" in shown


def test_the_file_tree_lists_every_module_and_nothing_else():
    listed, folders = set(), []
    for line in TREE.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        for name in re.split(r",\s*", line.strip().split("  ")[0]):
            if name.endswith("/"):
                folders = [*folders[:depth], name]
            else:
                listed.add("".join(folders[:depth]) + name)
    there = {
        path.relative_to(ROOT).as_posix()
        for source in ("src", "cli")
        for path in (ROOT / source).rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    assert {path for path in listed if path.startswith(("src/", "cli/"))} == there
    assert all((ROOT / path).exists() for path in listed)


@pytest.mark.parametrize("block", [block for language, block in FENCED if language == "python"])
def test_the_names_that_python_examples_import_exist(block):
    tree = ast.parse(block)
    tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert tree.body
    exec(compile(tree, "README.md", "exec"), {})


# ------------------------------------------------------------------- Python that is there to be run

VECTOR_WIDTH = 12


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with a run/ and a data/, as the README's Python finds them."""
    folder = tmp_path_factory.mktemp("project")
    paragraphs = [" ".join(block.split()) for block in README.split("\n\n")]
    rng = random.Random(1)
    text = "\n\n".join("\n".join(rng.sample(paragraphs, 9)) for _ in range(20))
    (folder / "text.txt").write_text(text, encoding="utf-8")
    bertpt(folder, "build-data text.txt --out data --vocab-size 300 --seq-len 32")
    bertpt(
        folder,
        "pretrain data --out run --steps 2 --hidden-size 12 --num-hidden-layers 1 "
        "--num-attention-heads 2 --batch-size 8",
    )
    return folder


def call_bertpt(folder, command, *texts):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return CliRunner().invoke(app, [*command.split(), *texts])


def bertpt(folder, command, *texts):
    result = call_bertpt(folder, command, *texts)
    assert result.exit_code == 0, result.stderr
    return result


def block_with(words):
    """The only Python block of the README that has some words."""
    [block] = [block for language, block in FENCED if language == "python" and words in block]
    return block


def run_python(folder, code):
    """Runs Python in a folder as a reader would, without the network; gives what it prints."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, **offline},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_what_opens_a_run_in_transformers_gives_the_scores_of_fill_mask(project):
    text = "The same command gives the same [MASK]."
    more = f"""
import json
found = fill({text!r}, top_k=300)
print(json.dumps({{each["token_str"]: each["score"] for each in found}}))
print(type(model).__name__, tokenizer.model_max_length)
"""
    told = run_python(project, block_with('pipeline("fill-mask"') + more).splitlines()
    line = bertpt(project, "fill-mask run --top-k 300 --json", text).stdout
    ours = {each["token"]: each["score"] for each in json.loads(line)["masks"][0]}
    theirs = json.loads(told[0])
    assert theirs.keys() == ours.keys()
    assert len(ours) > 200
    for token, score in ours.items():
        assert theirs[token] == pytest.approx(score, abs=1e-6), token
    assert told[1] == "BertForPreTraining 512"


@pytest.fixture(scope="module")
def classifier(project):
    """What the fine-tuning block leaves behind."""
    run_python(project, block_with("Trainer("))
    return project


def test_what_fine_tunes_a_run_saves_a_classifier(classifier):
    config = json.loads((classifier / "classifier/config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["hidden_size"] == VECTOR_WIDTH


def test_encode_leaves_the_classifier_out_and_says_so(classifier):
    result = bertpt(classifier, "encode classifier", "a fine day")
    [line] = result.stdout.splitlines()
    assert len(json.loads(line)["embedding"]) == VECTOR_WIDTH
    assert "ignored classifier.bias, classifier.weight" in result.stderr


@pytest.mark.parametrize("command", ["eval-mlm classifier data", "fill-mask classifier [MASK]"])
def test_a_classifier_is_refused_where_an_mlm_head_is_needed(classifier, command):
    result = call_bertpt(classifier, command)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: classifier has no MLM head")
    assert "--init-from classifier" in result.stderr


def test_a_classifier_can_be_gone_on_from(classifier):
    result = bertpt(classifier, "pretrain data --out second --init-from classifier --steps 1")
    assert "ignored classifier.bias, classifier.weight" in result.stderr
    assert "no MLM head" in result.stderr


def test_the_view_of_a_data_folder_has_the_columns_shown(project):
    block = block_with("transformers_view(")
    [shown] = re.findall(r"rows\[0\]\.keys\(\)  # (.*)", block)
    told = run_python(project, block + "\nprint(*rows[0], sep=', ')\nprint(len(rows))")
    manifest = json.loads((project / "data/manifest.json").read_text())
    assert told.splitlines() == [shown, str(manifest["examples"]["train"])]


def test_what_uses_bertpt_as_a_library_gives_what_it_says(project):
    block = block_with("from_pretrained(BertForPreTraining, ")
    vocab_size = json.loads((project / "run/model/config.json").read_text())["vocab_size"]
    [shown] = re.findall(r"prediction_logits\.shape  # (\(.*?\))", block)
    more = """
print(tuple(output.prediction_logits.shape))
print(len(output.hidden_states), len(output.attentions))
print(all(map(torch.equal, model.bert.state_dict().values(), encoder.state_dict().values())))
"""
    told = run_python(project, block + more).splitlines()
    assert told[0] == shown.replace("vocab_size", str(vocab_size))
    assert told[1:] == ["2 1", "True"]  # the embeddings and one layer
    weights = "model.safetensors"
    assert (project / "copy" / weights).read_bytes() == (
        project / "run/model" / weights
    ).read_bytes()

"""The commands, Python, links and file lists of README.md and docs/ against what is there."""

import json
import os
import random
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from bertpt.config.model import MODEL_SIZES
from bertpt.config.training import SCHEDULES
from bertpt_cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [*ROOT.glob("*.md"), ROOT / "data/README.md", *sorted(ROOT.glob("docs/*.md"))]
}
FENCED = [
    (page, language, block)
    for page, text in PAGES.items()
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
]
PYTHON = [block for _, language, block in FENCED if language == "python"]
COMMANDS = typer.main.get_command(app).commands
CALL = re.compile(r"(?:\bbertpt|-m bertpt_cli) ([a-z-]+)( [^|;&]*)?")
OPTION = re.compile(r"(?<!\w)--[a-z][a-z-]*")


def options_of(command):
    return {o for p in COMMANDS[command].params for o in (*p.opts, *p.secondary_opts)}


def without_blocks(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def shell_lines():
    """Every line of a shell block, command of a transcript, and command in running text."""
    for _, language, block in FENCED:
        for line in block.replace("\\\n", " ").splitlines():
            if language == "sh" or (language == "console" and line.startswith("$ ")):
                yield line
    for text in map(without_blocks, PAGES.values()):
        yield from re.findall(r"`(bertpt [a-z][^`]*)`", text)
        yield from re.findall(r"^ {4}(.*\| bertpt .*)$", text, re.MULTILINE)


CALLS = [(call[1], call[2] or "") for line in shell_lines() for call in CALL.finditer(line)]

# ------------------------------------------------------------------------ what needs only the text


@pytest.mark.parametrize(("command", "rest"), CALLS)
def test_every_command_shown_exists_with_its_options(command, rest):
    shown = {word.split("=")[0] for word in rest.split() if word.startswith("--")}
    assert shown <= options_of(command) | {"--help"}


@pytest.mark.parametrize("page", PAGES)
def test_every_option_in_running_text_exists(page):
    spans = re.findall(r"`([^`\n]*)`", without_blocks(PAGES[page]))
    shown = {name for span in spans for name in OPTION.findall(span)}
    known = {"--help", "--dist"}.union(*map(options_of, COMMANDS))
    assert shown <= known


def test_the_table_in_the_readme_has_every_command():
    rows = re.findall(r"^\| `bertpt ([a-z-]+)", PAGES["README.md"], re.MULTILINE)
    assert rows == list(COMMANDS)


def test_the_readme_is_short():
    assert len(PAGES["README.md"].splitlines()) <= 150


def test_the_readme_links_to_every_page():
    for page in PAGES:
        if page.startswith("docs/"):
            assert f"]({page})" in PAGES["README.md"]


def anchors(text):
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page):
    for link in re.findall(r"\]\(([^)]+)\)", PAGES[page]):
        path, _, anchor = link.partition("#")
        if link.startswith("https://"):
            continue
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), link


def test_the_file_tree_lists_every_module_and_nothing_else():
    [tree] = [block for _, _, block in FENCED if block.startswith("src/")]
    listed, folders = set(), []
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        for name in re.split(r",\s*", line.strip().split("  ")[0]):
            if name.endswith("/"):
                folders = [*folders[:depth], name]
                listed.add("".join(folders))
            else:
                listed.add("".join(folders[:depth]) + name)
    there = {
        path.relative_to(ROOT).as_posix()
        for source in ("src", "cli")
        for path in (ROOT / source).rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    assert {path for path in listed if path.endswith(".py")} == there
    assert [path for path in listed if not (ROOT / path).exists()] == []


def rows_of(page, heading):
    """The cells of a section's tables, without the rows of their heads."""
    section = PAGES[page].split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(.*) \|$", section, re.MULTILINE)


def test_the_tables_of_recipes_agree_with_the_settings():
    page = "docs/recipes.md"
    sizes = [re.findall(r"\w+", row) for row in rows_of(page, "Model size and length of the run")]
    assert {name: (int(layers), int(width)) for name, *_, layers, width in sizes[1:]} == MODEL_SIZES
    schedules = [row.split("`")[0] for row in rows_of(page, "Learning-rate schedule")]
    assert tuple(schedules) == SCHEDULES


def test_files_named_in_contributing_exist():
    named = re.findall(r"`([a-z_./]+/(?:[a-z_]+\.(?:py|md))?)`", PAGES["CONTRIBUTING.md"])
    places = (ROOT, ROOT / "src/bertpt", ROOT.parent)
    assert len(named) > 15
    for name in named:
        if not name.startswith("../"):
            assert any((place / name).exists() for place in places), name


def test_the_curve_is_a_small_picture():
    picture = (ROOT / "docs/curve.svg").read_bytes()
    assert len(picture) < 50_000
    assert ET.fromstring(picture).tag.endswith("svg")


# ------------------------------------------------------------- what needs a data folder and a run

VECTOR_WIDTH = 12
SMALL = f"--hidden-size {VECTOR_WIDTH} --num-hidden-layers 1 --num-attention-heads 2 --batch-size 8"
# A transcript's command, and one that is quick and prints the same lines.
EXAMPLES = {
    "build-data .*--out": "build-data library/corpus --out data --vocab-size 300 --seq-len 32",
    "pretrain .*--out": f"pretrain data --out run --steps 2 --log-every 1 {SMALL}",
    "eval-mlm": "eval-mlm run data",
    "--dry-run": "build-data library/corpus --dry-run --vocab-size 300",
    "--verify-resume": f"pretrain data --verify-resume 2 --steps 2 {SMALL}",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with data/, run/ and what the commands that made them printed."""
    folder = tmp_path_factory.mktemp("project")
    paragraphs = [
        " ".join(block.split()) for text in PAGES.values() for block in text.split("\n\n")
    ]
    rng = random.Random(1)
    text = "\n\n".join("\n".join(rng.sample(paragraphs, 9)) for _ in range(20))
    (folder / "library/corpus").mkdir(parents=True)
    (folder / "library/corpus/text.txt").write_text(text, encoding="utf-8")
    printed = {}
    for name, command in EXAMPLES.items():
        result = run_bertpt(folder, command)
        printed[name] = result.stdout + result.stderr
    (folder / "printed.json").write_text(json.dumps(printed))
    return folder


def call_bertpt(folder, command, *texts):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return CliRunner().invoke(app, [*command.split(), *texts])


def run_bertpt(folder, command, *texts):
    result = call_bertpt(folder, command, *texts)
    assert result.exit_code == 0, result.stderr
    return result


def block_with(words):
    """The only Python block that has some words."""
    [block] = [block for block in PYTHON if words in block]
    return block


TEXT = "The same command gives the same [MASK]."
# Runs each [folder, code] in names of its own and prints the value of `found` in each.
RUNNER = """
import json, os, sys
for folder, code in json.loads(sys.stdin.read()):
    os.chdir(folder)
    names = {}
    exec(code, names)
    print("FOUND", json.dumps(names["found"]))
"""


@pytest.fixture(scope="module")
def found(project):
    """What the Python examples give, run as a reader would, without the network."""
    asked = {
        "transformers": block_with('pipeline("fill-mask"')
        + f"scores = {{c['token_str']: c['score'] for c in fill({TEXT!r}, top_k=300)}}\n"
        + "found = [scores, type(model).__name__, tokenizer.model_max_length]",
        "masked": block_with("AutoModelForMaskedLM") + "found = type(model).__name__",
        "classifier": block_with("Trainer(") + "found = None",
        "view": block_with("transformers_view(") + "found = [list(rows[0]), len(rows)]",
        "model": block_with("output.prediction_logits.shape")
        + "pairs = zip(model.bert.state_dict().values(), encoder.state_dict().values())\n"
        + "found = [list(output.prediction_logits.shape), len(output.hidden_states),\n"
        + "         len(output.attentions), all(torch.equal(*pair) for pair in pairs)]",
        "library": block_with("build_data(")
        .replace('"mini", steps=1000', '"tiny", steps=1')
        .replace("seq_len=128", "seq_len=32")
        + "found = [manifest['examples'], metrics]",
    }
    assert len(asked) == len(PYTHON)  # every block is run
    folders = [project / "library" if name == "library" else project for name in asked]
    result = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(list(zip(map(str, folders), asked.values(), strict=True))),
        env={
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(project / "cache"),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("FOUND ")]
    return dict(zip(asked, (json.loads(line[6:]) for line in lines), strict=True))


def test_a_run_opened_in_transformers_gives_the_scores_of_fill_mask(project, found):
    theirs, kind, max_length = found["transformers"]
    line = run_bertpt(project, "fill-mask run --top-k 300 --json", TEXT).stdout
    ours = {each["token"]: each["score"] for each in json.loads(line)["masks"][0]}
    assert theirs.keys() == ours.keys()
    assert len(ours) > 200
    for token, score in ours.items():
        assert theirs[token] == pytest.approx(score, abs=1e-6), token
    assert (kind, max_length) == ("BertForPreTraining", 512)
    assert found["masked"] == "BertForMaskedLM"


@pytest.fixture
def classifier(project, found):
    """The folder that the fine-tuning example saves."""
    assert "classifier" in found
    return project / "classifier"


def test_fine_tuning_saves_a_classifier(classifier):
    config = json.loads((classifier / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["hidden_size"] == VECTOR_WIDTH


def test_encode_ignores_the_classifier_and_says_so(classifier):
    result = run_bertpt(classifier.parent, "encode classifier", "a fine day")
    [line] = result.stdout.splitlines()
    assert len(json.loads(line)["embedding"]) == VECTOR_WIDTH
    assert "classifier.bias, classifier.weight" in result.stderr


@pytest.mark.parametrize("command", ["eval-mlm classifier data", "fill-mask classifier [MASK]"])
def test_a_classifier_is_refused_where_an_mlm_head_is_needed(classifier, command):
    result = call_bertpt(classifier.parent, command)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: classifier has no MLM head")
    assert "--init-from classifier" in result.stderr


def test_pretraining_continues_from_a_classifier(classifier):
    command = "pretrain data --out second --init-from classifier --steps 1"
    result = run_bertpt(classifier.parent, command)
    assert "classifier.bias, classifier.weight" in result.stderr
    assert "no MLM head" in result.stderr


def test_the_view_of_a_data_folder_has_the_columns_shown(project, found):
    [shown] = re.findall(r"rows\[0\]\.keys\(\)  # (.*)", block_with("transformers_view("))
    manifest = json.loads((project / "data/manifest.json").read_text())
    assert found["view"] == [shown.split(", "), manifest["examples"]["train"]]


def test_the_model_loaded_in_python_gives_the_shapes_shown(project, found):
    vocab_size = json.loads((project / "run/model/config.json").read_text())["vocab_size"]
    [shown] = re.findall(
        r"prediction_logits\.shape  # (\(.*?\))", block_with("output.prediction_logits.shape")
    )
    shape, num_states, num_attentions, is_same = found["model"]
    assert str(tuple(shape)) == shown.replace("vocab_size", str(vocab_size))
    assert (num_states, num_attentions) == (2, 1)  # the embeddings and one layer
    assert is_same
    copy, original = project / "copy", project / "run/model"
    name = "model.safetensors"
    assert (copy / name).read_bytes() == (original / name).read_bytes()


def test_the_library_builds_data_and_trains(found):
    examples, metrics = found["library"]
    assert examples["train"] > 0
    assert metrics["step"] == 1
    assert metrics["mlm_loss"] > 0


def names_in_table(page, heading):
    first = ["`" + row.split("|")[0] for row in rows_of(page, heading)]
    return {re.split("/", name)[0] for cell in first for name in re.findall("`([^`]+)`", cell)}


def test_the_folders_have_the_files_that_the_pages_list(project):
    columns = {"input_ids", "b_start", "next_sentence_label", "masked_positions"}
    columns.add("masked_input_ids")
    data = names_in_table("docs/data.md", "The DATA folder")
    assert data == {path.name for path in (project / "data").iterdir()} | columns
    run = names_in_table("docs/resuming.md", "The RUN folder")
    assert run - {".lock"} == {path.name for path in (project / "run").iterdir()} - {".lock"}


def words_of(line):
    """A line without its numbers, its units and the word that depends on the processor."""
    words = re.sub(r"[0-9.,%#()]+", " ", line).replace("bfloat", "float").split()
    return [word for word in words if word.strip("-") and word not in ("kB", "MB")]


@pytest.mark.parametrize("example", EXAMPLES)
def test_transcripts_have_the_lines_that_the_command_prints(project, example):
    transcripts = [
        transcript.splitlines()
        for _, language, block in FENCED
        if language == "console"
        for transcript in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]
    [shown] = [lines for command, *lines in transcripts if re.search(example, command)]
    printed = json.loads((project / "printed.json").read_text())[example]
    words = [words_of(line) for line in printed.splitlines()]
    assert shown
    for line in shown:
        assert words_of(line) in [*words, []], line


def test_the_curve_is_drawn_from_the_metrics_of_a_run(project):
    evaluation = run_bertpt(project, "eval-mlm run data --json").stdout
    (project / "eval.json").write_text(evaluation)
    result = subprocess.run(
        [sys.executable, ROOT / "data/curve.py", "run", "eval.json"],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )
    entries = map(json.loads, (project / "run/metrics.jsonl").read_text().splitlines())
    losses = {entry["split"]: entry["mlm_loss"] for entry in entries}  # the last of each
    picture = "".join(ET.fromstring(result.stdout).itertext())
    assert f"training: {losses['train']:.2f}" in picture
    assert f"held out: {losses['valid']:.2f}" in picture

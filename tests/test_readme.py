"""The README's commands and file tree against what is there."""

import ast
import re
from pathlib import Path

import pytest
import typer

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

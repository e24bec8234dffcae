"""Every command and option is explained, and asking for help costs no heavy import."""

import functools
import re
import subprocess
import sys

import pytest
import typer

import bertpt
from bertpt_cli.main import app

COMMANDS = typer.main.get_command(app).commands
# The names that scripts rely on.
EVERYWHERE = "--json --config --help"
RELIED_ON = {
    "train-tokenizer": "--out --vocab-size --overwrite --quiet",
    "build-data": (
        "--out --tokenizer --vocab-size --seq-len --masked-lm-prob --max-predictions-per-seq "
        "--short-seq-prob --dupe-factor --valid-fraction --language --sentence-per-line --seed "
        "--shard --overwrite --quiet"
    ),
    "inspect": "--split",
    "pretrain": (
        "--out --model --recipe --init --steps --epochs --max-minutes --batch-size "
        "--micro-batch-size --learning-rate --warmup --schedule --decay --weight-decay --dropout "
        "--optimizer --device --precision --sharding --distributed-timeout-minutes --masking "
        "--save-every --eval-every --keep-last --resume --seed --overwrite --quiet"
    ),
    "eval-mlm": "--split --batch-size --device --precision --quiet",
    "fill-mask": "--top-k --joint --mask-word --device --quiet",
    "encode": (
        "--pooling --layer --normalize --pair --out --overwrite --batch-size --device --precision "
        "--quiet"
    ),
}


@pytest.fixture(scope="module")
def help_of(run):
    """Return a command's help; each is rendered once."""

    @functools.cache
    def render(*command):
        result = run(*command, "--help")
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    return render


def entries(text):
    """The help of each option by its first name, without line breaks and spaces."""
    found, name = {}, None
    for line in text.splitlines():
        if match := re.match(r"  (?:-\w, )?(--[\w-]+)", line):
            name = match[1]
        if name:
            found[name] = found.get(name, "") + "".join(line.split())
    return found


every_command = pytest.mark.parametrize("command", COMMANDS)


@every_command
def test_every_command_says_what_it_does(help_of, command):
    text = help_of(command)
    assert text.startswith(f"Usage: bertpt {command} ")
    summary = COMMANDS[command].help.splitlines()[0]
    assert summary.endswith(".")
    assert summary in " ".join(text.split())


@every_command
def test_the_list_of_commands_has_each_with_a_summary(help_of, command):
    listed = help_of().split("Commands:\n")[1]
    assert re.search(rf"^  {command}  +\w", listed, re.MULTILINE)


@every_command
def test_every_option_is_explained(help_of, command):
    text = "".join(help_of(command).split())
    for option in COMMANDS[command].params:
        assert not option.hidden, option.name
        assert len(option.help.split()) >= 2, option.name
        assert "".join(option.help.split()) in text, option.name


@every_command
def test_every_default_is_shown(help_of, command):
    shown = entries(help_of(command))
    for option in COMMANDS[command].params:
        default = option.default
        if default is None or option.param_type_name == "argument" or option.required:
            continue
        if option.is_flag and not option.secondary_opts:
            assert default is False, option.name  # a switch, off unless it is given
            continue
        if option.is_flag:
            default = (option.opts if default else option.secondary_opts)[0].removeprefix("--")
        assert f"[default:{default}" in shown[option.opts[0]], option.name


@every_command
def test_the_options_that_scripts_rely_on_are_there(help_of, command):
    shown = entries(help_of(command))
    missing = set(f"{RELIED_ON[command]} {EVERYWHERE}".split()) - shown.keys()
    assert not missing


def test_defaults_that_depend_on_the_recipe_are_shown_for_each(help_of):
    output = entries(help_of("pretrain"))
    assert "fast0.001,published0.0001" in output["--learning-rate"]
    assert "fastmuon,publishedadamw" in output["--optimizer"]
    assert "fastmimetic,publishedpublished" in output["--init"]


@pytest.mark.parametrize(
    ("command", "usage"),
    [("pretrain", "DATA..."), ("eval-mlm", "MODEL DATA..."), ("inspect", "DATA")],
)
def test_the_usage_tells_how_many_data_folders_a_command_takes(help_of, command, usage):
    first = re.sub("[{}]", "", help_of(command).splitlines()[0])  # as some versions put them
    assert first == f"Usage: bertpt {command} [OPTIONS] {usage}"


def test_a_switch_has_no_negative_twin_that_means_nothing(help_of):
    text = help_of("pretrain")
    for name in ("resume", "overwrite", "json", "quiet"):
        assert f"--no-{name}" not in text


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_the_three_commands_of_the_pipeline(run, flag):
    result = run(flag)
    assert result.exit_code == 0
    output = [line.strip() for line in result.stdout.splitlines()]
    assert "bertpt build-data corpus/ --out data" in output
    assert "bertpt pretrain data --out run" in output
    assert "bertpt eval-mlm run data" in output


def test_asking_for_help_imports_nothing_heavy():
    program = f"""
import sys
from bertpt_cli.main import app
for command in [[], *([name] for name in {list(COMMANDS)})]:
    try:
        app([*command, "--help"])
    except SystemExit as left:
        assert left.code in (0, None), left.code
heavy = {{"torch", "datasets", "transformers", "tokenizers", "pyarrow", "numpy"}}
print(*sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.count("Usage: ") == 1 + len(COMMANDS)
    assert result.stderr.split() == []


def test_python_m_bertpt_cli_is_the_same_command():
    result = subprocess.run(
        [sys.executable, "-m", "bertpt_cli", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (result.stdout, result.stderr) == (f"bertpt {bertpt.__version__}\n", "")

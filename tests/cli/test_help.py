"""Every command and option is explained, and asking for help costs no heavy import."""

import re
import subprocess
import sys

import pytest
import typer

import bertpt
from bertpt_cli.main import app

COMMANDS = typer.main.get_command(app).commands
OPTIONS = [
    pytest.param(name, option, id=f"{name} {option.opts[0]}")
    for name, command in COMMANDS.items()
    for option in command.params
]

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


def help_of(run, *command):
    result = run(*command, "--help")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def entries(text):
    """The help of each option by its first name, free of line breaks and spaces."""
    found, name = {}, None
    for line in text.splitlines():
        if match := re.match(r"  (?:-\w, )?(--[\w-]+)", line):
            name = match[1]
        if name:
            found[name] = found.get(name, "") + "".join(line.split())
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_it_does(run, command):
    text = help_of(run, command)
    assert text.startswith(f"Usage: bertpt {command} ")
    summary = COMMANDS[command].help.splitlines()[0]
    assert summary.endswith(".")
    assert summary in " ".join(text.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_the_list_of_commands_has_each_with_a_summary(run, command):
    listed = help_of(run).split("Commands:\n")[1]
    assert re.search(rf"^  {command}  +\w", listed, re.MULTILINE)


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_every_option_is_explained(run, command, option):
    assert not option.hidden
    assert len(option.help.split()) >= 2
    assert "".join(option.help.split()) in "".join(help_of(run, command).split())


@pytest.mark.parametrize(
    ("command", "option"), [case for case in OPTIONS if case.values[1].default is not None]
)
def test_a_default_is_told(run, command, option):
    if option.param_type_name == "argument" or option.required:
        pytest.skip("it must be given")
    if option.is_flag and not option.secondary_opts:
        assert option.default is False  # a switch, off unless it is given
        return
    default = option.default
    if option.is_flag:
        default = (option.opts if default else option.secondary_opts)[0].removeprefix("--")
    told = entries(help_of(run, command))[option.opts[0]]
    assert f"[default:{default}" in told


@pytest.mark.parametrize(
    ("command", "option"),
    [(c, o) for c, options in RELIED_ON.items() for o in f"{options} {EVERYWHERE}".split()],
)
def test_the_options_that_scripts_rely_on_are_there(run, command, option):
    assert option in entries(help_of(run, command))


def test_defaults_that_the_recipe_decides_are_told_for_each_recipe(run):
    told = entries(help_of(run, "pretrain"))
    assert "fast0.001,published0.0001" in told["--learning-rate"]
    assert "fastmuon,publishedadamw" in told["--optimizer"]
    assert "fastmimetic,publishedpublished" in told["--init"]


@pytest.mark.parametrize(
    ("command", "usage"),
    [("pretrain", "DATA..."), ("eval-mlm", "MODEL DATA..."), ("inspect", "DATA")],
)
def test_the_usage_tells_how_many_data_folders_a_command_takes(run, command, usage):
    first = re.sub("[{}]", "", help_of(run, command).splitlines()[0])  # as some versions put them
    assert first == f"Usage: bertpt {command} [OPTIONS] {usage}"


def test_a_switch_has_no_negative_twin_that_means_nothing(run):
    text = help_of(run, "pretrain")
    for name in ("resume", "overwrite", "json", "quiet"):
        assert f"--no-{name}" not in text


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_the_three_commands_of_the_pipeline(run, flag):
    result = run(flag)
    assert result.exit_code == 0
    told = [line.strip() for line in result.stdout.splitlines()]
    assert "bertpt build-data corpus/ --out data" in told
    assert "bertpt pretrain data --out run" in told
    assert "bertpt eval-mlm run data" in told


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

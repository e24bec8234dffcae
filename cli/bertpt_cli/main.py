"""The `bertpt` command: registers the subcommands, and turns errors into one line and a status."""

import io
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

import bertpt
from bertpt.errors import BertptError
from bertpt.signals import exit_on_signals
from bertpt.text import printable
from bertpt_cli import (
    build_data,
    encode,
    eval_mlm,
    fill_mask,
    inspect,
    pretrain,
    train_tokenizer,
)
from bertpt_cli.output import print_error

# What a command can do about a lack of memory, by the option that it must have.
LESS_MEMORY = {
    "micro_batch_size": "; try a smaller `micro_batch_size`, or a smaller model",
    "batch_size": "; try a smaller `batch_size`",
    "workers": "; try fewer `workers`",
}


class OneLineErrors(TyperGroup):
    """A group whose errors are one line on standard error, never a traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a command and leaves with its exit status."""
        kwargs["standalone_mode"] = False
        if sys.stderr is None:  # closed, as by `2>&-`: it can be quiet, and nothing else changes
            sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
                stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        exit_on_signals()
        try:
            status = super().main(*args, **kwargs)
        except SystemExit as error:
            # Typer's word for a closed pipe, such as that of `| head`, is 1; the shell's is 141.
            closed = isinstance(error.__context__, BrokenPipeError)
            status = 128 + signal.SIGPIPE if closed else error.code
        except TyperException as error:
            status = _fail(error.format_message(), error.exit_code)
        except BertptError as error:
            status = _fail(str(error), error.exit_code)
        except UnicodeEncodeError as error:  # libraries expect file names in UTF-8
            name = printable(error.object)
            status = _fail(f"the name {name} is not valid UTF-8; rename it, or set PYTHONUTF8=1", 1)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            status = _fail(f"{where}{error.strerror or error}", 1)
        sys.exit(status)

    def invoke(self, context: Any) -> Any:
        """Run the command; say what takes less memory if it has too little."""
        try:
            return super().invoke(context)
        except (MemoryError, RuntimeError) as error:
            # torch has no class of its own for a lack of memory on the CPU.
            if not isinstance(error, MemoryError) and "memory" not in str(error):
                raise
            options = {option.name for option in self.commands[context.invoked_subcommand].params}
            advice = next((text for name, text in LESS_MEMORY.items() if name in options), "")
            raise BertptError(f"out of memory{advice}") from error


def _fail(message: str, status: int) -> int:
    print_error(message)
    return status


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"bertpt {bertpt.__version__}")
        raise typer.Exit


app = typer.Typer(
    name="bertpt",
    cls=OneLineErrors,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def main(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001  its callback does the work
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Pretrain BERT from scratch: text in, an evaluated encoder out.

    bertpt build-data corpus/ --out data

    bertpt pretrain data --out run

    bertpt eval-mlm run data
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


app.command("train-tokenizer")(train_tokenizer.train_tokenizer)
app.command("build-data")(build_data.build_data)
app.command("inspect")(inspect.inspect)
app.command("pretrain")(pretrain.pretrain)
app.command("eval-mlm")(eval_mlm.eval_mlm)
app.command("fill-mask")(fill_mask.fill_mask)
app.command("encode")(encode.encode)

"""Runs the commands as `python -m bertpt_cli`, which torchrun needs."""

from bertpt_cli.main import app

app(prog_name="bertpt")

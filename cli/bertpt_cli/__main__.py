"""Runs the commands as `python -m bertpt_cli`."""

from bertpt_cli.main import app

app(prog_name="bertpt")

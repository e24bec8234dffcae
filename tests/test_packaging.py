"""The wheel that hatchling builds is complete, and works installed alone."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import bertpt

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [path] = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """A folder with nothing but the wheel installed in it."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    options = ["--no-deps", "--no-index", "--no-compile", "--target", str(folder)]
    subprocess.run([*pip, *options, str(wheel)], check=True, capture_output=True)
    return folder


@pytest.fixture
def installed(site, tmp_path):
    """Runs Python in an empty folder, with the installed wheel before all else."""

    def run(*arguments, stdin=None):
        result = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(site)},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


def test_the_wheel_has_every_file_of_both_packages_and_the_licence(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for source in ("src/bertpt", "cli/bertpt_cli"):
        for path in (ROOT / source).rglob("*.py"):
            assert str(path.relative_to((ROOT / source).parent)) in names
    assert {"bertpt/py.typed", "bertpt_cli/py.typed"} <= names
    info = f"bertpt-{bertpt.__version__}.dist-info"
    assert f"{info}/licenses/LICENSE" in names
    assert {name.split("/")[0] for name in names} == {"bertpt", "bertpt_cli", info}


def test_the_wheel_names_its_command_licence_and_readme(wheel):
    info = f"bertpt-{bertpt.__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"{info}/METADATA").decode()
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    assert "License-Expression: Apache-2.0\n" in metadata
    assert "Description-Content-Type: text/markdown\n" in metadata
    assert "bertpt = bertpt_cli.main:app" in entry_points


def test_the_installed_wheel_runs(installed, site):
    where = "import bertpt, bertpt_cli; print(bertpt.__file__); print(bertpt_cli.__file__)"
    for path in installed("-c", where).splitlines():
        assert Path(path).is_relative_to(site)
    assert installed("-m", "bertpt_cli", "--version") == f"bertpt {bertpt.__version__}\n"


def test_the_installed_wheel_builds_data(installed, tmp_path):
    text = "A dog sees a cat. The cat runs away.\n\nA bird sings. The dog hears it.\n"
    build = ("build-data", "-", "--out", "data", "--vocab-size", "60", "--quiet")
    assert "documents" in installed("-m", "bertpt_cli", *build, stdin=text)
    assert (tmp_path / "data" / "manifest.json").is_file()
    assert "B " in installed("-m", "bertpt_cli", "inspect", "data")

"""Files and folders that are either complete or not there."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertpt.errors import InputError, OutputError


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a folder beside `path` to fill; it is renamed to `path` when the block ends well.

    A folder that stood at `path` is replaced whole. When the block raises, whatever was written
    is removed and `path` is as it was.

    Raises:
        OutputError: the place cannot be written to.
    """
    given, path = path, path.resolve()  # a link to a folder stays a link
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{path.name}.tmp-", dir=path.parent))
        work.chmod(0o777 & ~_umask())
    except (FileExistsError, NotADirectoryError) as error:
        raise OutputError(f"cannot write {given}: {given.parent} is not a folder") from error
    except OSError as error:
        raise OutputError(f"cannot write {given}: {problem(error)}") from error
    try:
        yield work
        _flush(work)
        _put(work, path)
    except OSError as error:
        if error.filename is None or Path(error.filename).is_relative_to(work):
            raise OutputError(f"cannot write {given}: {problem(error)}") from error
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def problem(error: OSError) -> str:
    """What is wrong, in the system's words; pyarrow has some of its own around them."""
    return os.strerror(error.errno) if error.errno else str(error)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _flush(folder: Path) -> None:
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())


def _put(work: Path, path: Path) -> None:
    if not path.exists():
        work.rename(path)
        return
    # A folder cannot be replaced in one step, so the old one steps aside for a moment.
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.old-", dir=path.parent))
    old = aside / path.name
    path.rename(old)
    try:
        work.rename(path)
    except BaseException:  # a signal, too, must not leave the place empty
        if not path.exists():
            old.rename(path)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def refuse_existing(path: Path, *, overwrite: bool, is_ours: Callable[[Path], bool]) -> None:
    """Checks, before any work is done, that an output folder may be written.

    Raises:
        OutputError: it exists, and `overwrite` is off or it is not one of ours; or it is a place
            that cannot be renamed into.
    """
    if path.is_mount() or path.resolve() == Path.cwd():
        raise OutputError(f"{path} cannot be replaced as a whole; give a new folder inside it")
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not overwrite:
        raise OutputError(f"{path} exists; give another --out, or --overwrite to replace it")
    if not is_ours(path):
        raise OutputError(f"{path} was not made by this command, so --overwrite leaves it alone")


def size(folder: Path) -> int:
    """Bytes in all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def spoken_size(num_bytes: float) -> str:
    """A number of bytes, for a message: 1.5 MB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.1f} {unit}" if unit != "bytes" else f"{num_bytes:.0f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} TB"


def printable(path: object) -> str:
    """A path, or another word of a shell, for a file or a message: U+FFFD for what is no UTF-8."""
    return os.fsencode(str(path)).decode("utf-8", "replace")


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yields a path beside `path` to write; it is flushed and renamed when the block ends well.

    When the block raises, what was written is removed and `path` is as it was.

    Raises:
        OSError: the place cannot be written to; it names `path`.
    """
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.filename in (None, str(temporary)):
            raise OSError(error.errno, problem(error), str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 file under a temporary name, flushes it, and renames it."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: object) -> None:
    """Writes a value as indented JSON, in the order of its keys."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        InputError: the file is missing, or holds something else.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"{path} holds no JSON object")
    return value


def sha256(path: Path, *, on_bytes: Callable[[int], object] | None = None) -> str:
    """SHA-256 of a file, in hexadecimal; `on_bytes` is told how many were read."""
    with path.open("rb") as handle:
        digest = hashlib.sha256()
        while block := handle.read(1 << 20):
            digest.update(block)
            if on_bytes:
                on_bytes(len(block))
    return digest.hexdigest()

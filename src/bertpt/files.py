"""Files and folders that are either complete or absent."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bertpt.errors import InputError, OutputError

# Names of what will become NAME (tmp), or was NAME until its replacement is there (old).
TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<kind>tmp|old)-([0-9a-f]{8}|[0-9]+)")


@contextmanager
def new_folder(path: Path, *, recheck: Callable[[], object] = bool) -> Iterator[Path]:
    """Yield a temporary folder to fill; it is renamed to `path` when the block succeeds.

    An existing folder at `path` is replaced. If the block raises, the temporary folder is removed
    and `path` is unchanged. What a killed process left unfinished for `path` is removed, too.

    Args:
        path: the folder to write.
        recheck: called before `path` is replaced; it raises if that is no longer allowed.

    Raises:
        OutputError: the folder cannot be written.
    """
    given, path = path, path.resolve()  # a link to a folder stays a link
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        clean_up(path.parent, path.name.__eq__, spare_held=True)
        stack = contextlib.ExitStack()
        work = stack.enter_context(_temporary_folder(path, "tmp"))
    except (FileExistsError, NotADirectoryError) as error:
        raise OutputError(f"cannot write {given}: {given.parent} is not a folder") from error
    except OSError as error:
        raise OutputError(f"cannot write {given}: {problem(error)}") from error
    try:
        yield work
        for file in (*sorted(work.rglob("*")), work):
            _sync(file)
        recheck()
        _put(work, path)
    except OutputError as error:
        raise OutputError(str(error).replace(str(work), str(given))) from error
    except OSError as error:
        if error.filename is None or Path(error.filename).is_relative_to(work):
            raise OutputError(f"cannot write {given}: {problem(error)}") from error
        raise
    finally:
        stack.close()


def problem(error: OSError) -> str:
    """Return the system's message for an error, without what pyarrow adds to it."""
    return os.strerror(error.errno) if error.errno else str(error)


def _temporary_name(path: Path, kind: str) -> Path:
    return path.with_name(f".{path.name}.{kind}-{secrets.token_hex(4)}")


@contextmanager
def _temporary_folder(path: Path, kind: str) -> Iterator[Path]:
    """Yield a locked temporary folder next to `path`, which is removed after the block."""
    folder = _temporary_name(path, kind)
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # the file system knows no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _may_be_held(path: Path) -> bool:
    """Return whether the process that made a temporary folder may still be alive."""
    if not path.is_dir():
        return True
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    with suppress(FileNotFoundError):  # a link to nowhere
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _put(work: Path, path: Path) -> None:
    if not path.exists():
        work.rename(path)
        _sync(path.parent)
        return
    # A folder cannot be replaced atomically, so the old one is moved away first.
    with _temporary_folder(path, "old") as aside:
        old = aside / path.name
        path.rename(old)
        try:
            work.rename(path)
            _sync(path.parent)
        except BaseException:  # including signals: put the old folder back
            if not path.exists():
                old.rename(path)
            raise


@contextmanager
def set_aside(path: Path) -> Iterator[Callable[[], None]]:
    """Move a folder aside; it comes back after the block unless the yielded function was called.

    If it comes back, what is at `path` by then is removed.
    """
    is_dropped = False
    with _temporary_folder(path, "old") as aside:
        old = aside / path.name
        path.rename(old)

        def drop() -> None:
            nonlocal is_dropped
            is_dropped = True
            shutil.rmtree(old, ignore_errors=True)

        try:
            yield drop
        finally:
            if not is_dropped:
                try:
                    if path.exists():
                        remove_folder(path)
                    old.rename(path)
                except OSError:  # keep it under a name from which `clean_up` restores it
                    aside.rename(_temporary_name(path, "old"))
                    raise
                _sync(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder; other processes see all of it or nothing.

    Files that the system does not remove yet, such as one on NFS that is being read, are left under
    a temporary name for `clean_up`.
    """
    with _temporary_folder(path, "tmp") as work:
        path.rename(work / path.name)


def clean_up(
    folder: Path, is_ours: Callable[[str], bool], *, spare_held: bool = False
) -> list[Path]:
    """Remove what killed processes left unfinished in a folder.

    A folder that was moved away comes back unless its replacement is there.

    Args:
        folder: to look in, not including its subfolders.
        is_ours: whether a file or folder of this name may be removed.
        spare_held: keep what a living process may be writing; otherwise no process may be writing.

    Returns:
        The paths that were removed.
    """
    found = []
    for path in sorted(folder.glob(".*")):
        form = TEMPORARY.fullmatch(path.name)
        if form is None or not is_ours(form["name"]) or (spare_held and _may_be_held(path)):
            continue
        old, target = path / form["name"], folder / form["name"]
        if form["kind"] == "old" and old.exists() and not target.exists():
            old.rename(target)
            _sync(folder)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)  # a file may be in use on NFS
        else:
            path.unlink()
        if not path.exists():
            found.append(path)
    return found


@contextmanager
def new_file(path: Path, *, recheck: Callable[[], object] = bool) -> Iterator[Path]:
    """Yield a temporary path to write; it is flushed and renamed when the block succeeds.

    If the block raises, the temporary file is removed and `path` is unchanged. `recheck` is called
    as in `new_folder`.

    Raises:
        OSError: the file cannot be written; it names `path`.
    """
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        yield temporary
        _sync(temporary)
        recheck()
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        if error.filename in (None, str(temporary)):
            raise OSError(error.errno, problem(error), str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file under a temporary name, flush it, and rename it."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: object) -> None:
    """Write `json_text` to a file, as `write_text` does."""
    write_text(path, json_text(value))


def json_text(value: object) -> str:
    """Return a value as indented JSON, in the order of its keys."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        InputError: the file is missing or is not a JSON object.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path} is missing") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {problem(error)}") from error
    except ValueError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path} cannot be read: its JSON is nested too deeply") from error
    if not isinstance(value, dict):
        raise InputError(f"{path} is not a JSON object")
    return value


def has_format(path: Path, wanted: str) -> bool:
    """Return whether a JSON file says that it has a format."""
    try:
        return read_json(path).get("format") == wanted
    except InputError:
        return False


def sha256(path: Path, *, on_bytes: Callable[[int], object] | None = None) -> str:
    """Return a file's SHA-256 in hexadecimal; `on_bytes` is called with the bytes read."""
    with path.open("rb") as handle:
        digest = hashlib.sha256()
        while block := handle.read(1 << 20):
            digest.update(block)
            if on_bytes:
                on_bytes(len(block))
    return digest.hexdigest()

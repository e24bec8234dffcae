"""Files and folders that are either complete or not there."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from bertpt.errors import InputError, OutputError

# What is on its way to NAME, or stepped aside for it.
TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<kind>tmp|old)-([0-9a-f]{8}|[0-9]+)")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a folder beside `path` to fill; it is renamed to `path` when the block ends well.

    A folder that stood at `path` is replaced whole. When the block raises, whatever was written
    is removed and `path` is as it was. What a process that was killed left on its way to `path` is
    removed, too.

    Raises:
        OutputError: the place cannot be written to.
    """
    given, path = path, path.resolve()  # a link to a folder stays a link
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        clean_up(path.parent, path.name.__eq__, spare_held=True)
        beside = contextlib.ExitStack()
        work = beside.enter_context(_beside(path, "tmp"))
    except (FileExistsError, NotADirectoryError) as error:
        raise OutputError(f"cannot write {given}: {given.parent} is not a folder") from error
    except OSError as error:
        raise OutputError(f"cannot write {given}: {problem(error)}") from error
    try:
        yield work
        _flush(work)
        _put(work, path)
    except OutputError as error:
        raise OutputError(str(error).replace(str(work), str(given))) from error
    except OSError as error:
        if error.filename is None or Path(error.filename).is_relative_to(work):
            raise OutputError(f"cannot write {given}: {problem(error)}") from error
        raise
    finally:
        beside.close()


def problem(error: OSError) -> str:
    """What is wrong, in the system's words; pyarrow has some of its own around them."""
    return os.strerror(error.errno) if error.errno else str(error)


@contextmanager
def _beside(path: Path, kind: str) -> Iterator[Path]:
    """A folder with a name of `TEMPORARY` for as long as the block runs."""
    folder = path.with_name(f".{path.name}.{kind}-{secrets.token_hex(4)}")
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
    """Whether the process that `_beside` made a folder for may be alive."""
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


def _flush(folder: Path) -> None:
    for path in (*sorted(folder.rglob("*")), folder):
        _sync(path)


def _sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
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
    # A folder cannot be replaced in one step, so the old one steps aside for a moment.
    with _beside(path, "old") as aside:
        old = aside / path.name
        path.rename(old)
        try:
            work.rename(path)
            _sync(path.parent)
        except BaseException:  # a signal, too, must not leave the place empty
            if not path.exists():
                old.rename(path)
            raise


def remove_folder(path: Path) -> None:
    """Removes a folder; whoever looks for it finds all of it or nothing.

    What the system will not remove yet, such as a file on NFS that somebody reads, is left under a
    temporary name for `clean_up`.
    """
    with _beside(path, "tmp") as work:
        path.rename(work / path.name)


def clean_up(
    folder: Path, is_ours: Callable[[str], bool], *, spare_held: bool = False
) -> list[Path]:
    """Removes what a process that was killed left on its way into a folder.

    What had stepped aside comes back where nothing took its place.

    Args:
        folder: where to look, without folders in it.
        is_ours: whether the file or folder of a name is one that this module was to write.
        spare_held: leave what a living process may be writing; else nobody may be writing there.

    Returns:
        What was removed.
    """
    found = []
    for path in sorted(folder.glob(".*")):
        form = TEMPORARY.fullmatch(path.name)
        if form is None or not is_ours(form["name"]) or (spare_held and _may_be_held(path)):
            continue
        aside, home = path / form["name"], folder / form["name"]
        if form["kind"] == "old" and aside.exists() and not home.exists():
            aside.rename(home)
            _sync(folder)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)  # somebody may read a file of it on NFS
        else:
            path.unlink()
        if not path.exists():
            found.append(path)
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps other processes out as long as the block runs, by a lock on the file `path`.

    The kernel takes the lock from a process that ends, however it ends, and gives it to no child
    (fcntl(2)). Where the file system knows no locks, nobody is kept out.

    Raises:
        OutputError: another process holds it; the message names that process.
    """
    file = _open_locked(path)
    try:
        with suppress(OSError):  # for people only
            file.truncate(0)
            file.write(f"{os.getpid()} on {socket.gethostname()}")
            file.flush()
        yield
    finally:
        path.unlink(missing_ok=True)
        with suppress(OSError):
            file.close()


def _open_locked(path: Path) -> IO[str]:
    while True:
        try:
            file = path.open("a+", encoding="utf-8", errors="replace")
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror}") from error
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (PermissionError, BlockingIOError):
            with file:
                file.seek(0)
                holder = " ".join(file.read().split())
            raise OutputError(
                f"{path.parent} is being written by process {holder}; wait for its end, or stop it"
            ) from None
        except OSError:
            return file
        # Whoever held it before may have removed the file in the meantime.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()


def refuse_existing(path: Path, *, overwrite: bool, is_ours: Callable[[Path], bool]) -> None:
    """Checks, before any work is done, that an output folder may be written.

    Raises:
        OutputError: it exists, and `overwrite` is off or it is not one of ours; or it is a place
            that cannot be renamed into.
    """
    place = path.resolve()
    # What a killed process put aside comes back first, or it would be replaced unasked later on.
    clean_up(place.parent, place.name.__eq__, spare_held=True)
    if path.is_mount() or place == Path.cwd():
        raise OutputError(f"{path} cannot be replaced as a whole; give a new folder inside it")
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not is_ours(path):
        raise OutputError(f"{path} exists, and was not made by this command; give another `out`")
    if not overwrite:
        raise OutputError(f"{path} exists; give another `out`, or `overwrite` to replace it")


def size(folder: Path) -> int:
    """Bytes in all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


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
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
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
    write_text(path, json_text(value))


def json_text(value: object) -> str:
    """What `write_json` writes."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        InputError: the file is missing, or holds something else.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path} is missing") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {problem(error)}") from error
    except ValueError as error:
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

"""Locks on folders that a process writes."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bertpt.errors import OutputError


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock on the file `path` during the block.

    The kernel releases the lock when the process ends, however it ends, and children do not inherit
    it (fcntl(2)). On a file system without locks, this does nothing.

    Raises:
        OutputError: another process holds it; the message names that process.
    """
    file = _open_locked(path)
    try:
        with suppress(OSError):  # only for the message
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

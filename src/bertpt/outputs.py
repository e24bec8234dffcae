"""Whether a command may write, or replace, an output."""

import re
from collections.abc import Callable
from pathlib import Path

from bertpt.errors import OutputError
from bertpt.files import clean_up


def refuse_existing(
    path: Path,
    *,
    overwrite: bool,
    is_ours: Callable[[Path], bool],
    contents: re.Pattern[str] | None = None,
) -> None:
    """Check that an output may be written: before any work is done, and before it is replaced.

    Args:
        path: the file or folder to write.
        overwrite: whether an existing output of the same command may be replaced.
        is_ours: whether an existing file or folder is such an output.
        contents: matches the relative paths of the files that the command writes into a folder.

    Raises:
        OutputError: it exists, and `overwrite` is off, or another program made it or put files into
            it; or it cannot be replaced by renaming.
    """
    resolved = path.resolve()
    # First bring back what a killed process moved away, which may not be replaced unasked either.
    clean_up(resolved.parent, resolved.name.__eq__, spare_held=True)
    if path.is_mount() or resolved == Path.cwd():
        raise OutputError(f"{path} cannot be replaced as a whole; give a new folder inside it")
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not is_ours(path):
        raise OutputError(f"{path} exists, and was not made by this command; give another `out`")
    if not overwrite:
        raise OutputError(f"{path} exists; give another `out`, or `overwrite` to replace it")
    if contents and (foreign := _foreign_files(path, contents)):
        names = ", ".join(foreign[:3]) + (f" and {len(foreign) - 3} more" if foreign[3:] else "")
        raise OutputError(
            f"{path} contains files that bertpt did not write: {names}; move them away, or give "
            "another `out`"
        )


def _foreign_files(folder: Path, contents: re.Pattern[str]) -> list[str]:
    paths = (p for p in sorted(folder.rglob("*")) if p.is_symlink() or not p.is_dir())
    names = (path.relative_to(folder).as_posix() for path in paths)
    return [name for name in names if not contents.fullmatch(name)]

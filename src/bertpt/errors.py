"""Errors that a user can fix: the command line prints one line and exits with `exit_code`.

A message names parameters of the library in backticks, such as `batch_size`; the command line shows
them as its options, such as --batch-size.
"""


class BertptError(ValueError):
    """Something a user can fix. The message names the wrong value and says what to do."""

    exit_code = 1


class InputError(BertptError):
    """A text, vocabulary or file cannot be used as it is."""


class MismatchError(BertptError):
    """Two artifacts do not belong together; the message names both values."""


class OutputError(BertptError):
    """An output cannot be written."""


class SettingError(BertptError):
    """A setting is out of range or contradicts another; `setting` is its name in bertpt.config."""

    exit_code = 2

    def __init__(self, setting: str, problem: str) -> None:
        self.setting = setting
        super().__init__(f"`{setting}` {problem}")

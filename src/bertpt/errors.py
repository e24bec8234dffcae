"""The errors that a user can mend: the command line prints one line and exits with the status."""


class BertptError(ValueError):
    """Something a user can mend. The message names the value that is wrong and the way out."""

    exit_code = 1


class InputError(BertptError):
    """A text, a vocabulary or a file that cannot be used as it is."""


class MismatchError(BertptError):
    """Two artifacts that do not belong together; the message names both values."""


class OutputError(BertptError):
    """A place that cannot be written to."""


class SettingError(BertptError):
    """A setting that is out of range or contradicts another; named as in bertpt.config."""

    exit_code = 2

    def __init__(self, setting: str, problem: str) -> None:
        self.setting = setting
        super().__init__(f"--{setting.replace('_', '-')} {problem}")

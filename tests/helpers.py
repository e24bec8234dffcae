"""What several test files share."""

import hashlib
import json
import subprocess
import sys

COMMAND = [sys.executable, "-m", "bertpt_cli"]
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TINY = ("--hidden-size", 12, "--num-hidden-layers", 1, "--num-attention-heads", 2)
# 14 entries, 2 documents of 3 sentences of 4 tokens
VOCABULARY = "".join(f"{word}\n" for word in [*SPECIAL_TOKENS, *"abcdefgh."])
TWO_DOCUMENTS = "a b c .\nd e f .\ng h a .\n\nb d f .\nc e g .\nh h a .\n"


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


def only_object(result):
    """Returns the only JSON object on stdout."""
    assert result.stdout.endswith("\n")
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def digests(folder):
    """Returns the SHA-256 of each file, by its path in the folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def shards(folder):
    return {name: digest for name, digest in digests(folder).items() if name.endswith(".arrow")}


def start(*arguments, **options):
    """Starts the command, with stdout and stderr as pipes by default."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([*COMMAND, *map(str, arguments)], text=True, **pipes)

"""Kill runs at random moments, damage checkpoints, and check that resuming is exact.

python benchmarks/torture.py [--kills 200] [--corruptions 1000] [--seed 0]

A run that saves every step is killed with SIGKILL and resumed many times. Each resume must start at
the newest checkpoint whose files have the right SHA-256, and the final weights must equal those of
an uninterrupted run, bit for bit. Then files of checkpoints are damaged; resuming must skip
damaged checkpoints or refuse the run in one line.

Commands run in forks of this process, which imports torch but does not use it.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import datasets  # noqa: F401  forks inherit the import
import torch
import torch._dynamo  # imported by optimizers

from bertpt.training import trainer  # noqa: F401  forks inherit the import
from bertpt_cli.main import app

SHAPE = "--hidden-size 12 --num-hidden-layers 1 --num-attention-heads 2 --batch-size 4"
RUN = f"{SHAPE} --dropout 0.1 --save-every 1 --log-every 1 --keep-last 3 --eval-every 3 --seed 7"
# The learning rate does not depend on the length, so a longer run repeats a shorter one.
RUN += " --schedule constant --warmup 0"
NUM_STEPS = 6  # of the run whose checkpoints are damaged
RESUMING = re.compile(r"^resuming .* after step (\d+)$", re.MULTILINE)


# -------------------------------------------------------------------------------------- processes


def call(*words: object) -> int:
    """Run a bertpt command in this process and return its exit status."""
    try:
        app([str(word) for word in words])
    except SystemExit as error:
        return int(error.code or 0)
    return 0


def fork(job: Callable[[], int], log: Path) -> int:
    """Start a job in a fork, with output to a file; return the process id."""
    sys.stdout.flush()
    log.write_bytes(b"")
    process = os.fork()
    if process:
        return process
    status = 70
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        status = job()
    finally:
        os._exit(status)


def finish(job: Callable[[], int], log: Path) -> None:
    _, status = os.waitpid(fork(job, log), 0)
    assert status == 0, log.read_text()


# ------------------------------------------------------------------------------------ checkpoints


def is_intact(folder: Path) -> bool:
    """Return whether every file of a checkpoint has the SHA-256 in trainer_state.json."""
    try:
        stored = json.loads((folder / "trainer_state.json").read_bytes())
        return all(
            hashlib.sha256((folder / name).read_bytes()).hexdigest() == expected
            for name, expected in stored["files"].items()
        )
    except (OSError, ValueError, KeyError):
        return False


def newest_intact(run: Path) -> int | None:
    steps = [int(path.name[5:]) for path in run.glob("checkpoints/step-*") if is_intact(path)]
    return max(steps, default=None)


def weights_of(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def losses_of(run: Path) -> list[tuple[int, str, float]]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [(entry["step"], entry["split"], entry["loss"]) for entry in lines]


# ------------------------------------------------------------------------------------------ kills


def kill_and_resume(data: Path, folder: Path, num_kills: int, rng: random.Random) -> bool:
    """Kill a run at random moments and resume it, until it has been killed `num_kills` times."""
    num_steps = 3 * num_kills
    run, log = folder / "killed", folder / "log"
    found: Counter[str] = Counter()
    while True:
        expected = newest_intact(run)
        if expected is None:
            words = [*RUN.split(), *(["--overwrite"] if run.exists() else [])]
        else:
            words = ["--resume"]
        words += ["--steps", str(num_steps)]
        process = fork(partial(call, "pretrain", data, "--out", run, *words), log)
        if found["kills"] >= num_kills:
            _, status = os.waitpid(process, 0)
            assert status == 0, log.read_text()
            ended = True
        else:
            # Most kills come while it trains and saves, some while it starts.
            early = rng.random() < 0.2
            killed = kill_at_random(process, log, rng, early=early)
            found["kills"] += killed
            ended = not killed
        output = log.read_text()
        found["messages about removed files"] += output.count("left unfinished")
        found["messages about skipped checkpoints"] += output.count("skipping")
        resuming = RESUMING.search(output)
        if expected is not None and resuming:
            found["resumes"] += 1
            found["resumes from the newest intact checkpoint"] += int(resuming[1]) == expected
        assert "Traceback" not in output, output
        if ended and found["kills"] >= num_kills:
            break
        if ended:
            num_steps += 3 * num_kills
    one = folder / "uninterrupted"
    finish(lambda: call("pretrain", data, "--out", one, *RUN.split(), "--steps", num_steps), log)
    same = {
        "weights": weights_of(run) == weights_of(one),
        "losses": losses_of(run) == losses_of(one),
        "best": (run / "best/model.safetensors").read_bytes()
        == (one / "best/model.safetensors").read_bytes(),
    }
    left = [path.name for path in run.rglob(".*")]
    print(f"{found['kills']} kills, {num_steps} steps")
    for name, number in found.items():
        print(f"  {name}: {number}")
    for name, is_same in same.items():
        print(f"  same {name} as an uninterrupted run, bit for bit: {is_same}")
    print(f"  files left over: {left or 'none'}", flush=True)
    exact = found["resumes"] == found["resumes from the newest intact checkpoint"]
    return exact and all(same.values()) and not left and found["kills"] >= num_kills


def kill_at_random(process: int, log: Path, rng: random.Random, *, early: bool) -> bool:
    """Kill a process after a random time, unless it ends before; return whether it was killed."""
    while not early and not re.search("resuming|parameters", log.read_text()):
        time.sleep(0.005)
        if os.waitpid(process, os.WNOHANG)[0]:
            return False
    time.sleep(rng.uniform(0, 0.6))
    if os.waitpid(process, os.WNOHANG)[0]:
        return False
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return True


# ------------------------------------------------------------------------------------- corruption


def corrupt(run: Path, rng: random.Random) -> str:
    """Damage one random file of a run's checkpoints in a random way; describe the damage."""
    checkpoint = rng.choice(sorted(run.glob("checkpoints/step-*")))
    path = rng.choice(sorted(checkpoint.iterdir()))
    kind = rng.choice(sorted(DAMAGE))
    written = path.read_bytes()
    DAMAGE[kind](path, bytearray(written), rng)
    return f"{kind}: {checkpoint.name}/{path.name}"


def _flip(path: Path, written: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 1, 8))):
        written[rng.randrange(len(written))] ^= 1 << rng.randrange(8)
    path.write_bytes(written)


def _overwrite(path: Path, written: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(written))
    noise = rng.randbytes(rng.randrange(1, 65))
    path.write_bytes((written[:start] + noise + written[start + len(noise) :])[: len(written)])


def _zeros(path: Path, written: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(written))
    path.write_bytes((written[:start] + bytes(512) + written[start + 512 :])[: len(written)])


def _swap(path: Path, _: bytearray, rng: random.Random) -> None:
    """Swap a file with that of another checkpoint, or with another file of this one."""
    others = [*path.parent.parent.glob(f"step-*/{path.name}"), *path.parent.iterdir()]
    other = rng.choice(sorted(found for found in others if found != path))
    aside = path.with_name("aside")
    path.rename(aside)
    other.rename(path)
    aside.rename(other)


def _rename(path: Path, _: bytearray, rng: random.Random) -> None:
    name = f"step-{rng.randrange(1, 99)}" + rng.choice(("", "", "-old", ".1"))
    path.parent.rename(path.parent.with_name(name))


DAMAGE: dict[str, Callable[[Path, bytearray, random.Random], object]] = {
    "bits flipped": _flip,
    "bytes overwritten": _overwrite,
    "zeros": _zeros,
    "truncated": lambda path, written, rng: os.truncate(path, rng.randrange(len(written))),
    "extended": lambda path, _, rng: path.open("ab").write(rng.randbytes(rng.randrange(1, 9))),
    "deleted": lambda path, *_: path.unlink(),
    "emptied": lambda path, *_: path.write_bytes(b""),
    "replaced by a folder": lambda path, *_: (path.unlink(), path.mkdir()),
    "swapped": _swap,
    "checkpoint renamed": _rename,
}


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() if p.is_file() else b"a folder" for p in folder.iterdir()}


def corrupt_and_resume(data: Path, folder: Path, number: int, rng: random.Random) -> bool:
    """Damage copies of a run and resume them, all in one fork."""
    source, longer, log = folder / "source", folder / "longer", folder / "log"
    words = ["pretrain", data, "--out", source, *RUN.split(), "--steps", NUM_STEPS]
    finish(lambda: call(*words), log)
    shutil.copytree(source, longer)
    more = ["--resume", "--steps", NUM_STEPS + 1]
    finish(lambda: call("pretrain", data, "--out", longer, *more), log)
    result = folder / "result.json"

    def job() -> int:
        outcomes = (corrupt_once(data, source, longer, more, rng) for _ in range(number))
        result.write_text(json.dumps(Counter(outcomes)))
        return 0

    finish(job, log)
    outcomes = json.loads(result.read_text())
    print(f"{number} corruptions")
    for name, times in sorted(outcomes.items()):
        print(f"  {name}: {times}", flush=True)
    return not any(name.startswith("WRONG") for name in outcomes)


def corrupt_once(  # noqa: PLR0911  one return per outcome
    data: Path, source: Path, longer: Path, more: list[object], rng: random.Random
) -> str:
    """Damage one to six files of a copy of a run, resume it, and describe the outcome."""
    run = source.with_name("copy")
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(source, run)
    for old in sorted(run.glob("checkpoints/step-*"))[: rng.choice((0, 0, 1, 2))]:
        shutil.rmtree(old)
    damage = []
    for _ in range(rng.choice((1, 1, 2, 6))):
        with contextlib.suppress(IndexError, OSError, ValueError):  # nothing left to damage
            damage.append(corrupt(run, rng))
    intact = [
        path.name
        for path in sorted(run.glob("checkpoints/step-*"))
        if (source / "checkpoints" / path.name).is_dir()
        and contents(path) == contents(source / "checkpoints" / path.name)
    ]
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = call("pretrain", data, "--out", run, *more)
    except Exception as error:  # noqa: BLE001
        return f"WRONG, {error!r} after {damage}"
    lines = err.getvalue().splitlines()
    if intact:
        resuming = RESUMING.search(err.getvalue())
        if status or resuming is None or f"step-{resuming[1]}" != intact[-1]:
            return f"WRONG, {status} {lines} after {damage}"
        if weights_of(run) != weights_of(longer):
            return f"WRONG, different weights after {damage}"
        if intact[-1] == f"step-{NUM_STEPS}":
            return "newest checkpoint intact: resumed, same final weights"
        skipped = f"skipping {run}/checkpoints/step-{NUM_STEPS}: " in err.getvalue()
        if not skipped and not any("renamed" in line for line in damage):
            return f"WRONG, no message after {damage}"
        return "newest checkpoint damaged: skipped, same final weights"
    errors = [line for line in lines if not line.startswith(("skipping", "removed"))]
    if status == 1 and len(errors) == 1 and errors[0].startswith("error: "):
        return "no checkpoint intact: refused in one line"
    return f"WRONG, {status} {lines} after {damage}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--corruptions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--where", help="folder on the disk to use")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(dir=options.where) as place:
        folder = Path(place)
        text, data = folder / "text.txt", folder / "data"
        words = ["cat", "dog", "bird", "sees", "hears", "the", "a", "old", "red", "hill"]
        sentences = [" ".join(rng.choices(words, k=rng.randint(2, 6))) for _ in range(240)]
        text.write_text("\n".join(s + "\n" * (i % 6 == 5) for i, s in enumerate(sentences)))
        build = ["build-data", text, "--out", data, "--sentence-per-line", "--vocab-size", 60]
        build += ["--seq-len", 16, "--valid-fraction", 0.2]
        finish(lambda: call(*build), folder / "log")
        good = [
            stage(data, folder, number, rng)
            for stage, number in (
                (kill_and_resume, options.kills),
                (corrupt_and_resume, options.corruptions),
            )
            if number
        ]
    sys.exit(not all(good))


if __name__ == "__main__":
    main()

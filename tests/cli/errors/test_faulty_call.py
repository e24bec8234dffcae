"""Wrong command lines: one line that names the value and the way out, and status 2."""

import pytest

BUILD = "build-data two.txt --out out"
PRETRAIN = "pretrain data --out out"
FAULTY_CALL = {
    # numbers out of range
    f"{BUILD} --masked-lm-prob 0": "error: --masked-lm-prob 0.0 must be above 0 and at most 1",
    f"{BUILD} --masked-lm-prob 1.5": "error: --masked-lm-prob 1.5 must be above 0 and at most 1",
    f"{BUILD} --masked-lm-prob -0.1": "error: --masked-lm-prob -0.1 must be above 0 and at most 1",
    f"{BUILD} --masked-lm-prob nan": "error: --masked-lm-prob nan is not a finite number",
    f"{BUILD} --masked-lm-prob inf": "error: --masked-lm-prob inf is not a finite number",
    f"{BUILD} --max-predictions-per-seq 0": "error: --max-predictions-per-seq 0 must be at least 1",
    f"{BUILD} --dupe-factor 0": "error: --dupe-factor 0 must be at least 1",
    f"{BUILD} --workers 0": "error: --workers 0 must be at least 1",
    **{
        f"{BUILD} --tokenizer vocab.txt --shard {shard}": (
            f"error: --shard {shard} must be one of 1/4 to 4/4"
        )
        for shard in ("0/4", "5/4")
    },
    f"{BUILD} --tokenizer vocab.txt --shard /4": (
        "error: --shard '/4' is not I/N, such as 3/16 (is a variable unset?)"
    ),
    "build-data missing.txt --out data --shard 1/2": (
        "error: --shard 1/2 needs --tokenizer, or each part would learn a different vocabulary; "
        "make one with bertpt train-tokenizer"
    ),
    f"{BUILD} --objective maybe": "error: --objective maybe is not one of nsp, sop, mlm",
    f"{BUILD} --pairing google --span": (
        "error: --span and --pairing google exclude each other: google-research/bert has no spans"
    ),
    f"{BUILD} --pairing google --objective sop": (
        "error: --objective sop and --pairing google exclude each other"
    ),
    f"{BUILD} --short-seq-prob 2": "error: --short-seq-prob 2.0 must be at least 0 and at most 1",
    f"{BUILD} --short-seq-prob -1": "error: --short-seq-prob -1.0 must be at least 0 and at most 1",
    f"{BUILD} --seq-len 4": "error: --seq-len 4 must be at least 5 and at most 65535",
    f"{BUILD} --seq-len 65536": "error: --seq-len 65536 must be at least 5 and at most 65535",
    f"{BUILD} --valid-fraction 1": "error: --valid-fraction 1.0 must be at least 0 and below 1",
    f"{BUILD} --valid-fraction -1": "error: --valid-fraction -1.0 must be at least 0 and below 1",
    f"{BUILD} --vocab-size 3": "error: --vocab-size 3 must be at least 6",
    f"{BUILD} --min-frequency 0": "error: --min-frequency 0 must be at least 1",
    f"{BUILD} --seed -1": "error: --seed -1 must be at least 0",
    f"{BUILD} --language english": (
        "error: --language english is not an ISO 639 code such as en, de or zh"
    ),
    "train-tokenizer two.txt --out out --vocab-size 3": "error: --vocab-size 3 must be at least 6",
    f"{PRETRAIN} --batch-size 0": "error: --batch-size 0 must be at least 1",
    f"{PRETRAIN} --micro-batch-size 0": "error: --micro-batch-size 0 must be at least 1",
    f"{PRETRAIN} --batch-size 3 --micro-batch-size 4": (
        "error: --micro-batch-size 4 exceeds --batch-size 3"
    ),
    f"{PRETRAIN} --learning-rate nan": "error: --learning-rate nan is not a finite number",
    f"{PRETRAIN} --learning-rate -1": "error: --learning-rate -1.0 must be above 0",
    f"{PRETRAIN} --learning-rate 0": "error: --learning-rate 0.0 must be above 0",
    f"{PRETRAIN} --muon-learning-rate 0": "error: --muon-learning-rate 0.0 must be above 0",
    f"{PRETRAIN} --weight-decay -1": "error: --weight-decay -1.0 must be at least 0",
    f"{PRETRAIN} --max-grad-norm 0": "error: --max-grad-norm 0.0 must be above 0",
    f"{PRETRAIN} --epochs 0": "error: --epochs 0 must be at least 1",
    f"{PRETRAIN} --steps 0": "error: --steps 0 must be at least 1",
    f"{PRETRAIN} --max-minutes 0": "error: --max-minutes 0.0 must be above 0",
    f"{PRETRAIN} --warmup -1": "error: --warmup -1.0 must be at least 0",
    f"{PRETRAIN} --steps 5 --warmup 6": "error: --warmup 6 exceeds --steps 5",
    f"{PRETRAIN} --max-minutes 1 --warmup 6": (
        "error: --warmup 6 is a number of steps; with --max-minutes, give a fraction"
    ),
    f"{PRETRAIN} --schedule google --max-minutes 1": (
        "error: --schedule google needs a number of steps; use --steps or --epochs instead of "
        "--max-minutes"
    ),
    f"{PRETRAIN} --decay 0.1": "error: --decay 0.1 requires --schedule wsd",
    f"{PRETRAIN} --schedule wsd --decay -1": "error: --decay -1.0 must be at least 0",
    f"{PRETRAIN} --schedule wsd --steps 5 --decay 6": "error: --decay 6 exceeds --steps 5",
    f"{PRETRAIN} --schedule wsd --max-minutes 1 --decay 6": (
        "error: --decay 6 is a number of steps; with --max-minutes, give a fraction"
    ),
    f"{PRETRAIN} --schedule wsd --steps 9 --warmup 6 --decay 4": (
        "error: --decay 4 and --warmup 6 together exceed --steps 9"
    ),
    f"{PRETRAIN} --schedule wsd --decay 0.96": (
        "error: --decay 0.96 and --warmup 0.05 together exceed --epochs 10"
    ),
    f"{PRETRAIN} --schedule step": (
        "error: --schedule step is not one of linear, cosine, constant, wsd, google"
    ),
    f"{PRETRAIN} --keep-last -1": "error: --keep-last -1 must be at least 0",
    f"{PRETRAIN} --save-every -1": "error: --save-every -1 must be at least 0",
    f"{PRETRAIN} --eval-every -1": "error: --eval-every -1 must be at least 0",
    f"{PRETRAIN} --log-every 0": "error: --log-every 0 must be at least 1",
    f"{PRETRAIN} --dropout 1": "error: --dropout 1.0 must be at least 0 and below 1",
    f"{PRETRAIN} --hidden-size 0": "error: --hidden-size 0 must be at least 1",
    "eval-mlm run data --batch-size 0": "error: --batch-size 0 must be at least 1",
    "fill-mask run 'a [MASK].' --top-k 0": "error: --top-k 0 must be at least 1",
    "encode run a --batch-size 0": "error: --batch-size 0 must be at least 1",
    "encode run a --layer -1": "error: --layer -1 must be at least 0",
    "inspect data --examples -1": "error: --examples -1 must be at least 0",
    # settings that exclude each other
    f"{PRETRAIN} --steps 5 --epochs 1": "error: --steps and --epochs exclude each other",
    f"{PRETRAIN} --steps 5 --max-minutes 1": "error: --steps and --max-minutes exclude each other",
    f"{PRETRAIN} --epochs 1 --max-minutes 1": (
        "error: --epochs and --max-minutes exclude each other"
    ),
    "pretrain data --out run --resume --overwrite": (
        "error: --resume and --overwrite exclude each other"
    ),
    "encode run a --layer 1 --pooling pooler": (
        "error: --layer and --pooling pooler exclude each other: the pooler reads the last layer"
    ),
    "encode run a --out v.npy --pooling tokens": (
        "error: --out v.npy cannot store vectors by token; use .safetensors instead of .npy"
    ),
    "encode run a --out v.txt": "error: --out v.txt must end in .npy or .safetensors",
    "fill-mask run 'a [MASK].' --mask-word zebra": (
        "error: --mask-word 'zebra' is not in the vocabulary"
    ),
    f"{PRETRAIN} --hidden-size 12 --num-attention-heads 5": (
        "error: --num-attention-heads 5 does not divide --hidden-size 12; choose a divisor, "
        "for example hidden size / 64"
    ),
    f"{PRETRAIN} --hidden-size 13 --num-attention-heads 2": (
        "error: --num-attention-heads 2 does not divide --hidden-size 13; choose a divisor, "
        "for example hidden size / 64"
    ),
    # the 5 special tokens, a to h, and the full stop; no word has a second character
    f"{BUILD} --vocab-size 8": (
        "error: --vocab-size 8 is too small: special tokens and the characters of this text "
        "need 14; raise it, or keep fewer characters with --limit-alphabet"
    ),
    "train-tokenizer two.txt --out out --vocab-size 8": (
        "error: --vocab-size 8 is too small: special tokens and the characters of this text "
        "need 14; raise it, or keep fewer characters with --limit-alphabet"
    ),
    "pretrain data --out run --resume --hidden-size 24": (
        "error: --hidden-size 24 is not what run was started with, 12; leave it out, or start "
        "another run"
    ),
    "pretrain data --out run --resume --batch-size 5": (
        "error: --batch-size 5 is not what run was started with, 3; leave it out, or start "
        "another run"
    ),
    "pretrain data --out run --resume --recipe published": (
        "error: --recipe published is not what run was started with, fast; leave it out, or "
        "start another run"
    ),
    # unknown choices
    f"{PRETRAIN} --recipe x": "error: --recipe x is not one of fast, published",
    f"{PRETRAIN} --optimizer x": "error: --optimizer x is not one of muon, adamw",
    f"{PRETRAIN} --init x": "error: --init x is not one of mimetic, published",
    f"{PRETRAIN} --masking x": "error: --masking x is not one of fresh, stored",
    f"{PRETRAIN} --pooler x": "error: --pooler x is not one of cls, mean",
    f"{PRETRAIN} --device x": "error: --device x is not one of auto, cpu, cuda",
    f"{PRETRAIN} --precision x": "error: --precision x is not one of auto, float32, bfloat16",
    "encode run a --pooling x": "error: --pooling x is not one of mean, cls, pooler, tokens",
    "encode run a --precision x": "error: --precision x is not one of auto, float32, bfloat16",
    f"{PRETRAIN} --model x": (
        "error: --model x is not one of tiny, mini, small, medium, base, large"
    ),
    # values from a config file
    f"{BUILD} --config range.toml": "error: --seq-len 4 must be at least 5 and at most 65535",
}


@pytest.mark.parametrize(("command", "line"), FAULTY_CALL.items(), ids=list(FAULTY_CALL))
def test_a_faulty_call_is_one_line_and_status_2(wrong, command, line):
    assert wrong(command, 2) == line


# Typer writes these messages, so only the names in them are checked.
FOUND_BY_TYPER = {
    "build-dat two.txt --out out": ["build-dat"],
    "--nonsense": ["--nonsense"],
    f"{BUILD} --nonsense": ["--nonsense"],
    f"{BUILD} --seqlen 32": ["--seqlen"],
    "build-data --out out": ["INPUT"],
    "build-data two.txt": ["--out"],
    "train-tokenizer": ["INPUT"],
    "pretrain --out out": ["DATA"],
    "inspect": ["DATA"],
    "inspect data theirs": ["theirs"],
    "eval-mlm run": ["DATA"],
    "fill-mask run": ["TEXT"],
    "fill-mask run 'a [MASK].' --mask-word": ["--mask-word"],
    "encode run": ["TEXT"],
    "encode run a --layer top": ["--layer", "top"],
    "encode run a --out": ["--out"],
    f"{BUILD} --seq-len": ["--seq-len"],
    f"{BUILD} --seq-len abc": ["--seq-len", "abc"],
    f"{BUILD} --seq-len 12.5": ["--seq-len", "12.5"],
    f"{BUILD} --masked-lm-prob much": ["--masked-lm-prob", "much"],
    f"{PRETRAIN} --learning-rate fast": ["--learning-rate", "fast"],
    f"{PRETRAIN} --steps 1e3": ["--steps", "1e3"],
    f"{BUILD} --lowercase=false": ["--lowercase"],
    f"{BUILD} --config missing.toml": ["--config", "missing.toml"],
    f"{BUILD} --config theirs": ["--config", "theirs"],
    f"{BUILD} --config not.toml": ["--config", "not.toml", "TOML"],
    f"{BUILD} --config unknown.toml": ["--config", "unknown.toml", "sequence", "length"],
    f"{BUILD} --config type.toml": ["--seq-len", "many"],
    f"{BUILD} --config inner.toml": ["--config", "config-file"],
    f"{BUILD} --config both.toml": ["--config", "both.toml"],
    "inspect data --split test": ["--split", "test", "train", "valid"],
    "eval-mlm run data --split test": ["--split", "test", "train", "valid"],
    "eval-mlm run data --device tpu": ["--device", "tpu", "auto", "cpu", "cuda"],
}


@pytest.mark.parametrize(("command", "names"), FOUND_BY_TYPER.items(), ids=list(FOUND_BY_TYPER))
def test_a_call_that_cannot_be_parsed_names_what_is_wrong(wrong, command, names):
    line = wrong(command, 2)
    for name in names:
        assert name in line


def test_warmup_above_the_steps_that_epochs_give_is_refused(wrong):
    line = wrong(f"{PRETRAIN} --hidden-size 12 --epochs 1 --warmup 999", 2)
    assert line.startswith("error: --warmup 999 exceeds --epochs 1 (")


def test_no_command_at_all_shows_the_help_on_stderr(run):
    result = run()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: bertpt" in result.stderr
    assert "build-data" in result.stderr


@pytest.mark.parametrize("spelling", ["--lowercase False", "--sentence-per-line no"])
def test_a_value_after_an_on_off_option_is_never_silently_on(wrong, spelling):
    # The value is read as another INPUT, which does not exist.
    assert wrong(f"{BUILD} {spelling}", 1).endswith(spelling.split()[1])


def test_a_case_option_that_contradicts_the_tokenizer_is_refused(wrong):
    # The folder's tokenizer.json lower-cases.
    line = wrong("build-data corpus.txt --out out --tokenizer tokenizer --no-lowercase", 2)
    assert "lowercase" in line
    assert "tokenizer" in line


def test_vocabulary_options_with_a_tokenizer_are_refused(run, corpus, tmp_path, data):
    result = run(
        *("build-data", corpus, "--out", tmp_path / "out", "--vocab-size", 50),
        *("--tokenizer", data / "tokenizer"),
    )
    assert result.exit_code == 2
    assert result.stderr == (
        "error: --vocab-size is for learning a vocabulary; with --tokenizer "
        f"{data / 'tokenizer'}, none is learned\n"
    )

"""The `--config` option."""

from helpers import read_json


def test_a_config_file_fills_in_defaults_and_a_flag_beats_it(done, corpus, tmp_path):
    (tmp_path / "c.toml").write_text(
        'seq-len = 48\nvocab_size = 88\nshort-seq-prob = 0.5\nlowercase = false\nlanguage = "de"\n'
    )
    build = ("build-data", corpus, "--config", tmp_path / "c.toml", "--quiet")
    done(*build, "--out", tmp_path / "o", "--seq-len", 24)
    manifest = read_json(tmp_path / "o" / "manifest.json")
    assert manifest["settings"]["seq_len"] == 24  # the flag
    assert manifest["settings"]["short_seq_prob"] == 0.5  # the file
    assert manifest["settings"]["language"] == "de"
    assert manifest["tokenizer"]["vocab_size"] == manifest["vocab_size"] == 88
    assert manifest["tokenizer"]["lowercase"] is False
    assert manifest["settings"]["dupe_factor"] == 1  # the default


def test_a_config_file_may_set_required_options(done, corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text('out = "from-file"\nvocab-size = 99\nquiet = true\n')
    result = done("build-data", corpus, "--config", "c.toml")
    assert (tmp_path / "from-file" / "manifest.json").is_file()
    assert result.stderr == ""


def test_pretrain_reads_its_settings_from_a_config_file(done, data, tmp_path):
    (tmp_path / "c.toml").write_text(
        "hidden-size = 12\nnum-hidden-layers = 1\nnum-attention-heads = 2\nsteps = 2\n"
        'optimizer = "adamw"\n'
    )
    run = tmp_path / "run"
    done("pretrain", data, "--out", run, "--config", tmp_path / "c.toml", "--steps", 1, "--quiet")
    settings = read_json(run / "config.json")["settings"]
    assert (settings["steps"], settings["optimizer"], settings["hidden_size"]) == (1, "adamw", 12)

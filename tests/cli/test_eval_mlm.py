"""`bertpt eval-mlm` from the outside."""

import math

from helpers import only_object, read_json


def test_eval_mlm_gives_the_figures_as_json(done, data, trained):
    output = only_object(done("eval-mlm", trained, data, "--json"))
    for key in ("mlm_accuracy", "nsp_accuracy", "mlm_top5_accuracy"):
        assert 0 <= output[key] <= 1
    assert math.isclose(output["mlm_perplexity"], math.exp(output["mlm_loss"]))
    assert math.isclose(output["loss"], output["mlm_loss"] + output["nsp_loss"])
    manifest = read_json(data / "manifest.json")
    assert output["num_examples"] == manifest["examples"]["valid"]
    assert output["num_targets"] == manifest["masked_tokens"]["valid"]
    assert set(output["baselines"]) == {"uniform", "unigram", "nsp_majority"}
    assert math.isclose(output["baselines"]["uniform"]["mlm_loss"], math.log(99))


def test_eval_mlm_gives_the_same_every_time_and_for_every_form_of_the_model(done, data, trained):
    models = (trained, trained, trained / "model", trained / "checkpoints" / "step-4")
    output = {done("eval-mlm", model, data, "--json", "--quiet").stdout for model in models}
    assert len(output) == 1


def test_eval_mlm_does_not_depend_on_the_batch_size(done, data, trained):
    one, seven = (
        only_object(done("eval-mlm", trained, data, "--batch-size", size, "--json"))
        for size in (1, 7)
    )
    for key in ("mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy"):
        assert math.isclose(one[key], seven[key], rel_tol=1e-6), key
    assert one["num_targets"] == seven["num_targets"]


def test_eval_mlm_prints_a_table_with_baselines(done, data, trained):
    output = only_object(done("eval-mlm", trained, data, "--json"))
    result = done("eval-mlm", trained, data)
    rows = {line[:39].strip(): line[39:].split() for line in result.stdout.splitlines()[1:]}
    assert result.stdout.splitlines()[0] == (
        f"{output['num_examples']} valid examples, {output['num_targets']} targets"
    )
    assert rows["MLM"][0] == f"{output['mlm_loss']:.3f}"
    assert rows["NSP"][0] == f"{output['nsp_loss']:.3f}"
    unigram = output["baselines"]["unigram"]
    assert rows["unigram baseline"] == [
        f"{unigram['mlm_loss']:.3f}",
        f"{100 * unigram['mlm_accuracy']:.1f}%",
    ]
    assert "majority baseline" in rows


def test_eval_mlm_takes_the_training_split(done, data, trained):
    output = only_object(done("eval-mlm", trained, data, "--split", "train", "--json"))
    assert output["split"] == "train"
    assert output["num_examples"] == read_json(data / "manifest.json")["examples"]["train"]

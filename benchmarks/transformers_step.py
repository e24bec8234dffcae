"""Compare a training step of bertpt and of transformers: same weights, same batch.

transformers computes MLM scores at all positions, bertpt only at the predicted ones.

python benchmarks/transformers_step.py
"""

import torch
from _timing import medians
from transformers import BertConfig
from transformers import BertForPreTraining as Theirs

from bertpt.config import PretrainConfig
from bertpt.model.bert import BertForPreTraining
from bertpt.model.losses import loss_sums, pretraining_loss


def main() -> None:
    torch.manual_seed(0)
    config = PretrainConfig(model="mini").bert_config(vocab_size=8192, pad_token_id=0)
    ours = BertForPreTraining(config)
    shape = {k: v for k, v in config.to_dict().items() if k != "pooler"}
    theirs = Theirs(BertConfig(**shape)).train()
    theirs.load_state_dict(ours.state_dict())
    ids = torch.randint(5, 8192, (32, 128))
    segments, lengths = torch.zeros_like(ids), torch.full((32,), 128)
    places = torch.randperm(ids.numel())[:608].sort().values
    pairs = torch.randint(0, 2, (32,))
    labels = torch.full((ids.numel(),), -100)
    labels[places] = ids.flatten()[places]

    def our_step() -> None:
        sums = loss_sums(ours(ids, segments, lengths, places), ids.flatten()[places], pairs)
        pretraining_loss(sums, num_targets=608, num_pairs=32).backward()  # type: ignore[no-untyped-call]

    def their_step() -> None:
        theirs(
            input_ids=ids,
            token_type_ids=segments,
            attention_mask=torch.ones_like(ids),
            labels=labels.view_as(ids),
            next_sentence_label=pairs,
        ).loss.backward()

    found = medians({"bertpt": our_step, "transformers": their_step}, repeats=5)
    for name, seconds in found.items():
        print(f"{name:>12}  {1000 * seconds:6.0f} ms  {4096 / seconds:7.0f} tokens/s")
    print(f"bertpt's step is {found['transformers'] / found['bertpt']:.2f} times as fast")


if __name__ == "__main__":
    main()

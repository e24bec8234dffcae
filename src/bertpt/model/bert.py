"""BERT (Devlin et al., 2019) in plain PyTorch, to read from top to bottom.

Modules and parameters have the names of transformers' BertForPreTraining, so state dicts are
interchangeable.

Dimensions: B examples, L tokens in the longest example, H hidden_size, N heads, D = H / N,
V vocabulary, P predicted positions in the batch.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bertpt.config import BertConfig
from bertpt.errors import InputError

# By the names of config.json; the last two are the same tanh approximation.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}


class BertEmbeddings(nn.Module):
    """Sum of token, position and segment embeddings, normalised."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        length = input_ids.shape[1]
        positions = self.position_embeddings.weight[:length]  # (L, H)
        embedded = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        return self.dropout(self.LayerNorm(embedded + positions))  # (B, L, H)


class BertSelfAttention(nn.Module):
    """Multi-head attention of every token to every real token of its example."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout_prob = config.attention_probs_dropout_prob

    def forward(
        self, hidden: Tensor, attention_mask: Tensor, *, output_attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        query, key, value = (
            projection(hidden).unflatten(-1, (self.num_attention_heads, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )  # (B, N, L, D) each
        # Unlike nn.Dropout, the functions below do not check for eval mode.
        dropout = self.dropout_prob if self.training else 0.0
        attention = None
        if output_attentions:  # the fused function cannot return them
            scores = query @ key.mT / query.shape[-1] ** 0.5  # (B, N, L, L)
            attention = scores.masked_fill(~attention_mask, -torch.inf).softmax(dim=-1)
            mixed = F.dropout(attention, dropout) @ value
        else:
            mixed = F.scaled_dot_product_attention(
                query, key, value, attn_mask=attention_mask, dropout_p=dropout
            )
        return mixed.transpose(1, 2).flatten(-2), attention  # (B, L, H)


class BertResidualOutput(nn.Module):
    """Projection to H, residual connection and LayerNorm ("post-norm", as published)."""

    def __init__(self, in_features: int, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(in_features, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(hidden)) + residual)  # (B, L, H)


class BertAttention(nn.Module):
    """Self-attention with its residual connection."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.self = BertSelfAttention(config)
        self.output = BertResidualOutput(config.hidden_size, config)

    def forward(
        self, hidden: Tensor, attention_mask: Tensor, *, output_attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        mixed, attention = self.self(hidden, attention_mask, output_attentions=output_attentions)
        return self.output(mixed, hidden), attention


class BertIntermediate(nn.Module):
    """First half of the feed-forward layer: projection to intermediate_size, activation."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACTIVATIONS[config.hidden_act]

    def forward(self, hidden: Tensor) -> Tensor:
        return self.activation(self.dense(hidden))


class BertLayer(nn.Module):
    """One encoder layer: attention, then a feed-forward layer on each token."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = BertAttention(config)
        self.intermediate = BertIntermediate(config)
        self.output = BertResidualOutput(config.intermediate_size, config)

    def forward(
        self, hidden: Tensor, attention_mask: Tensor, *, output_attentions: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        hidden, attention = self.attention(
            hidden, attention_mask, output_attentions=output_attentions
        )
        return self.output(self.intermediate(hidden), hidden), attention


class BertEncoder(nn.Module):
    """Stack of encoder layers."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList(BertLayer(config) for _ in range(config.num_hidden_layers))

    def forward(
        self,
        hidden: Tensor,
        attention_mask: Tensor,
        *,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> tuple[Tensor, tuple[Tensor, ...] | None, tuple[Tensor, ...] | None]:
        """Return the last hidden states, those of all layers, and all attentions.

        The second and third are None unless requested.
        """
        hidden_states, attentions = [hidden], []
        for layer in self.layer:
            hidden, attention = layer(hidden, attention_mask, output_attentions=output_attentions)
            if output_hidden_states:
                hidden_states.append(hidden)
            attentions.append(attention)
        return (
            hidden,
            tuple(hidden_states) if output_hidden_states else None,
            tuple(attentions) if output_attentions else None,
        )


class BertPooler(nn.Module):
    """One vector for each example, from [CLS] (as published) or the mean of its tokens."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.kind = config.pooler

    def forward(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        pooled = hidden[:, 0] if self.kind == "cls" else mean_of_tokens(hidden, lengths)
        return torch.tanh(self.dense(pooled))  # (B, H)


def mean_of_tokens(hidden: Tensor, lengths: Tensor) -> Tensor:
    """Average each example's real tokens: (B, L, H) to (B, H)."""
    real = _real_tokens(lengths, hidden.shape[1]).unsqueeze(-1)
    return (hidden * real).sum(dim=1) / lengths.unsqueeze(-1)


def _real_tokens(lengths: Tensor, length: int) -> Tensor:
    """Return a mask that is True for tokens and False for padding: (B, L)."""
    return torch.arange(length, device=lengths.device) < lengths.unsqueeze(-1)


class BertModelOutput(NamedTuple):
    """Output of `BertModel`.

    Attributes:
        last_hidden_state: output of the last layer. (B, L, H)
        pooler_output: one vector for each example. (B, H)
        hidden_states: embeddings and output of each layer, if requested. (B, L, H) each
        attentions: attention weights of each layer before dropout, if requested. (B, N, L, L) each
    """

    last_hidden_state: Tensor
    pooler_output: Tensor
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class BertModel(nn.Module):
    """BERT without pretraining heads: embeddings, encoder and pooler."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.pooler = BertPooler(config)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        lengths: Tensor | None = None,
        *,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> BertModelOutput:
        """Encode token ids.

        Args:
            input_ids: padded at the end with any id. (B, L)
            token_type_ids: 0 or 1; `None` means 0 everywhere. (B, L)
            lengths: tokens in each example; `None` means no padding. (B,)
            output_hidden_states: also return the hidden states of every layer.
            output_attentions: also return the attentions of every layer.

        Raises:
            InputError: L is greater than max_position_embeddings.
        """
        positions = self.config.max_position_embeddings
        if input_ids.shape[1] > positions:
            raise InputError(
                f"the input has {input_ids.shape[1]} tokens; the model reads at most {positions}"
            )
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        if lengths is None:
            lengths = torch.full_like(input_ids[:, 0], input_ids.shape[1])
        # Derived from lengths, not ids: masking can replace a token by [PAD].
        real = _real_tokens(lengths, input_ids.shape[1])
        hidden, hidden_states, attentions = self.encoder(
            self.embeddings(input_ids, token_type_ids),
            real[:, None, None, :],
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )
        return BertModelOutput(hidden, self.pooler(hidden, lengths), hidden_states, attentions)


class BertPredictionHeadTransform(nn.Module):
    """Dense layer, activation and LayerNorm before the decoder."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.LayerNorm(self.activation(self.dense(hidden)))


class BertLMPredictionHead(nn.Module):
    """Scores for every vocabulary entry; the decoder shares the word embeddings' weight."""

    def __init__(self, config: BertConfig, word_embeddings: nn.Embedding) -> None:
        super().__init__()
        self.transform = BertPredictionHeadTransform(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.decoder.weight = word_embeddings.weight
        self.bias = self.decoder.bias  # transformers uses both names

    def forward(self, hidden: Tensor) -> Tensor:
        return self.decoder(self.transform(hidden))


class BertPreTrainingHeads(nn.Module):
    """The MLM and NSP heads."""

    def __init__(self, config: BertConfig, word_embeddings: nn.Embedding) -> None:
        super().__init__()
        self.predictions = BertLMPredictionHead(config, word_embeddings)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


class BertOutput(NamedTuple):
    """Output of `BertForPreTraining`.

    Attributes:
        last_hidden_state: output of the last layer. (B, L, H)
        pooler_output: one vector for each example. (B, H)
        prediction_logits: scores of all vocabulary entries at the predicted positions. (P, V)
        seq_relationship_logits: scores of "B follows A" and "B is random". (B, 2)
        hidden_states: as in `BertModelOutput`.
        attentions: as in `BertModelOutput`.
    """

    last_hidden_state: Tensor
    pooler_output: Tensor
    prediction_logits: Tensor
    seq_relationship_logits: Tensor
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class BertForPreTraining(nn.Module):
    """BERT with both pretraining heads; initialise it with `bertpt.model.initialization`."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = BertModel(config)
        self.cls = BertPreTrainingHeads(config, self.bert.embeddings.word_embeddings)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        lengths: Tensor | None = None,
        masked_positions: Tensor | None = None,
        *,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> BertOutput:
        """Encode all tokens, and run the MLM head at the predicted positions.

        Args:
            input_ids: padded at the end with any id. (B, L)
            token_type_ids: 0 or 1; `None` means 0 everywhere. (B, L)
            lengths: tokens in each example; `None` means no padding. (B,)
            masked_positions: indices into the flattened (B * L); `None` means every one. (P,)
            output_hidden_states: also return the hidden states of every layer.
            output_attentions: also return the attentions of every layer.
        """
        encoded = self.bert(
            input_ids,
            token_type_ids,
            lengths,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )
        predicted = encoded.last_hidden_state.flatten(0, 1)  # (B * L, H)
        if masked_positions is not None:
            predicted = predicted[masked_positions]  # (P, H)
        return BertOutput(
            last_hidden_state=encoded.last_hidden_state,
            pooler_output=encoded.pooler_output,
            prediction_logits=self.cls.predictions(predicted),
            seq_relationship_logits=self.cls.seq_relationship(encoded.pooler_output),
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )

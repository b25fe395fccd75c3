"""Typed configuration: validated where it is born, saved beside the artefact it describes."""

import tomllib
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from rewriter.tokenizer import Granularity, normalize


def first_fault(error: ValidationError) -> str:
    """Where the first thing is that does not fit, and why, in one line: of a record that somebody else wrote."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the line'}: {first['msg']}"


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a .json or .toml file; raises pydantic.ValidationError naming every key that does not fit."""
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".toml":
            return cls.model_validate(tomllib.loads(text))
        return cls.model_validate_json(text)

    def save(self, path: Path) -> None:
        """Writes JSON, without what is not set."""
        path.write_text(self.model_dump_json(indent=2, exclude_none=True) + "\n", encoding="utf-8")


class Calibration(_Config):
    """From the model's probability p of a rewrite to a confidence: sigmoid(slope * logit(p) + intercept)."""

    slope: float = 1.0
    intercept: float = 0.0
    min_confidence: float = Field(default=0.0, ge=0, le=1, description="rewrites below it are withheld")


class FeaturesConfig(_Config):
    """How a conversation becomes arrays. Part of every model: a change here is a change of the model."""

    granularity: Granularity = Granularity.NAMES
    function_words: tuple[str, ...] = tuple("是的里有我不很和在中把对去吗说就")
    characters_per_token: int = Field(default=6, ge=1, description="characters that compose a token; the rest is cut")
    max_history_turns: int = Field(default=10, ge=0, description="the oldest turns beyond these are not read")
    max_source_tokens: int = Field(
        default=256,
        ge=8,
        description="of a conversation, turn ends included; what the utterance leaves free is for the history",
    )
    max_utterance_tokens: int = Field(default=96, ge=1, description="longer utterances are refused, never cut")
    calibration: Calibration = Calibration()

    @field_validator("function_words")
    @classmethod
    def _as_tokens_are(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            if not word or word != normalize(word).replace(" ", ""):
                raise ValueError(f"expected words in lower case without white space, found {word!r}")
        return words

    @property
    def max_turn_id(self) -> int:
        """The turn id of the bank, one beyond the oldest turn's (see ``features``)."""
        return self.max_history_turns + 2


class ModelConfig(_Config):
    """Size and parts of the model. The paper's plain T-Ptr-lambda has ``copy_state`` and ``occurrence`` off.

    ``architecture`` and ``output`` choose among the eight models that the paper compares (see ``family``).
    """

    num_words: int = Field(ge=1, description="word vocabulary with its special tokens")
    num_characters: int = Field(ge=1, description="character vocabulary with padding and unknown")
    hidden_dim: int = 256
    embedding_dim: int | None = Field(
        default=None,
        ge=2,
        multiple_of=2,
        description="units of a token, where they are fewer than hidden_dim",
    )
    intermediate_dim: int = 1024
    character_dim: int = 64
    num_heads: int = 4
    num_encoder_layers: int = 4
    num_decoder_layers: int = 2
    dropout: float = Field(default=0.1, ge=0, lt=1)
    architecture: Literal["transformer", "lstm"] = "transformer"
    output: Literal["gen", "ptr_net", "ptr_gen", "ptr_lambda"] = "ptr_lambda"
    copy_state: bool = Field(default=True, description="tell the decoder where it copied last and what is not written")
    occurrence: bool = Field(default=True, description="tell the encoder which words stand in utterance and history")
    edits: bool = Field(default=False, description="foretell, before decoding, what is copied and where words go in")
    relations: bool = Field(default=False, description="tell the encoder's attention how two positions are related")

    @property
    def token_dim(self) -> int:
        """The units of a token's embedding, before the first layer widens it to ``hidden_dim``."""
        return self.embedding_dim or self.hidden_dim

    @model_validator(mode="after")
    def _heads_share_the_units(self) -> Self:
        if self.hidden_dim % self.num_heads:
            raise ValueError(
                f"expected hidden_dim to be a multiple of num_heads, found {self.hidden_dim}, {self.num_heads}"
            )
        return self

    @model_validator(mode="after")
    def _relations_need_attention(self) -> Self:
        if self.relations and self.architecture != "transformer":
            raise ValueError(f"expected relations with the transformer alone, found them with {self.architecture}")
        return self


class DataShare(_Config):
    """Prepared examples and how many of them an epoch sees: 1.0 all, 0.25 a fresh random quarter, 2.0 all twice."""

    path: str
    share: float = Field(default=1.0, gt=0)


class TrainingConfig(_Config):
    """One stage of training: what is learnt (see ``objectives``), from which examples, for how long."""

    objective: Literal["rewriting", "masked_words"] = "rewriting"
    data: tuple[DataShare, ...]
    validation: str
    epochs: int = Field(ge=1)
    patience: int = Field(default=3, ge=1, description="epochs without a better validation score before stopping")
    batch_size: int = Field(default=64, ge=1)
    encoder_layers: int | None = Field(
        default=None, ge=1, description="fewer than the model's, which is faster; a later stage adds some: see growth"
    )
    dropout: float | None = Field(default=None, ge=0, lt=1, description="another than the model's")
    optimizer: Literal["adamw", "muon"] = Field(
        default="adamw", description="muon (Jordan 2024): AdamW with orthogonal steps for the layers' matrices"
    )
    learning_rate: float = Field(default=5e-4, gt=0)
    warmup_steps: int = Field(default=500, ge=0)
    final_learning_rate: float = Field(default=1e-5, ge=0)
    falling_share: float = Field(
        default=1.0, gt=0, le=1, description="of the steps after the warm-up, the last ones: there the rate falls"
    )
    weight_decay: float = Field(default=0.01, ge=0)
    gradient_clip_norm: float = Field(default=1.0, gt=0)
    edit_loss_weight: float = Field(default=0.3, ge=0, description="of foretelling the edits, where the model does")
    hidden_words: float = Field(default=0.15, gt=0, lt=1, description="share of the words that are to be guessed")
    beside: tuple[DataShare, ...] = Field(
        default=(), description="examples in which hidden words are guessed beside rewriting, a batch for each of data"
    )
    word_dropout: float = Field(default=0.1, ge=0, lt=1, description="share of words that show only their characters")
    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    checkpoint_every_steps: int = Field(default=500, ge=1)
    validation_examples: int = Field(default=1000, ge=1, description="decoded after each epoch")
    seed: int = 1
    runs: int = Field(
        default=1,
        ge=1,
        description="from the same weights, each with the next seed; the mean of their best is the best",
    )

    @model_validator(mode="after")
    def _is_not_stopped_before_the_rate_falls(self) -> Self:
        if self.falling_share < 1 and self.patience < self.epochs:
            raise ValueError(
                f"expected patience for all {self.epochs} epochs where the learning rate falls in the last ones, "
                f"found {self.patience}"
            )
        return self

    @model_validator(mode="after")
    def _only_rewriters_have_a_mean(self) -> Self:
        if self.runs > 1 and self.objective != "rewriting":
            raise ValueError(f"expected one run of {self.objective}, found {self.runs}")
        return self

    @model_validator(mode="after")
    def _only_rewriting_has_guessing_beside_it(self) -> Self:
        if self.beside and self.objective != "rewriting":
            raise ValueError(f"expected nothing beside {self.objective}, found {self.beside[0].path}")
        return self

    @property
    def parts(self) -> tuple[str, ...]:
        """The prepared files that the stage reads, by name."""
        untouched = (f"{self.validation}_untouched",) if self.objective == "rewriting" else ()
        return (*(share.path for share in (*self.data, *self.beside)), self.validation, *untouched)


class Recipe(_Config):
    """Everything that makes a shipped model: sizes and the stages of its training, in order."""

    model: dict[str, float | bool | str] = Field(
        default_factory=dict, description="ModelConfig fields; vocabulary sizes come from the data"
    )
    stages: dict[str, TrainingConfig]

    @model_validator(mode="after")
    def _encoders_only_grow(self) -> Self:
        whole = ModelConfig.model_validate({"num_words": 1, "num_characters": 1, **self.model}).num_encoder_layers
        depth = 0
        for name, stage in self.stages.items():
            if not depth <= (now := stage.encoder_layers or whole) <= whole:
                raise ValueError(f"expected {depth} to {whole} encoder layers in the stage {name}, found {now}")
            if 0 < depth < now and self.model.get("architecture") == "lstm":
                raise ValueError(f"expected {depth} LSTM layers in the stage {name}, as before, found {now}")
            depth = now
        return self

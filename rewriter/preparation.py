"""From text files to everything that training reads: vocabulary, features configuration and arrays."""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache
from itertools import chain
from pathlib import Path

import numpy as np

from rewriter.artefact import FEATURES_FILE, WEIGHTS_FILE, file_fingerprint, load_features
from rewriter.augmentation import lengthen, swap_words
from rewriter.config import Calibration, FeaturesConfig
from rewriter.conversation import Conversation, Example
from rewriter.corpus import Corpus, normalized, read_corpus, read_dialogues, topic_changes, untouched
from rewriter.dataset import FOR_MODEL, REPORT_FILE, PreparedExamples
from rewriter.features import Features, UtteranceTooLongError
from rewriter.selfsupervised import ExampleMaker
from rewriter.tokenizer import Granularity, Token, Tokenizer
from rewriter.vocabulary import EOT, MAX_WORDS, UNK, Vocabulary

log = logging.getLogger(__name__)

# The words of annotated conversations are the ones that matter.
_CORPUS_WEIGHT = 10
# Of the turns that need nothing, every third is put into a longer conversation too, in each of two kinds.
_NEGATIVE_STEP = 3
# Turns whose tokens are remembered, some 2 KB each.
_REMEMBERED_TURNS = 2**16


def prepare(
    corpus_path: Path,
    output: Path,
    *,
    dialogue_paths: Sequence[Path] = (),
    extra_paths: Sequence[Path] = (),
    validation_lines: int = 1000,
    max_words: int = MAX_WORDS,
    config: FeaturesConfig | None = None,
    model: Path | None = None,
    seed: int = 1,
) -> dict[str, float | str]:
    """Writes prepared examples to ``output`` and returns (and writes) the counts of what was read, used and left out.

    The last ``validation_lines`` readable lines of the corpus become the validation set; training examples that repeat
    one of them, as it is or with its reference for an utterance, however typed, are left out. Files: train,
    train_untouched, train_topic_changes, train_variants, train_swapped, train_lengthened, validation,
    validation_untouched, from further corpora extra, extra_untouched, extra_swapped and, for each by itself, extra_1,
    extra_2 and so on, from dialogues excerpts and incomplete (.npz each), words.txt, characters.txt, features.json,
    report.json.

    With ``model``, a folder, the features are that model's (but for its calibration; ``config`` is not read) and its
    vocabulary comes first, so that its training can go on; with ``max_words`` of 0 there are no others. Of several
    references the one is taken that it finds likeliest.
    """
    if model and model.resolve() == output.resolve():
        raise ValueError(f"expected a folder for the arrays, found the model's own, {model}")
    known = load_features(model) if model else None
    if known:  # its confidence will have to be calibrated anew
        config = known[0].model_copy(update={"calibration": Calibration()})
    config = config or FeaturesConfig()
    corpus = _read(corpus_path)
    train, validation = _split(corpus, corpus_path, validation_lines)
    held_out = _held_out(validation)
    tokenizer = RememberingTokenizer(config.granularity)
    further = [_without(held_out, _read(path).examples) for path in extra_paths]
    if model:
        from rewriter.references import likeliest_first  # needs Keras

        train, *further = (likeliest_first(examples, model, tokenizer) for examples in (train, *further))
    maker = ExampleMaker(tokenizer, seed)
    annotated = _annotated_parts(train, held_out, maker, tokenizer, seed)
    dialogues = (turns for path in dialogue_paths for turns in read_dialogues(path))
    excerpts = _without(held_out, (excerpt for turns in dialogues for excerpt in maker.excerpts(turns)))
    vocabulary = known[1] if known else Vocabulary.empty()
    if max_words or not known:
        vocabulary = vocabulary.extended(_word_counts((*train, *chain(*further)), excerpts, tokenizer), max_words)

    _begin_anew(output)
    vocabulary.save(output)
    config.save(output / FEATURES_FILE)
    features = Features(config, vocabulary)
    features.tokenizer = tokenizer
    parts = {
        **annotated,
        **_extra_parts(further, held_out, tokenizer, seed),
        "validation": validation,
        "validation_untouched": untouched(validation),
        "excerpts": excerpts,
        "incomplete": _without(held_out, maker.incomplete(excerpts)),
    }
    counts: dict[str, float | str] = {
        "lines": len(corpus.examples) + len(corpus.errors),
        "unreadable_lines": len(corpus.errors),
        "repeated_lines_left_out": len(corpus.examples) - validation_lines - len(train),
    }
    for name, examples in parts.items():
        counts |= _write_part(output, name, examples, features)
    if model:
        counts[FOR_MODEL] = file_fingerprint(model / WEIGHTS_FILE)
    (output / REPORT_FILE).write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")
    return counts


def _begin_anew(output: Path) -> None:
    """Makes the folder, without what would tell of an earlier preparation or stay of it."""
    output.mkdir(parents=True, exist_ok=True)
    # What a run was begun with is known by it: what is half new must not look like what was there before.
    (output / REPORT_FILE).unlink(missing_ok=True)
    for path in output.glob("extra_[0-9]*.npz"):  # there may have been more
        path.unlink()


def _split(corpus: Corpus, path: Path, validation_lines: int) -> tuple[list[Example], list[Example]]:
    """Training examples, without repetitions of each other and of validation, and the validation lines from the end."""
    border = len(corpus.examples) - validation_lines
    if border <= 0:
        raise ValueError(f"{path}: expected over {validation_lines} readable lines, found {len(corpus.examples)}")
    validation = list(corpus.examples[border:])
    train = _without(_held_out(validation), dict.fromkeys(corpus.examples[:border]))
    if not train:
        raise ValueError(f"{path}: expected lines besides the {validation_lines} of validation, found repetitions")
    return train, validation


def _held_out(validation: Sequence[Example]) -> set[Conversation]:
    """The conversations that no training example may be, normalized."""
    return {normalized(example.conversation) for example in (*validation, *untouched(validation))}


def _annotated_parts(
    train: Sequence[Example], held_out: Set[Conversation], maker: ExampleMaker, tokenizer: Tokenizer, seed: int
) -> dict[str, list[Example]]:
    """The training lines, and what is made of them."""
    kinds = {"train_untouched": untouched(train), "train_topic_changes": topic_changes(train, seed)}
    # Before they become longer, and are no longer known for what they were.
    negatives = {name: _without(held_out, examples) for name, examples in kinds.items()}
    every_third = (example for kind in negatives.values() for example in kind[::_NEGATIVE_STEP])
    made = {
        "train": train,
        **negatives,
        "train_variants": _variants(train, maker, copies=2),
        "train_swapped": swap_words(train, tokenizer, seed),
        "train_lengthened": lengthen([*train, *every_third], seed),
    }
    return {name: _without(held_out, examples) for name, examples in made.items()}


def _extra_parts(
    further: Sequence[Sequence[Example]], held_out: Set[Conversation], tokenizer: Tokenizer, seed: int
) -> dict[str, list[Example]]:
    """The lines of all further corpora and what is made of them, and those of each by itself."""
    extra = list(chain(*further))
    given = {normalized(example.conversation) for example in extra}
    return {
        "extra": extra,
        **{f"extra_{number}": list(examples) for number, examples in enumerate(further, start=1)},
        "extra_untouched": _without(given | held_out, untouched(extra)),
        "extra_swapped": _without(held_out, swap_words(extra, tokenizer, seed)),
    }


class RememberingTokenizer(Tokenizer):
    """Cuts each turn once, although examples share their turns and each part of the output has them anew.

    For preparation alone: in a service it would keep what users say.
    """

    def __init__(self, granularity: Granularity) -> None:
        super().__init__(granularity)
        self._remembered = lru_cache(maxsize=_REMEMBERED_TURNS)(super().tokenize)

    def tokenize(self, text: str) -> list[Token]:
        return list(self._remembered(text))


def _read(path: Path) -> Corpus:
    corpus = read_corpus(path)
    for error in corpus.errors:
        log.warning("%s", error)
    return corpus


def _write_part(output: Path, name: str, examples: Sequence[Example], features: Features) -> dict[str, float]:
    """Writes one file of arrays and returns its counts; a part without examples has no file."""
    path = output / f"{name}.npz"
    if not examples:
        path.unlink(missing_ok=True)  # of an earlier preparation, with other words
        return {}
    prepared = encode_examples(features, examples)
    prepared.save(path)
    return {
        name: len(prepared),
        f"{name}_not_copyable": int((prepared.target_lengths == 0).sum()),
        f"{name}_too_long": len(examples) - len(prepared),
        f"{name}_unknown_words": round(_unknown_words(prepared, len(features.config.function_words)), 4),
    }


def _unknown_words(prepared: PreparedExamples, num_function_words: int) -> float:
    """The share of the words that were said which have no embedding of their own."""
    words = prepared.arrays["word_ids"]
    places = np.arange(len(words)) - np.repeat(prepared.source_offsets[:-1], prepared.source_lengths)
    said = (places >= num_function_words) & ((words == UNK) | (words > EOT))
    return float((words[said] == UNK).mean()) if said.any() else 0.0


def encode_examples(features: Features, examples: Iterable[Example]) -> PreparedExamples:
    """Encodes conversations and aligns their references; utterances that are too long are left out."""
    sources, targets = [], []
    for example in examples:
        try:
            source = features.encode(example.conversation)
        except UtteranceTooLongError:
            continue
        sources.append(source)
        targets.append(features.target(source, example.reference))
    return PreparedExamples.from_sources(sources, targets)


def _without(held_out: Set[Conversation], examples: Iterable[Example]) -> list[Example]:
    return [example for example in examples if normalized(example.conversation) not in held_out]


def _variants(examples: Sequence[Example], maker: ExampleMaker, copies: int) -> list[Example]:
    """Other incomplete turns that the same references complete: each reference with another phrase taken out."""
    made = {maker.corrupt(e.conversation.history, e.reference) for e in examples for _ in range(copies)}
    return sorted((variant for variant in made - set(examples) if variant), key=repr)


def _word_counts(annotated: Sequence[Example], excerpts: Sequence[Example], tokenizer: Tokenizer) -> Counter[str]:
    texts: Counter[str] = Counter()
    for examples, weight in ((annotated, _CORPUS_WEIGHT), (excerpts, 1)):
        for example in examples:
            for text in (*example.conversation.history, example.conversation.utterance, example.reference):
                texts[text] += weight
    counts: Counter[str] = Counter()
    for text, count in texts.items():
        for token in tokenizer.tokenize(text):
            counts[token.surface] += count
    return counts

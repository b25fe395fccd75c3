"""What a token should be: how many references each granularity can copy, and how long sources and targets become.

python benchmarks/granularity.py train.txt [--lines 3000]
"""

import argparse
from pathlib import Path

from rewriter.config import FeaturesConfig
from rewriter.corpus import read_corpus
from rewriter.features import Features
from rewriter.tokenizer import Granularity
from rewriter.vocabulary import Vocabulary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--lines", type=int, default=3000)
    arguments = parser.parse_args()
    examples = read_corpus(arguments.corpus).examples[-arguments.lines :]
    print("| granularity | cannot be copied | source tokens | target tokens |\n|---|---|---|---|")
    for granularity in Granularity:
        config = FeaturesConfig(granularity=granularity, max_utterance_tokens=10_000, max_source_tokens=20_000)
        features = Features(config, Vocabulary.build({}, 1))
        sources = [features.encode(example.conversation) for example in examples]
        targets = [features.target(s, e.reference) for s, e in zip(sources, examples, strict=True)]
        copied = [target for target in targets if target is not None]
        said = sum(len(source) - len(features.config.function_words) for source in sources)
        print(
            f"| {granularity.value} | {1 - len(copied) / len(examples):.1%} | {said / len(examples):.1f} "
            f"| {sum(map(len, copied)) / len(copied):.1f} |"
        )


if __name__ == "__main__":
    main()

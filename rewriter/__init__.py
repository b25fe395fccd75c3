"""Makes the turns of a conversation self-contained, by copying words from where they were said.

Data flows one way; read the modules in this order:

1. ``conversation``   what comes in: history turns and the utterance.
2. ``tokenizer``      text -> tokens (jieba words, with character offsets into the text).
3. ``alignment``      reference rewrite -> the source positions that spell it.
4. ``features``       tokens -> int32 arrays, and source positions -> text and spans. The only preprocessing there is.
5. ``model``          T-Ptr-lambda: ``encode``, ``decode``, ``call``; built from ``layers`` and ``pointer``.
6. ``decoding``       greedy and beam search over any step function.
7. ``training``, ``inference``, ``evaluation``, ``export``, ``batch``: what ``cli`` runs.
"""

__version__ = "0.1.0"

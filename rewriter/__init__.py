"""Makes the turns of a conversation self-contained, by copying words from where they were said.

Data flows one way; read the modules in this order:

1. ``conversation``   what comes in: history turns and the utterance. ``config`` has every setting of what follows.
2. ``tokenizer``      text -> tokens (jieba words, with character offsets into the text). ``names`` joins those that a
   conversation repeats; ``vocabulary`` numbers them.
3. ``alignment``      reference rewrite -> the source positions that spell it.
4. ``features``       tokens -> int32 arrays, and source positions -> text and spans. The only preprocessing there is.
   ``brackets`` has titles copied whole; ``trust`` says which rewrites are given.
5. ``model``          T-Ptr-lambda: ``encode``, ``decode``, ``call``; built from ``layers``, ``relations`` and
   ``pointer``. ``edits`` has it foretell what will be copied; ``family`` and ``recurrent`` have what the paper's seven
   other models have instead. ``artefact`` keeps it in a folder.
6. ``decoding``       greedy and beam search over any step function.
7. ``training``, ``inference``, ``evaluation``, ``export``, ``batch``, ``explanation``: what ``cli`` runs.

Data for training: ``corpus`` reads it, ``standoff`` joins rewrites with conversations that are kept elsewhere,
``checking`` finds faults, ``selfsupervised`` and ``augmentation`` make more of it, ``references`` chooses among several
right answers, ``preparation`` turns it all into the arrays of ``dataset``; ``runs`` keeps a run to the arrays it was
begun with.
``objectives`` has what a stage of training learns: to rewrite or, before that, to guess hidden words (``masking``);
``schedule`` has the learning rate; ``growth`` deepens the encoder between stages, and adds words.
Evaluation: ``metrics``, ``results`` line by line, ``analysis`` by kinds (``restorations``, ``word_kinds``),
``comparison`` of systems, ``calibration`` of the confidence, which ``confidence`` measures and stores.
"""

__version__ = "0.14.0"

"""How the models that come with the package are made, in this order (each ``python -m drafters.training.reference.NAME``):

``data`` builds tokenizer and rows from the corpus of ``sources.yaml`` and generated documents; ``pretrain`` trains the target
at a constant rate and into its decay; ``unloop`` takes it down to no rate, on rows of its whole context, while it unlearns its
loops; ``between`` takes weights between two of its states; ``samples`` shows what it writes and writes the folder; ``prompts``
and ``families`` make the drafters; ``card`` measures all of them and writes the model card.

The target of this version: ``pretrain --tokens 16800000 --row-tokens 1024 --rows 4 --accumulate 2 --dialogues 1.6``, ended at
15.5 million tokens, at 0.38 of the rate; ``unloop --rounds 14 --round-steps 24 --steps 336 --rate 0.38``, then ``--first 14
--rounds 4 --round-steps 20 --steps 80 --rate 0.1 --weight 1.5 --end-weight 0.06``, both with ``--row-tokens 2048
--ordinary-rows 2 --dialogues 2``; ``between --share 0.3`` of these two. (Its first 0.4 million tokens came from an earlier state
of the generator.) About 100 minutes on two cores.
"""

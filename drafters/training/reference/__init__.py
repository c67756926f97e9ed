"""How the models that come with the package are made, in this order (each ``python -m drafters.training.reference.NAME``):

``data`` builds tokenizer and rows from the corpus of ``sources.yaml`` and generated documents; ``pretrain`` trains the target
at a constant rate and into its decay; ``unloop`` takes it down to no rate, on rows of its whole context, while it unlearns its
loops; ``samples`` shows what it writes and writes the folder; ``prompts`` and ``families`` make the drafters; ``card``
measures all of them and writes the model card.
"""

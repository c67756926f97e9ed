"""How the models that come with the package are made, in this order (each ``python -m drafters.training.reference.NAME``):

``data`` builds tokenizer and rows from the corpus of ``sources.yaml`` and generated documents; ``pretrain`` trains the target
at a constant rate and into its decay (``--tokens 19000000 --row-tokens 1024 --rows 4 --accumulate 1 --muon-rate 0.012
--adam-rate 0.002 --decay-share 0.3``, ended at 17.0 million); ``unloop`` takes it down to no rate on rows of 2,048, twice more
with dialogues drawn more often; ``samples`` shows what it writes and writes the folder; ``prompts`` and ``families`` make the
drafters; ``card`` measures all of them and writes the model card.
"""

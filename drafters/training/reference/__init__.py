"""The reference target: its sources, generated documents, tokenizer and pretraining."""

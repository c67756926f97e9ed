"""Parts of the corpus stage: files → sources of text, requests, language tags, the split, near-duplicates."""

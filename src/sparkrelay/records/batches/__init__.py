"""Record batches of format v2, to Arrow and back."""

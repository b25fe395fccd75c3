"""Generated from ``proto/`` by ``python -m serving.generate``; never edited by hand."""

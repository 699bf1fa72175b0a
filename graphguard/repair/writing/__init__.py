"""Edits of graphs as edits of texts, in the idiom of the file, one kind of statement a file."""

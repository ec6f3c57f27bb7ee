"""A small decoder-only transformer and the copy-attention head that may sit on top of it."""

"""Seeing the Unseen: how transformers handle symbols they never met."""

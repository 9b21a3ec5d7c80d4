"""Moves bytes between ranks; knows no gradient."""

"""Choosing a depth for each word: tables, mutual information, reconstruction."""

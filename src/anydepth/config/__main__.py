"""Prints docs/recipe-keys.md."""

from anydepth.config.keys import keys_as_markdown

print(keys_as_markdown(), end="")

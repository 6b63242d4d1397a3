"""Training: from a recipe to a finished model, with exact resume, on one process or many.

Nothing is imported here: reading the log of a run needs no PyTorch.
"""

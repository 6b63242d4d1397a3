"""The model folder, its card, and the bundled model.

Nothing is imported here: the folder of a model is found without PyTorch.
"""

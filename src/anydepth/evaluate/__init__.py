"""Metrics, the depth sweep, reports and plots.

Nothing is imported here: whoever needs only `metrics.score` should not load matplotlib.
"""

"""The server: LibreTranslate's API, with depths and budgets, batching under load, and a page at / to try it.

A request's fields are read (schemas.py) and handled (handlers.py): the text is split into sentences (segments.py), a
depth is chosen for each (depths.py), and they wait in a queue (queue.py) for a worker (workers.py). app.py has the
routes, server.py starts and stops it all, monitoring.py keeps the log and the metrics.
"""

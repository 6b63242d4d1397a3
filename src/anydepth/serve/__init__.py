"""The server: LibreTranslate's API with depths and budgets besides, batching under load, and the page at /.

A request is read (schemas.py), its text split into sentences (segments.py), a depth chosen (depths.py), and each
sentence waits (queue.py) for one of the workers (workers.py); app.py puts the routes together, server.py starts it all.
"""

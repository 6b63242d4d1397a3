"""The engine of our own: a C++ core that runs every depth in int8 from one copy of the weights."""

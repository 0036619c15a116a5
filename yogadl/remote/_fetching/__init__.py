"""How bytes come here: what is asked for next, by which threads, and again where late or wrong."""

"""How versions of a data set follow from one another; knows nothing of files or storages."""

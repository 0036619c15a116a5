"""What serves yogadl 0.1.4 only: its files, its pickles, and the functions it had."""

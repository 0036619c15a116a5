"""Cache files: writing them so that they are whole or not there, and reading them."""

"""The paper's experiments. Each is a package to run with ``python -m``; what they share is here."""

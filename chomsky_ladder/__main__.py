"""`python -m chomsky_ladder` is `ladder`."""

from chomsky_ladder.harness.cli.main import script

if __name__ == "__main__":
    script()

"""The data card of an exported data set: what the hub reads in its first lines, and what people read below."""

from collections.abc import Sequence

from chomsky_ladder.harness.hub.part import Part


def card(parts: Sequence[Part]) -> str:
    """Return README.md: the settings that the hub reads, what the data set is, and its tables."""
    lines = [
        "---",
        "license: apache-2.0",
        "pretty_name: Chomsky Ladder",
        "tags: [formal-languages, benchmark]",
        "configs:",
    ]
    for part in parts:
        lines += [f"- config_name: {_name(part)}", f"  data_files: {part.path}"]
    lines += ["---", "", *_TEXT.strip().splitlines(), "", "| table | rows | holds |", "| --- | ---: | --- |"]
    lines += [f"| `{part.path}` | {part.rows:,} | {part.about} |" for part in parts]
    return "\n".join(lines) + "\n"


def _name(part: Part) -> str:
    return part.path.removesuffix(".parquet").removeprefix("data/").replace("/", "-")


_TEXT = """
# Chomsky Ladder

Sequence architectures on the languages of the Chomsky hierarchy: every run of the benchmark, and the test strings of
its frozen suites. A program makes the strings from a seed. Nobody wrote them, and they are about nobody.

```python
import pandas as pd
records = pd.read_parquet("data/records.parquet")          # a row a run
strings = pd.read_parquet("strings/climb-v1/recall.parquet")
```

With the package installed, `ladder table --results FOLDER` makes every table from this folder.

- **Use**: compare architectures, or score your own model on the same strings. `read_at` lists the positions at which an
  answer is asked, `answer` the right ones, in words of the task.
- **Limits**: models have about 100,000 parameters, so nothing here ranks language models. Do not train on test strings.
- **Columns**: `results/README.md` in the repository explains each column of the records.
"""

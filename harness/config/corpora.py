"""The texts of the study `text`: Debian's packages of them, and how they become a file. No text is in the repository.

    bible -f gen1:1-rev22:21 | cut -d' ' -f2- > kjv.txt      with the packages bible-kjv and bible-kjv-text

Each package has its licence in /usr/share/doc/PACKAGE/copyright.
"""

from pathlib import Path
from typing import NamedTuple


class Corpus(NamedTuple):
    title: str
    file: str
    sha256: str
    """The first 16 digits, which the run's identity holds."""
    recipe: str
    packages: str

    def settings(self) -> dict[str, str]:
        """Return the task's settings. Refuse, in one line, a folder without the file."""
        if not Path(self.file).is_file():
            raise ValueError(f"no {self.file} here. With Debian's {self.packages}: {self.recipe} > {self.file}")
        return {"file": self.file, "file_sha256": self.sha256}


CORPORA = (
    Corpus(
        "the King James Bible",
        "kjv.txt",
        "b5c4940bcfeee072",
        "bible -f gen1:1-rev22:21 | cut -d' ' -f2-",
        "bible-kjv and bible-kjv-text",
    ),
    Corpus("GCIDE", "gcide.txt", "802beb667e1fb666", "zcat < /usr/share/dictd/gcide.dict.dz", "dict-gcide"),
)


def title_of_text(sha256: str) -> str:
    """Return the name of a text with this hash; the hash where no text here has it."""
    return next((corpus.title for corpus in CORPORA if corpus.sha256 == sha256), f"the text {sha256}")

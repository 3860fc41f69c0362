"""The page as a file, as a folder that any host can serve, and on a port of this machine.

site/index.html     the page
site/records.csv    the records it was made of, in full precision, for who wants to reckon on
site/curves.csv     their learning curves
site/card.png       with --url, the picture that a link to it is shown with
"""

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from chomsky_ladder.harness.page.html import of_results
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.record import stored

BESIDE = ("records.csv", "curves.csv")
PICTURE = "card.png"


def write(
    results: Path, out: Path, *, listing: Mapping[str, Any] | None = None, url: str = "", picture: str = ""
) -> int:
    """Bring records.csv and curves.csv up to date and write the page of them; its size in bytes."""
    content = of_results(results, listing=listing, url=url, picture=picture).encode()
    write_atomically(out, content)
    return len(content)


def write_site(results: Path, folder: Path, *, listing: Mapping[str, Any] | None = None, url: str = "") -> int:
    """Write the page to a folder of its own with the data beside it. Return the page's size in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    size = write(results, folder / "index.html", listing=listing, url=url, picture=PICTURE if url else "")
    if url:
        from chomsky_ladder.harness.page.card import card  # with matplotlib

        write_atomically(folder / PICTURE, card(stored(results / "records.csv")))
    for name in BESIDE if folder.resolve() != results.resolve() else ():
        if (results / name).exists():
            shutil.copyfile(results / name, folder / name)
    return size


class _Quiet(SimpleHTTPRequestHandler):
    """Says nothing of every request."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the name that its base class has
        pass


def serve(folder: Path, name: str, *, port: int, tell: Callable[[str], None]) -> None:
    """Serve a folder on this machine alone until Ctrl-C. `name` is the page; port 0 is any free one."""
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Quiet, directory=str(folder)))
    except OSError as error:
        raise ValueError(f"--port {port} cannot be had: {error.strerror}") from None
    with server:
        tell(f"http://127.0.0.1:{server.server_address[1]}/{quote(name)} until Ctrl-C")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            tell("")

"""The description of a data set for programs: MLCommons Croissant 1.0, which loaders and search engines read."""

from collections.abc import Sequence
from typing import Any

from chomsky_ladder.harness.hub.part import Part

_NAMES = (
    *("citeAs", "column", "extract", "field", "fileProperty", "fileObject", "fileSet", "format", "includes"),
    *("isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex"),
    *("repeated", "replace", "separator", "source", "subField", "transform"),
)
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in _NAMES},
}


def croissant(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the description: each file with its hash, and each column with its type."""
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": "chomsky-ladder",
        "description": "Runs of sequence architectures on formal languages, and the test strings of frozen suites.",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "license": "https://www.apache.org/licenses/LICENSE-2.0",
        "distribution": [_file(part) for part in parts],
        "recordSet": [_records(part) for part in parts],
    }


def _file(part: Part) -> dict[str, str]:
    return {
        "@type": "cr:FileObject",
        "@id": part.path,
        "name": part.path,
        "description": part.about,
        "contentUrl": part.path,
        "encodingFormat": "application/x-parquet",
        "sha256": part.sha256,
    }


def _records(part: Part) -> dict[str, Any]:
    name = part.path.removesuffix(".parquet").replace("/", "-")
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{name}/{column}",
            "name": column,
            "dataType": kind.removesuffix("*"),
            **({"repeated": True} if kind.endswith("*") else {}),
            "source": {"fileObject": {"@id": part.path}, "extract": {"column": column}},
        }
        for column, kind in part.columns.items()
    ]
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "description": part.about, "field": fields}
